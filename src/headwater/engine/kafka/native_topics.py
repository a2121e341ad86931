"""A log topic as Kafka clients see it: one partition, whose offset is the seq less one.

Nothing is kept of its records: numbers come from the topic, a batch that is written becomes an
append of the engine, and records that are read become a batch. The index has the time of every
record, for offsets by time.
Gaps that deletes left are gaps between offsets, as after a compaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from headwater.config.topic import TopicType
from headwater.core import limits
from headwater.core.arrays import NDArray, numpy
from headwater.core.durability import Durability
from headwater.core.errors import (
    BatchTooLargeError,
    DamageError,
    InvalidRequestError,
    RecordTooLargeError,
    StorageError,
    UnavailableError,
)
from headwater.core.records import Record
from headwater.core.results import Appended
from headwater.core.units import KIB
from headwater.engine.drivers import OwnerDriver
from headwater.engine.engine import Engine
from headwater.engine.kafka.errors import DamagedBatchError, OffsetRangeError, TopicPolicyError
from headwater.engine.kafka.producers import Producers, SentBatch
from headwater.engine.kafka.topics import TOPIC_NAME
from headwater.engine.operation import Answered, AsOwner, InFiles, Operation
from headwater.engine.owner import Owner, Pending
from headwater.engine.partition import Batch, Produced, Repeated, Wakeup
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import delete_operation, ensure_loaded
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.reader import ReadFilter, TopicReadPlan, read_records
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.format.kafka.batch import BatchHeader, read_header
from headwater.format.kafka.mapping import to_kafka_as_it_is, to_native
from headwater.format.kafka.records import KafkaRecord, NewRecord, decode_records, encode_gapped
from headwater.model.loss import DAMAGED
from headwater.model.slots import DEAD
from headwater.store.pair import RecordDamage
from headwater.store.segment import SegmentChangedError

_KEY: Final = "kafka-producer"
PRODUCERS_MAX: Final = 10_000
IN_PASSING_BYTES_MAX: Final = 16 * KIB
"""A batch that is not compressed and not longer is decoded at once, by the owner."""
RECORDS_MAX: Final = 10_000
"""Records of one batch that is made for a reader."""
SLOTS_AT_ONCE: Final = 65_536
ROUNDS_MAX: Final = 16
_EVERYTHING: Final = ReadFilter()
ORGANISATION: Final = 1
"""Topics of the engine belong to the first organisation; others see only their own."""
_ID_PREFIX: Final = b"topic\x00\x00\x00"


class Turns:
    """Hands batches to the log in the order they came, in whatever order they are decoded."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Pending[bool]] = deque()

    def take(self) -> Pending[bool]:
        """Answered when it is this one's turn."""
        turn: Pending[bool] = Pending()
        if self._is_taken:
            self._waiting.append(turn)
        else:
            self._is_taken = True
            turn.succeed(True)
        return turn

    def end(self, owner: Owner) -> None:
        if self._waiting:
            turn = self._waiting.popleft()
            owner.post(lambda: turn.succeed(True))
        else:
            self._is_taken = False


