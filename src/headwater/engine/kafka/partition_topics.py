"""A partition of a Kafka topic in the shape of a topic, so that every protocol can read it.

`$seq` is the offset plus one. Nothing is kept here: the numbers come from the partition, its
records are decoded when they are read, and become frames as any other topic has them. Readers of
frames (JSON, Arrow, streams) need to know nothing of Kafka.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy

from headwater.config.topic import DEFAULT_TOPIC_SETTINGS
from headwater.core.errors import InvariantError, StorageError
from headwater.core.results import Tombstone
from headwater.core.units import KIB
from headwater.engine.kafka.errors import DamagedBatchError, OffsetRangeError
from headwater.engine.kafka.fetch_plan import FetchPlan
from headwater.engine.kafka.partition import KafkaPartition, KafkaTopic
from headwater.engine.partition import Wakeup
from headwater.engine.state.topic import Topic
from headwater.engine.topics.reader import FrameRun, Reader, ReadPlan
from headwater.format.kafka.batch import BatchError, read_header
from headwater.format.kafka.batch_frames import BatchFrames
from headwater.format.kafka.partition_names import partition_name
from headwater.model.loss import DAMAGED, RECREATED
from headwater.model.selection import Selection
from headwater.model.topic import TopicLog
from headwater.store.checked_reads import RecordDamage
from headwater.store.segment import SegmentChangedError
from headwater.store.topic_files import TopicFiles

if TYPE_CHECKING:
    from headwater.engine.kafka.partition_space import PartitionSpace

LOG_START: Final = "log_start"
"""Why records are gone: retention or DeleteRecords moved the start of the log."""
IN_PASSING_BYTES_MAX: Final = 32 * KIB
"""Batches that are in memory and not longer are decoded at once."""
_NO_SEQS: Final = numpy.empty(0, numpy.int64)


class PartitionLog(TopicLog):
    """The numbers of a partition. What is set is forgotten: the partition knows them."""

    __slots__ = ("_partition",)

    def __init__(self, partition: KafkaPartition) -> None:
        self._partition = partition
        # Differs from that of an earlier topic of its name, and grows: as an epoch has to.
        super().__init__(DEFAULT_TOPIC_SETTINGS, partition.topic.made_id + 1)

    @property
    def visible_seq(self) -> int:
        return self._partition.high_watermark

    @visible_seq.setter
    def visible_seq(self, _seq: int) -> None: ...

    @property
    def head_seq(self) -> int:
        return self._partition.high_watermark

    @head_seq.setter
    def head_seq(self, _seq: int) -> None: ...

    @property
    def evict_floor(self) -> int:
        return self._partition.log_start_offset + 1

    @evict_floor.setter
    def evict_floor(self, _seq: int) -> None: ...

    @property
    def earliest_seq(self) -> int:
        return self._partition.log_start_offset + 1

    @property
    def count(self) -> int:
        return self._partition.high_watermark - self._partition.log_start_offset


class PartitionTopic(Topic):
    """One partition, as its organisation sees it. Made at its first use."""

    __slots__ = ("kafka_topic", "partition", "space")
    is_partition = True

    def __init__(
        self, space: PartitionSpace, kafka_topic: KafkaTopic, partition: KafkaPartition
    ) -> None:
        name = partition_name(kafka_topic.name, partition.index)
        super().__init__(_id_of(kafka_topic, partition), name, PartitionLog(partition), _no_files)
        self.space = space
        self.kafka_topic = kafka_topic
        self.partition = partition

    @property
    def address(self) -> str:
        return f"{self.space.organisation}/{self.name}"

    @property
    def dropped(self) -> bool:
        return self.kafka_topic.dropped

    @dropped.setter
    def dropped(self, _dropped: bool) -> None: ...

    @property
    def waiters(self) -> set[Wakeup]:
        return self.partition.waiters

    @waiters.setter
    def waiters(self, _waiters: set[Wakeup]) -> None: ...


def _id_of(topic: KafkaTopic, partition: KafkaPartition) -> int:
    """Different from every other, also from one made later under the same name."""
    identity = topic.topic_id + partition.index.to_bytes(4, "little")
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little")


def _no_files() -> TopicFiles:
    raise InvariantError("a partition of a Kafka topic has no files of its own")


@dataclass(slots=True)
class PartitionPlan(ReadPlan):
    """Which batches to read. What they hold is known when they are read: then the selection is."""

    fetch: FetchPlan | None = None
    batches: list[bytes | memoryview] | None = None
    """Those that are in memory; None where files have to be read."""
    first_offset: int = 0
    limit: int = 0

    @property
    def needs_files(self) -> bool:
        """Or time: decoding much, or what is compressed, is not for the owner."""
        if self.fetch is None:
            return False
        if self.batches is None or sum(map(len, self.batches)) > IN_PASSING_BYTES_MAX:
            return True
        return any(read_header(batch).codec for batch in self.batches)

    @property
    def waits_for_files(self) -> bool:
        return self.needs_files

    @property
    def is_current(self) -> bool:
        return True

    @property
    def cold_segments(self) -> int:
        return 0


def plan_partition(
    plan_fetch: Callable[[KafkaPartition, int, int], FetchPlan],
    topic: PartitionTopic,
    from_seq: int,
    limit: int,
    bytes_max: int,
) -> PartitionPlan:
    """As the owner: what a reader with this cursor gets next."""
    log = topic.log
    head, earliest = log.visible_seq, log.earliest_seq
    tombstone = _tombstone(from_seq, earliest, head)
    start = earliest if tombstone is not None else from_seq + 1
    if start > head:
        selection = Selection(_NO_SEQS, start - 1, True, tombstone, 0)
        return PartitionPlan(topic, selection, head, earliest)
    selection = Selection(_NO_SEQS, start - 1, False, tombstone, 0)
    fetch = plan_fetch(topic.partition, start - 1, bytes_max)
    return PartitionPlan(
        topic,
        selection,
        head,
        earliest,
        fetch=fetch,
        batches=None if fetch.needs_files else fetch.read(),
        first_offset=start - 1,
        limit=limit,
    )


def _tombstone(from_seq: int, earliest: int, head: int) -> Tombstone | None:
    if from_seq > head:
        return Tombstone(1, earliest - 1, RECREATED, earliest - 1, earliest, head)
    if from_seq + 1 < earliest:
        gone = earliest - 1 - from_seq
        return Tombstone(from_seq + 1, earliest - 1, LOG_START, gone, earliest, head)
    return None


class PartitionReader(Reader):
    """Reads plans of partitions: batches in, frames out."""

    def runs(self, plan: ReadPlan) -> tuple[list[FrameRun], list[RecordDamage]]:
        """In any thread. Notes in the plan how far it came."""
        assert isinstance(plan, PartitionPlan)
        if plan.fetch is None:
            return [], []
        try:
            batches = _batches(plan.fetch) if plan.batches is None else plan.batches
        except DamagedBatchError as error:
            _report_damage(plan, error)
            return [], []
        builder = BatchFrames(plan.first_offset, plan.limit)
        for batch in batches:
            try:
                builder.add(batch)
            except BatchError as error:
                if len(builder):
                    break  # first what is before it
                raise _unreadable(plan.topic.name, batch, error) from error
            if builder.is_full:
                break
        count = len(builder)
        if not count:
            raise StorageError(f"there is nothing at seq {plan.first_offset + 1} of a partition")
        frames = builder.frames()
        last = plan.first_offset + count
        seqs = numpy.arange(plan.first_offset + 1, last + 1, dtype=numpy.int64)
        plan.selection = plan.selection._replace(
            seqs=seqs, next_from_seq=last, caught_up=last >= plan.head_seq, records_scanned=count
        )
        return [FrameRun(frames.buffer, numpy.array(frames.offsets, numpy.int64), False)], []


def _report_damage(plan: PartitionPlan, error: DamagedBatchError) -> None:
    """A tombstone for what cannot be read. An answer has one tombstone: the earlier one first."""
    if plan.selection.tombstone is not None:
        return
    first, last, head = error.first_offset + 1, error.end_offset, plan.head_seq
    gap = Tombstone(first, last, DAMAGED, last + 1 - first, plan.earliest_seq, head)
    plan.selection = plan.selection._replace(
        next_from_seq=last, caught_up=last >= head, tombstone=gap
    )


def _batches(fetch: FetchPlan) -> list[bytes | memoryview]:
    try:
        return fetch.read()
    except OffsetRangeError as error:
        raise SegmentChangedError("the start of the log moved on") from error


def _unreadable(name: str, batch: bytes | memoryview, error: BatchError) -> StorageError:
    header = read_header(batch)
    last_seq = header.base_offset + header.last_offset_delta + 1
    return StorageError(
        f"{name!r}: what a producer wrote as seqs {header.base_offset + 1} to {last_seq} is a "
        f"sound batch without readable records ({error.reason})",
        advice=f"read on with from_seq {last_seq}",
    )
