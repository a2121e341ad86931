"""Reading a log topic as Kafka does: batches made of its records, and offsets by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError, StorageError
from headwater.core.records import Record
from headwater.engine.kafka.errors import DamagedBatchError, OffsetRangeError
from headwater.engine.owner import Owner
from headwater.engine.partition import Batch
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.reader import ReadFilter, TopicReadPlan, read_records
from headwater.format.kafka.mapping import to_kafka_as_it_is
from headwater.format.kafka.records import NewRecord, encode_gapped
from headwater.model.loss import DAMAGED
from headwater.model.slots import DEAD
from headwater.store.checked_reads import RecordDamage
from headwater.store.segment import SegmentChangedError

RECORDS_MAX: Final = 10_000
"""Records of one batch that is made for a reader."""
SLOTS_AT_ONCE: Final = 65_536
ROUNDS_MAX: Final = 16
_EVERYTHING: Final = ReadFilter()


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