class NativeAppender:
    __slots__ = ("_engine", "_producers", "_topic", "_turns")

    def __init__(self, engine: Engine, topic: Topic) -> None:
        self._engine = engine
        self._topic = topic
        self._turns = Turns()
        self._producers = Producers(PRODUCERS_MAX)
        """Of this run; keys in the log of the topic know what an earlier run took."""

    def refused(self, header: BatchHeader) -> None:
        if header.producer_id >= 0:
            self._producers.refuse(header)

    def produce_operation(self, batch: bytes, durability: Durability) -> Operation[Produced]:
        """The batch was checked by `check_batch`.

        Long and compressed batches are decoded by a reader; those behind them wait for their turn,
        so that a producer's batches stay in order. A turn ends when the log was given the records.
        """
        topic, header = self._topic, read_header(batch)
        turn: Pending[bool] = yield AsOwner(self._turns.take)
        yield Answered(lambda: turn)
        try:
            yield from ensure_loaded(topic)
            sent: SentBatch | None = yield AsOwner(lambda: self._sent_before(header))
            if sent is None:
                decode = partial(_decoded, batch)
                in_passing = not header.codec and len(batch) <= IN_PASSING_BYTES_MAX
                records: EncodedRecords = decode() if in_passing else (yield InFiles(decode))
                try:
                    write = self._start(header, records, durability)
                except UnavailableError:
                    self.refused(header)
                    raise
            elif sent.pending is not None:
                write = _follow(sent.pending)
            else:
                return Repeated(sent.base_offset, topic.last_ts, topic.earliest_seq - 1)
        finally:
            self._turns.end(self._engine.core.owner)
        appended: Appended = yield Answered(lambda: write)
        answer_type = Produced if sent is None and not appended.deduped else Repeated
        return answer_type(appended.first_seq - 1, topic.last_ts, topic.earliest_seq - 1)

    def _sent_before(self, header: BatchHeader) -> SentBatch | None:
        return None if header.producer_id < 0 else self._producers.check(header)

    def _start(
        self, header: BatchHeader, records: EncodedRecords, durability: Durability
    ) -> Pending[Appended]:
        key = None
        if header.producer_id >= 0:
            key = f"{_KEY}:{header.producer_id}:{header.producer_epoch}:{header.base_sequence}"
        write = self._engine.append(
            self._topic.name,
            records,
            idempotency_key=key,
            create=False,
            synced=durability is Durability.FSYNC,
        )
        if key is None:
            return write
        sent = self._producers.take(header, write.first_seq - 1, None if write.done else write)
        if write.done:
            return write
        response = Write(write.topic, write.first_seq, write.ts)
        write.on_done = partial(self._complete, header, sent, response)
        return response

    def _complete(
        self, header: BatchHeader, sent: SentBatch, response: Write, write: Pending[Appended]
    ) -> None:
        sent.pending = None
        if write.error is not None:
            self._producers.give_up(header, sent)
            response.fail(write.error)
        else:
            response.succeed(write.answer())


def _decoded(batch: bytes) -> EncodedRecords:
    return encoded(decode_records(batch))


def _follow(write: Write) -> Write:
    if write.done:
        return write
    follower = Write(write.topic, write.first_seq, write.ts)
    write.follow(follower)
    return follower


def encoded(records: Sequence[KafkaRecord]) -> EncodedRecords:
    """Records as the engine takes them. One that is over a limit refuses all of them."""
    if len(records) > limits.BATCH_RECORDS_MAX:
        raise BatchTooLargeError(
            f"a write takes up to {limits.BATCH_RECORDS_MAX} records, not {len(records)}"
        )
    batch = EncodedRecords([], [], [], [])
    for position, record in enumerate(records):
        fields = to_native(record.key, record.value, record.headers)
        joined, meta = fields.joined, fields.meta
        if len(joined) > limits.RECORD_BYTES_MAX:
            raise RecordTooLargeError(
                f"record {position} has {len(joined)} bytes; "
                f"at most {limits.RECORD_BYTES_MAX} are taken"
            )
        if meta is not None and len(meta) > limits.META_BYTES_MAX:
            raise RecordTooLargeError(
                f"record {position}: headers and key have over {limits.META_BYTES_MAX} bytes"
            )
        if len(record.headers) > limits.META_KEYS_MAX:
            raise InvalidRequestError(f"record {position} has over {limits.META_KEYS_MAX} headers")
        batch.flags.append(fields.flags)
        batch.nodes.append(fields.node)
        batch.tags.append(fields.tag)
        batch.datas.append(joined)
        batch.size += len(fields.node) + len(fields.tag) + len(joined)
    return batch


