"""Dead letters go back to the queues they came from.

Like the way there (`dead_letters`): the copy is safe in the queue before the letter is deleted, so
a crash in between leaves both and loses none. The copy carries a key made of the dead letter
topic and the letter's seq: done again within the queue's idempotency window, it is not made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from headwater.config.topic import TopicType
from headwater.core.errors import HeadwaterError, NotAQueueError
from headwater.core.records import Record
from headwater.core.results import DEAD_LETTER_CAUSE, DEAD_LETTER_ORIGIN, Requeued
from headwater.engine.operation import Answered, AsOwner, Operation
from headwater.engine.owner import Change
from headwater.engine.queues.job_records import fetch_records
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import ensure_loaded, loaded_topic
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.publisher import PendingAppend
from headwater.engine.topics.record_encoding import EncodedRecords, encode_records
from headwater.format.topic_frames import RecordsDeleted

_MARKS: Final = "$dead_letter_"
"""What begins so in a letter's meta was added on its way there."""


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
