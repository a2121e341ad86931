"""Jobs that no worker can finish: copied to the dead letter topic, then deleted; and the way back.

They were delivered as often as they may be; or they are damaged, and then the letter has what is
known of them: where they lay, what is wrong there, and the tag if the topic's index has it.

The copy is safe before the delete is written, so a crash in between leaves both and loses none.
The copy carries a key made of the job's topic and seq: done again within the dead letter topic's
idempotency window, it is not made twice. What cannot be put away now, because the dead letter
topic or the log refuses, is blocked: no worker gets it, it is counted, and later claims try again.

A requeue is the same the other way: the copy is safe in the queue before the letter is deleted, and
its key is made of the dead letter topic and the letter's seq.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from headwater.config.topic import TopicType
from headwater.core.errors import HeadwaterError, NotAQueueError, RequestError
from headwater.core.limits import LETTER_BYTES_MAX
from headwater.core.records import Record
from headwater.core.results import DEAD_LETTER_CAUSE, DEAD_LETTER_ORIGIN, Requeued
from headwater.engine.operation import Answered, AsOwner, Operation
from headwater.engine.owner import Change
from headwater.engine.queues.claims import Queues, fetch_records
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import append_encoded_operation, ensure_loaded, loaded_topic
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.publisher import PendingAppend
from headwater.engine.topics.record_encoding import EncodedRecords, encode_records
from headwater.format.control_frames import RecordsDeleted
from headwater.model.loss import DAMAGED
from headwater.model.queue import ExhaustedJob

_MARKS: Final = "$dead_letter_"
"""What begins so in a letter's meta was added on its way there."""


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


class _Letter(NamedTuple):
    origin: str
    job: EncodedRecords


def requeue_operation(
    engine: TopicEngine,
    name: str,
    seqs: Sequence[int],
    may_write: Callable[[str], bool] = lambda _: True,
) -> Operation[Requeued]:
    """Give these letters back to their queues. Raises an error when nothing could be given."""
    topic = yield from loaded_topic(engine, name)
    wanted = list(dict.fromkeys(seqs))
    records = yield from fetch_records(engine, topic, sorted(wanted))
    letters = {
        seq: letter
        for seq in wanted
        if (letter := _letter(records.get(seq))) is not None and may_write(letter.origin)
    }
    for origin in {letter.origin for letter in letters.values()}:
        queue: Topic | None = yield AsOwner(partial(engine.find, origin))
        if queue is not None:
            yield from ensure_loaded(queue)
    errors: list[HeadwaterError] = []
    # All are on their way before the first is waited for: they share a commit.
    writes: dict[int, PendingAppend] = yield AsOwner(partial(_send, engine, topic, letters, errors))
    safe: list[int] = []
    for seq, write in writes.items():
        try:
            yield Answered(partial(_itself, write))
        except HeadwaterError as error:
            errors.append(error)
        else:
            safe.append(seq)
    if errors and not safe:
        raise errors[0]
    if safe:
        for router in topic.outbound:
            # What is deleted here and was copied stays copied.
            yield Answered(partial(engine.routers.flush_copies, router.dest))
        yield Answered(partial(_take_out, engine, topic, safe))
    return Requeued(safe, [seq for seq in wanted if seq not in frozenset(safe)])


def _itself(write: PendingAppend) -> PendingAppend:
    return write


def _letter(record: Record | None) -> _Letter | None:
    """The job a letter holds, as it was written; None when the record is not a letter."""
    meta = record.meta if record is not None else None
    origin = (meta or {}).get(DEAD_LETTER_ORIGIN)
    if record is None or meta is None or not isinstance(origin, str):
        return None
    if DEAD_LETTER_CAUSE in meta:
        return None  # its payload is lost: there is no job to give back
    job: dict[str, Any] = {"data": msgspec.Raw(record.data_json)}
    if record.tag is not None:
        job["tag"] = record.tag
    if record.node is not None:
        job["node"] = record.node
    kept = {name: value for name, value in meta.items() if not name.startswith(_MARKS)}
    if kept:
        job["meta"] = kept
    return _Letter(origin, encode_records([job]))


def _send(
    engine: TopicEngine, topic: Topic, letters: Mapping[int, _Letter], errors: list[HeadwaterError]
) -> dict[int, PendingAppend]:
    writes = {}
    for seq, letter in letters.items():
        key = f"requeue of {topic.topic_id}: {seq}"
        try:
            if engine.topic(letter.origin).log.settings.type is not TopicType.QUEUE:
                raise NotAQueueError(f"{letter.origin!r} is a log; letters go back to queues")
            writes[seq] = engine.append(
                letter.origin, letter.job, idempotency_key=key, create=False
            )
        except HeadwaterError as error:
            errors.append(error)
    return writes


def _take_out(engine: TopicEngine, topic: Topic, seqs: list[int]) -> Change:
    """Delete letters that are safe in their queues."""
    topics = engine.topics
    change = Change(lambda: topics.apply_seqs_deletion(topic, seqs) >= 0)
    topics.submit_deletion(topic, RecordsDeleted(0, 0, seqs=tuple(seqs)), change)
    return change
