"""Jobs that nobody can finish: copied to the dead letter topic, then deleted.

They were delivered as often as they may be; or they are damaged, and then the letter has what is
known of them: where they lay, what is wrong there, and the tag if the topic's index has it.

The copy is safe before the delete is written, so a crash in between leaves both and loses none.
The copy carries a key made of the job's topic and seq: done again within the dead letter topic's
idempotency window, it is not made twice. What cannot be copied now stays, and is tried again with
the next claim.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from headwater.core.errors import HeadwaterError, RequestError
from headwater.core.records import Record
from headwater.engine.engine import Engine
from headwater.engine.input import EncodedRecords, encode_records
from headwater.engine.job_records import records_steps
from headwater.engine.queue_answers import DEAD_LETTER_CAUSE, DEAD_LETTER_ORIGIN
from headwater.engine.queues import Queues
from headwater.engine.steps import Answered, AsOwner, Steps, append_encoded_steps
from headwater.engine.topic import Topic
from headwater.model.loss import DAMAGED
from headwater.model.queue import Dying


def dead_letter_steps(engine: Engine, queues: Queues, topic: Topic) -> Steps[bool]:
    """Put away what is to be put away since the last time. False when some of it could not be."""
    assert topic.queue is not None
    leases = topic.queue.leases
    if not leases.has_dying:
        return True
    dying: list[Dying] = yield AsOwner(leases.take_dying)
    if not dying:
        return True
    left = [job.seq for job in dying]
    target = topic.log.settings.dead_letter
    try:
        records = yield from records_steps(engine, topic, left)
        for job in dying:
            record = records.get(job.seq)
            damaged = record is None and job.seq in topic.log.damaged
            if target is None or (record is None and not damaged):
                continue  # the rules changed, or somebody deleted it
            encoded = (
                damaged_letter(engine, topic, job)
                if record is None
                else dead_letter(topic, record, job)
            )
            key = f"dead letter of {topic.topic_id}: {job.seq}"
            yield from append_encoded_steps(
                engine, target, encoded, idempotency_key=key, create=True
            )
            yield Answered(partial(queues.put_away, topic, job.seq))
            left.remove(job.seq)
    except HeadwaterError:
        return False  # the next claim tries again; the one at hand is answered
    finally:
        if left:
            now_us = engine.core.clock.monotonic_us()
            engine.core.owner.post(lambda: leases.stays(left, now_us))
    return not left


def dead_letter(topic: Topic, record: Record, job: Dying) -> EncodedRecords:
    """The copy: the record with where it is from. Its own meta goes when there is no room."""
    told = _told(topic, job)
    copy: dict[str, Any] = {"data": msgspec.Raw(record.data_json)}
    if record.tag is not None:
        copy["tag"] = record.tag
    if record.node is not None:
        copy["node"] = record.node
    try:
        return encode_records([{**copy, "meta": {**(record.meta or {}), **told}}])
    except RequestError:
        return encode_records([{**copy, "meta": told}])


def damaged_letter(engine: Engine, topic: Topic, job: Dying) -> EncodedRecords:
    """What is known of a job that cannot be read. Its payload is not: the data is null."""
    told = {**_told(topic, job), DEAD_LETTER_CAUSE: DAMAGED}
    place = engine.core.damage.find(topic.name, job.seq)
    if place is not None:
        told["$dead_letter_damage"] = f"{place.reason} at byte {place.offset} of {place.file}"
    copy: dict[str, Any] = {"data": None, "meta": told}
    tag = None if topic.log.tags is None else topic.log.tags.tag_of(job.seq)
    if tag is not None:
        copy["tag"] = tag.decode("utf-8", "replace")
    return encode_records([copy])


def _told(topic: Topic, job: Dying) -> dict[str, Any]:
    return {
        DEAD_LETTER_ORIGIN: topic.name,
        "$dead_letter_deliveries": job.deliveries,
        "$dead_letter_src_seq": job.seq,
    }