class NativeFetch:
    """What a fetch of a log topic will read. Made by the owner, read by any other thread, or by
    the owner where no file is needed."""

    def __init__(self, core: EngineCore, topic: Topic, offset: int, max_bytes: int) -> None:
        self._counters = core.counters
        self._owner = core.owner
        self._topic = topic
        self.high_watermark = topic.visible_seq
        self.log_start_offset = topic.earliest_seq - 1
        self.offset = offset
        self._bytes_max = max(max_bytes, 1)
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetRangeError(
                f"offset {offset}; there are {self.log_start_offset} to {self.high_watermark}",
            )
        self._is_empty = offset == self.high_watermark
        self._plan: TopicReadPlan | None = None
        if topic.loaded and not self._is_empty:
            self._plan = self._plan_now()
        self.skips_damaged = False

    def _plan_now(self) -> TopicReadPlan:
        plan = self._topic.plan(self.offset, RECORDS_MAX, self._bytes_max)
        assert isinstance(plan, TopicReadPlan)
        self._counters.reads += 1
        self._counters.tombstones += plan.selection.tombstone is not None
        return plan

    @property
    def needs_files(self) -> bool:
        if self._is_empty:
            return False
        return self._plan is None or self._plan.needs_files

    def read(self) -> list[Batch]:
        if self._is_empty:
            return []
        owner = self._owner
        if self._plan is None:
            _load(self._owner, self._topic)
            self._plan = owner.call(self._plan_now)
        for _ in range(ROUNDS_MAX):
            plan = self._plan
            try:
                records, findings = read_records(plan, _EVERYTHING)
            except SegmentChangedError:
                self._plan = owner.call(self._plan_now)
                continue
            if findings:
                self._plan = owner.call(partial(self._plan_again, plan, findings))
                continue
            self._refuse_damaged(plan)
            return self._batches(records, plan.selection.next_from_seq)
        raise StorageError(f"{self._topic.name!r} is being rewritten")

    def _plan_again(self, plan: TopicReadPlan, findings: list[RecordDamage]) -> TopicReadPlan:
        """It ends before what is damaged now, or reports it."""
        plan.note_damage(findings)
        return self._plan_now()

    def _refuse_damaged(self, plan: TopicReadPlan) -> None:
        """What is lost for another reason is a gap, as in a compacted topic. Damage is not."""
        gap = plan.selection.tombstone
        if gap is None or gap.reason != DAMAGED or self.skips_damaged:
            return
        where = DamageError(
            f"the records at offsets {gap.gap_from - 1} to {gap.gap_to - 1} of "
            f"{self._topic.name!r} are damaged",
            advice="restore a backup, delete them, or let consumers pass them with "
            "kafka_skip_damaged",
        )
        raise DamagedBatchError(gap.gap_from - 1, gap.gap_to, where) from where

    def _batches(self, records: list[Record], next_from_seq: int) -> list[Batch]:
        """One batch, whose last offset also covers offsets behind its records that have none."""
        if next_from_seq <= self.offset:
            return []
        last_delta = next_from_seq - 1 - self.offset
        deltas = [record.seq - 1 - self.offset for record in records]
        return [
            encode_gapped(self.offset, deltas, [_as_kafka(each) for each in records], last_delta)
        ]


def _as_kafka(record: Record) -> NewRecord:
    fields = to_kafka_as_it_is(
        None if record.tag is None else record.tag.encode(),
        None if record.node is None else record.node.encode(),
        record.data_json,
        record.meta_json,
    )
    return NewRecord(record.ts, *fields)


def _load(owner: Owner, topic: Topic) -> None:
    """Not as the owner: load the index of a topic that was not used until now."""
    if not topic.loaded:
        owner.call(topic.read_index())


class NativeLookup:
    """An offset in a topic, by time. The index has the time of every record."""

    def __init__(
        self, owner: Owner, topic: Topic, search: Callable[[Topic], tuple[int, int] | None]
    ) -> None:
        self._owner = owner
        self._topic = topic
        self._search = search

    def read(self) -> tuple[int, int] | None:
        """Not as the owner: offset and time, if there is such a record."""
        _load(self._owner, self._topic)
        return self._owner.call(lambda: self._search(self._topic))


def first_at(timestamp_ms: int) -> Callable[[Topic], tuple[int, int] | None]:
    """The first record that is not older."""

    def search(topic: Topic) -> tuple[int, int] | None:
        for start, times, live in _slots(topic):
            matches = numpy.flatnonzero(live & (times >= max(timestamp_ms, 0)))
            if len(matches):
                return start + int(matches[0]) - 1, int(times[matches[0]])
        return None

    return search


def newest(topic: Topic) -> tuple[int, int] | None:
    """The first of the records with the latest time."""
    result: tuple[int, int] | None = None
    for start, times, live in _slots(topic):
        if live.any():
            best = int(numpy.where(live, times, 0).argmax())
            if result is None or int(times[best]) > result[1]:
                result = start + best - 1, int(times[best])
    return result


def _slots(topic: Topic) -> Iterator[tuple[int, NDArray[Any], NDArray[numpy.bool_]]]:
    """Times of the records, and which of them are there, with the first seq of each block."""
    index, end = topic.log.index, topic.log.visible_seq + 1
    for start in range(topic.log.earliest_seq, end, SLOTS_AT_ONCE):
        slots = index.peek(start, min(start + SLOTS_AT_ONCE, end))
        yield start, slots["ts"], slots["flags_check"] & DEAD == 0


