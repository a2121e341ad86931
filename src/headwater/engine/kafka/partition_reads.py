"""Frames from a partition of Kafka's log, for readers that know nothing of Kafka.

`$seq` is the offset plus one. A plan says which batches to read; they become frames, as any topic
has them, when it is read, and only then it is known which records they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater.core.arrays import numpy
from headwater.core.clock import Clock
from headwater.core.errors import StorageError
from headwater.core.results import Tombstone
from headwater.core.units import KIB
from headwater.engine.kafka.errors import DamagedBatchError, OffsetRangeError
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.partition import Batch, BatchPlan, FrameRun
from headwater.format.kafka.batch import BatchError, read_header
from headwater.format.kafka.mapping import BatchFrames
from headwater.model.loss import DAMAGED, RECREATED
from headwater.model.selection import Selection
from headwater.store.pair import RecordDamage
from headwater.store.segment import SegmentChangedError

LOG_START: Final = "log_start"
"""Why records are gone: retention or DeleteRecords moved the start of the log."""
IN_PASSING_BYTES_MAX: Final = 32 * KIB
"""Batches that are in memory and not longer are decoded at once."""


@dataclass(slots=True)
class PartitionPlan:
    name: str
    selection: Selection
    head_seq: int
    earliest_seq: int
    limit: int = 0
    fetch: BatchPlan | None = None
    """None at the end: there is nothing to read."""
    batches: list[Batch] | None = None
    """Those that are in memory; None where files have to be read."""
    cold_segments = 0

    @property
    def waits_for_files(self) -> bool:
        """Or takes time: decoding much, or what is compressed, is not for the owner."""
        if self.fetch is None:
            return False
        if self.batches is None or sum(map(len, self.batches)) > IN_PASSING_BYTES_MAX:
            return True
        return any(read_header(batch).codec for batch in self.batches)

    def note_damage(self, _findings: Sequence[RecordDamage]) -> bool:
        """A batch that is damaged is noted by the fetch that finds it."""
        return False

    def runs(self) -> tuple[list[FrameRun], list[RecordDamage]]:
        """In any thread. Notes in the plan how far it came."""
        if self.fetch is None:
            return [], []
        try:
            batches = _batches(self.fetch) if self.batches is None else self.batches
        except DamagedBatchError as error:
            self._report_damage(error)
            return [], []
        first_offset = self.selection.next_from_seq
        builder = BatchFrames(first_offset, self.limit)
        for batch in batches:
            try:
                builder.add(batch)
            except BatchError as error:
                if len(builder):
                    break  # first what is before it
                raise _unreadable(self.name, batch, error) from error
            if builder.is_full:
                break
        count = len(builder)
        if not count:
            raise StorageError(f"there is nothing at seq {first_offset + 1} of a partition")
        frames = builder.frames()
        last = first_offset + count
        seqs = numpy.arange(first_offset + 1, last + 1, dtype=numpy.int64)
        self.selection = self.selection._replace(
            seqs=seqs, next_from_seq=last, caught_up=last >= self.head_seq, records_scanned=count
        )
        return [FrameRun(frames.buffer, numpy.array(frames.offsets, numpy.int64), False)], []

    def _report_damage(self, error: DamagedBatchError) -> None:
        """A tombstone for what cannot be read. An answer has one tombstone: the earlier first."""
        if self.selection.tombstone is not None:
            return
        first, last, head = error.first_offset + 1, error.end_offset, self.head_seq
        gap = Tombstone(first, last, DAMAGED, last + 1 - first, self.earliest_seq, head)
        self.selection = self.selection._replace(
            next_from_seq=last, caught_up=last >= head, tombstone=gap
        )


def plan_partition(
    clock: Clock, partition: KafkaPartition, from_seq: int, limit: int, bytes_max: int
) -> PartitionPlan:
    """As the owner: what a reader with this cursor gets next."""
    partition.touch(clock.wall_ms())
    head, earliest = partition.visible_seq, partition.earliest_seq
    tombstone = _tombstone(from_seq, earliest, head)
    first_offset = from_seq if tombstone is None else earliest - 1
    at_end = first_offset >= head
    selection = Selection(numpy.empty(0, numpy.int64), first_offset, at_end, tombstone, 0)
    plan = PartitionPlan(partition.name, selection, head, earliest, limit)
    if not at_end:
        plan.fetch = partition.plan_fetch(first_offset, bytes_max, limit)
        plan.batches = None if plan.fetch.needs_files else plan.fetch.read()
    return plan


def _tombstone(from_seq: int, earliest: int, head: int) -> Tombstone | None:
    if from_seq > head:
        return Tombstone(1, earliest - 1, RECREATED, earliest - 1, earliest, head)
    if from_seq + 1 < earliest:
        gone = earliest - 1 - from_seq
        return Tombstone(from_seq + 1, earliest - 1, LOG_START, gone, earliest, head)
    return None


def _batches(fetch: BatchPlan) -> list[Batch]:
    try:
        return fetch.read()
    except OffsetRangeError as error:
        raise SegmentChangedError("the start of the log moved on") from error


def _unreadable(name: str, batch: Batch, error: BatchError) -> StorageError:
    header = read_header(batch)
    last_seq = header.base_offset + header.last_offset_delta + 1
    return StorageError(
        f"{name!r}: what a producer wrote as seqs {header.base_offset + 1} to {last_seq} is a "
        f"sound batch without readable records ({error.reason})",
        advice=f"read on with from_seq {last_seq}",
    )
