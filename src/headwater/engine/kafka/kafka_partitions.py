"""The partitions of one organisation by name, for every protocol but Kafka's.

What names of Kafka's topics cannot be used for is refused here, with what to do instead. Records
become one batch, and a delete a new log start. A batch is as durable as a producer with acks=all
has it. Keys of writes are remembered while the server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from headwater.core.durability import Durability
from headwater.core.errors import (
    FormatError,
    HeadConflictError,
    InvalidRequestError,
    NotAQueueError,
    TopicExistsIncompatibleError,
    TopicNotFoundError,
)
from headwater.core.limits import PARTITION_PREFIX
from headwater.core.results import Appended, Deleted
from headwater.engine.engine import Engine
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.operation import Answered, AsOwner, Operation
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.topics.publisher import Keyed, PendingAppend
from headwater.engine.topics.record_encoding import EncodedRecords, checked_key
from headwater.format.control_frames import IdempotencyEntry
from headwater.format.frame import FrameFlag, split_data
from headwater.format.kafka.mapping import to_kafka
from headwater.format.kafka.names import parse_partition_name, partition_name
from headwater.format.kafka.records import NewRecord, encode_batch
from headwater.model.idempotency import IdempotencyWindow
from headwater.model.match import TagMatcher

_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)


class KafkaPartitions:
    """For the owner only, as an engine."""

    def __init__(self, store: KafkaStore, engine: Engine, organisation: int) -> None:
        self._store = store
        self._engine = engine
        self._organisation = organisation

    @property
    def core(self) -> EngineCore:
        return self._engine.core

    # -- which there are

    def find(self, name: str) -> KafkaPartition | None:
        spot = parse_partition_name(name)
        topic = None if spot is None else self._store.topic(self._organisation, spot[0])
        if topic is None or spot is None or spot[1] >= len(topic.partitions):
            return None
        return topic.partitions[spot[1]]

    def topic(self, name: str) -> KafkaPartition:
        partition = self.find(name)
        if partition is None:
            raise TopicNotFoundError(self._why_absent(name))
        return partition

    def listed(self, prefix: str, after: str | None) -> Iterator[KafkaPartition]:
        """For listings with the prefix `kafka:`."""
        names = sorted(
            name
            for topic in self._store.topics(self._organisation)
            for name in (each.name for each in topic.partitions)
            if name.startswith(prefix) and (after is None or name > after)
        )
        return (partition for name in names if (partition := self.find(name)) is not None)

    def _why_absent(self, name: str) -> str:
        if name.startswith(PARTITION_PREFIX):
            return f"there is no partition {name!r}; make its topic with a Kafka client"
        return f"there is no topic {name!r}; {self._kafkas_own(name)}, use that name"

    def refuse_new(self, name: str) -> None:
        """A topic of the engine's own shall be made, or changed."""
        if self.find(name) is not None:
            raise InvalidRequestError(
                f"{name!r} is a partition of a Kafka topic; Kafka clients change its settings"
            )
        self.refuse_taken(name)

    def refuse_taken(self, name: str) -> None:
        """One name is one topic: Kafka clients would never see another one of theirs."""
        if not name.startswith(PARTITION_PREFIX):
            raise TopicExistsIncompatibleError(
                f"no topic {name!r} can be made: {self._kafkas_own(name)}; "
                "use that, or take another name",
                detail={"reason": "kafka_topic", "topic": name},
            )

    def _kafkas_own(self, name: str) -> str:
        topic = self._store.topic(self._organisation, name)
        last = 0 if topic is None else len(topic.partitions) - 1
        ends = (partition_name(name, index) for index in sorted({0, last}))
        return f"Kafka clients made {' to '.join(ends)}"

    # -- changing them

    def append(
        self,
        name: str,
        records: EncodedRecords,
        *,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> PendingAppend:
        if create is not False:
            self.refuse_taken(name)
        partition = self.topic(name)
        if settings is not None:
            raise InvalidRequestError("the settings of a Kafka topic are changed by Kafka clients")
        if records.deliver_at is not None:
            raise NotAQueueError(f"{name!r} is a log; deliver_at needs a queue")
        if self.core.refusing and not disable_backpressure:
            raise self._engine.pressure_control.refuse()
        now_ms = self.core.clock.wall_ms()
        return append_records(partition, records, now_ms, idempotency_key, expect_head_seq)

    def deletion(
        self, name: str, before_seq: int | None, matcher: TagMatcher | None
    ) -> Operation[Deleted]:
        partition: KafkaPartition = yield AsOwner(lambda: self.topic(name))
        if matcher is not None or before_seq is None:
            raise InvalidRequestError(
                "records of a Kafka partition are deleted from the front only, with before_seq"
            )
        deleted: Deleted = yield Answered(lambda: delete_before(partition, before_seq))
        return deleted


def append_records(
    partition: KafkaPartition,
    records: EncodedRecords,
    now: int,
    idempotency_key: str | None,
    expect_head_seq: int | None,
) -> PendingAppend:
    key = None if idempotency_key is None else checked_key(idempotency_key)
    if key is not None:
        repeat = _repeat(partition, key, now)
        if repeat is not None:
            return repeat
    next_seq = partition.next_offset
    if expect_head_seq is not None and expect_head_seq != next_seq:
        raise HeadConflictError(
            f"head_seq is {next_seq}, not {expect_head_seq}",
            detail={"head_seq": next_seq, "expect_head_seq": expect_head_seq},
        )
    batch = encode_batch(_new_records(records, now))
    write = PendingAppend(next_seq + 1, now)
    pending = partition.append(batch, Durability.FSYNC)
    if key is not None:
        _remember(partition, write, key)
    _when_done(pending, partial(_complete, partition, write, len(records)))
    return write


def delete_before(partition: KafkaPartition, before_seq: int) -> Pending[Deleted]:
    before = partition.earliest_seq
    response: Pending[Deleted] = Pending()

    def done(pending: Pending[int]) -> None:
        if pending.error is not None:
            response.fail(pending.error)
            return
        earliest, head = partition.earliest_seq, partition.visible_seq
        left = head + 1 - earliest
        response.succeed(Deleted(earliest - before, earliest, head, left, partition.bytes))

    upto = min(max(before_seq - 1, partition.log_start_offset), partition.high_watermark)
    _when_done(partition.delete_records(upto), done)
    return response


def _when_done(pending: Pending[Any], then: Callable[[Pending[Any]], None]) -> None:
    if pending.done:
        then(pending)
    else:
        pending.on_done = then


def _new_records(records: EncodedRecords, now: int) -> Iterator[NewRecord]:
    columns = zip(records.flags, records.nodes, records.tags, records.datas, strict=True)
    for position, (flags, node, tag, joined) in enumerate(columns):
        data, meta = split_data(flags, joined)
        try:
            fields = to_kafka(
                tag if flags & _HAS_TAG else None, node if flags & _HAS_NODE else None, data, meta
            )
        except FormatError as error:
            raise InvalidRequestError(f"record {position}: {error.reason}") from error
        yield NewRecord(now, *fields)


def _complete(
    partition: KafkaPartition, write: PendingAppend, records: int, pending: Pending[Produced]
) -> None:
    """The log has answered."""
    for keyed in write.keys:
        _keys(partition).abandon(keyed.key)
    if pending.error is not None:
        write.fail(pending.error)
        return
    first = pending.answer().base_offset + 1
    last = first + records - 1
    for keyed in write.keys:
        _keys(partition).remember(
            IdempotencyEntry(keyed.key, first, last, write.expires_ts, created=False)
        )
    write.succeed(Appended(first, last, partition.visible_seq, False, False))


# -- keys of writes


def _keys(partition: KafkaPartition) -> IdempotencyWindow:
    """What most partitions never need is made when it is first used."""
    if partition.keys is None:
        partition.keys = IdempotencyWindow()
    return partition.keys


def _remember(partition: KafkaPartition, write: PendingAppend, key: bytes) -> None:
    keys = _keys(partition)
    write.keys = [Keyed(key, 0, 0)]  # its offsets are not known before the log answers
    write.expires_ts = write.ts + partition.settings.idempotency_window_ms
    keys.expire(write.ts)
    keys.begin(key, 0, 0, created=False, expires_ts=write.expires_ts, waiting=write)


def _repeat(partition: KafkaPartition, key: bytes, now: int) -> PendingAppend | None:
    known = _keys(partition).lookup(key, now)
    if known is None:
        return None
    repeat = PendingAppend(known.first_seq, now)
    if isinstance(known.pending, PendingAppend):
        known.pending.follow(repeat)
    else:
        head = partition.visible_seq
        repeat.result = Appended(known.first_seq, known.last_seq, head, False, deduped=True)
    return repeat
