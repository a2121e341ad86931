"""Jobs that no worker can finish: copied to the dead letter topic, then deleted.

They were delivered as often as they may be; or they are damaged, and then the letter has what is
known of them: where they lay, what is wrong there, and the tag if the topic's index has it.

The copy is safe before the delete is written, so a crash in between leaves both and loses none.
The copy carries a key made of the job's topic and seq: done again within the dead letter topic's
idempotency window, it is not made twice. What cannot be put away now, because the dead letter
topic or the log refuses, is blocked: no worker gets it, it is counted, and later claims try again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from headwater.core.errors import HeadwaterError, RequestError
from headwater.core.limits import LETTER_BYTES_MAX
from headwater.core.records import Record
from headwater.core.results import DEAD_LETTER_CAUSE, DEAD_LETTER_ORIGIN
from headwater.engine.operation import Answered, AsOwner, Operation
from headwater.engine.owner import Change
from headwater.engine.queues.claims import Queues
from headwater.engine.queues.job_records import fetch_records
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import append_encoded_operation
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.record_encoding import EncodedRecords, encode_records
from headwater.model.loss import DAMAGED
from headwater.model.queue import ExhaustedJob


def dead_letter_operation(engine: TopicEngine, queues: Queues, topic: Topic) -> Operation[None]:
    """Put away what is to be put away since the last time, as far as that is possible."""
    assert topic.queue is not None
    leases = topic.queue.leases
    if not leases.has_exhausted:
        return
    dying: list[ExhaustedJob] = yield AsOwner(leases.take_exhausted)
    if not dying:
        return
    left = {job.seq: job for job in dying}
    reasons: dict[int, str] = {}

    def put_away(job: ExhaustedJob) -> Change:
        """From here on the change itself decides what becomes of the job, even when no caller
        waits."""
        del left[job.seq]
        return queues.put_away(topic, job.seq)

    def end() -> None:
        for seq, reason in reasons.items():
            queues.block(topic, seq, reason, is_copied=left[seq].is_copied)
        # The next claim tries the others again: this caller left, or the settings changed
        # meanwhile.
        leases.stays(left.keys() - reasons.keys(), engine.core.clock.monotonic_us())

    try:
        uncopied = [job.seq for job in dying if not job.is_copied]
        records = yield from fetch_records(engine, topic, uncopied)
        for job in dying:
            if not job.is_copied:
                record = records.get(job.seq)
                target = topic.log.settings.dead_letter
                if target is None:
                    continue
                if record is None and job.seq not in topic.log.damaged:
                    reasons[job.seq] = f"the record of job {job.seq} cannot be read"
                    continue
                key = f"dead letter of {topic.topic_id}: {job.seq}"
                yield from append_encoded_operation(
                    engine,
                    target,
                    damaged_letter(engine, topic, job)
                    if record is None
                    else dead_letter(topic, record, job),
                    idempotency_key=key,
                    create=True,
                )
                left[job.seq] = job._replace(is_copied=True)
            yield Answered(partial(put_away, job))
    except HeadwaterError as error:
        reasons = dict.fromkeys(left, str(error))
        return  # tried again later; the claim at hand is answered
    finally:
        if left:
            engine.core.owner.post(end)


def dead_letter(topic: Topic, record: Record, job: ExhaustedJob) -> EncodedRecords:
    """The copy: the record with where it is from. Its own meta goes when there is no room."""
    meta = _origin(topic, job)
    copy: dict[str, Any] = {"data": msgspec.Raw(record.data_json)}
    if record.tag is not None:
        copy["tag"] = record.tag
    if record.node is not None:
        copy["node"] = record.node
    try:
        return encode_records(
            [{**copy, "meta": {**(record.meta or {}), **meta}}], bytes_max=LETTER_BYTES_MAX
        )
    except RequestError:
        return encode_records([{**copy, "meta": meta}], bytes_max=LETTER_BYTES_MAX)


def damaged_letter(engine: TopicEngine, topic: Topic, job: ExhaustedJob) -> EncodedRecords:
    """What is known of a job that cannot be read. Its payload is not: the data is null."""
    meta = {**_origin(topic, job), DEAD_LETTER_CAUSE: DAMAGED}
    damage = engine.core.damage.find(topic.name, job.seq)
    if damage is not None:
        meta["$dead_letter_damage"] = f"{damage.reason} at byte {damage.offset} of {damage.file}"
    copy: dict[str, Any] = {"data": None, "meta": meta}
    tag = None if topic.log.tags is None else topic.log.tags.tag_of(job.seq)
    if tag is not None:
        copy["tag"] = tag.decode("utf-8", "replace")
    return encode_records([copy])


def _origin(topic: Topic, job: ExhaustedJob) -> dict[str, Any]:
    return {
        DEAD_LETTER_ORIGIN: topic.name,
        "$dead_letter_deliveries": job.deliveries,
        "$dead_letter_src_seq": job.seq,
    }