def is_shown(topic: Topic) -> bool:
    """Queues are worked off and not read."""
    return topic.log.settings.type is TopicType.LOG and topic.broken is None


class KafkaNames:
    """What log topics are called among Kafka's, which may have no colon in their names: those that
    have one are not shown; but the transitions of the machines are, with a dot instead."""

    def __init__(self, transitions_topic: str | None) -> None:
        self._kept: dict[str, str] = {}
        """Kafka's name of a topic to its own."""
        if transitions_topic is not None and not _is_kafka_name(transitions_topic):
            self._kept[transitions_topic.replace(":", ".")] = transitions_topic

    def of(self, name: str) -> str | None:
        """Kafka's name for a log topic; None when it has none."""
        if _is_kafka_name(name):
            return name
        return next((kafka for kafka, own in self._kept.items() if own == name), None)

    def own(self, kafka_name: str) -> str | None:
        """The log topic this name is kept for, whether it is there or not."""
        return self._kept.get(kafka_name)


def _is_kafka_name(name: str) -> bool:
    return TOPIC_NAME.fullmatch(name) is not None


class NativeTopic:
    __slots__ = ("name", "native", "partitions", "topic_id")
    org = ORGANISATION
    altered = None

    def __init__(self, native: Topic, name: str, engine: Engine, driver: OwnerDriver) -> None:
        self.native = native
        self.name = name
        self.topic_id = _ID_PREFIX + native.topic_id.to_bytes(8, "big")
        self.partitions = [NativePartition(self, engine, driver)]

    @property
    def configs(self) -> dict[str, str]:
        """As its settings are by now."""
        settings = self.native.log.settings
        return {
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(settings.ttl_ms or -1),
            "retention.bytes": str(settings.cap_bytes or -1),
        }

    @property
    def epoch(self) -> int:
        return self.native.epoch

    @property
    def dropped(self) -> bool:
        return self.native.dropped

    def _refuse(self, *_: Any) -> NoReturn:
        raise TopicPolicyError(
            f"{self.name!r} is a topic of Headwater's own; change it over HTTP or headwater topic",
        )

    drop = grow = alter = _refuse


class NativePartition:
    __slots__ = ("_appender", "_driver", "_engine", "_native", "topic")

    def __init__(self, topic: NativeTopic, engine: Engine, driver: OwnerDriver) -> None:
        self.topic = topic
        self._native = topic.native
        self._engine = engine
        self._driver = driver
        self._appender = NativeAppender(engine, topic.native)

    @property
    def high_watermark(self) -> int:
        return self._native.visible_seq

    @property
    def log_start_offset(self) -> int:
        return self._native.earliest_seq - 1

    @property
    def bytes(self) -> int:
        return self._native.live_bytes

    @property
    def waiters(self) -> set[Wakeup]:
        return self._native.waiters

    def append(
        self, batch: Batch, durability: Durability, _header: BatchHeader | None = None
    ) -> Pending[Produced]:
        operation = self._appender.produce_operation(memoryview(batch).tobytes(), durability)
        return self._driver.begin(operation)

    def refused(self, header: BatchHeader) -> None:
        self._appender.refused(header)

    def plan_fetch(self, offset: int, max_bytes: int) -> NativeFetch:
        return NativeFetch(self._engine.core, self._native, offset, max_bytes)

    def find_timestamp(self, timestamp_ms: int) -> NativeLookup:
        return NativeLookup(self._engine.core.owner, self._native, first_at(timestamp_ms))

    def find_newest(self) -> NativeLookup:
        return NativeLookup(self._engine.core.owner, self._native, newest)

    def delete_records(self, before_offset: int) -> Pending[int]:
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetRangeError(f"there are {self.high_watermark} records")
        return self._driver.begin(self._delete_operation(before_offset))

    def _delete_operation(self, before_offset: int) -> Operation[int]:
        yield from delete_operation(self._engine, self._native.name, before_offset + 1, None)
        return self.log_start_offset


def native_id(topic_id: bytes) -> int | None:
    """The engine's number of a topic that clients know by these sixteen bytes."""
    if not topic_id.startswith(_ID_PREFIX):
        return None
    return int.from_bytes(topic_id[len(_ID_PREFIX) :], "big")
