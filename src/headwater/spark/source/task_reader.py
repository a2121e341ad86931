"""A task: slices in, batches out. The same for batch and stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from headwater.spark.source.batch_assembler import Assembler, LostSeqs
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import Location, ReadContext
from headwater.spark.source.options import Invalid, SourceOptions
from headwater.spark.source.schema import SourceColumns
from headwater.spark.source.splits import GapSlice, data_loss


class SlicePartition(InputPartition):
    """What one task reads."""

    def __init__(self, slices: list[Any]) -> None:
        self.slices = slices

    def __repr__(self) -> str:
        return f"SlicePartition({len(self.slices)} slices)"


@dataclass(slots=True)
class TaskReader:
    """Everything a task needs but its slices. Sent to executors once."""

    location: Location
    columns: SourceColumns
    filters: Filters
    invalid: Invalid
    verify: bool
    fail_on_data_loss: bool

    @classmethod
    def of(
        cls, location: Location, options: SourceOptions, columns: SourceColumns, filters: Filters
    ) -> TaskReader:
        return cls(
            location, columns, filters, options.invalid, options.verify, options.fail_on_data_loss
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SlicePartition):
            return  # Spark's own, when there was nothing to plan
        assembler = Assembler(self.columns, self.invalid)
        stored: list[Any] = []
        for each in partition.slices:
            if isinstance(each, GapSlice):
                yield from self._gap(assembler, each.topic, each.gap)
            else:
                stored.append(each)
        if not stored:
            return
        context = ReadContext(self.filters, self.verify, self.fail_on_data_loss)
        for topic, read in self.location.read(stored, context):
            if isinstance(read, LostSeqs):
                yield from self._gap(assembler, topic, read)
                continue
            mask = self.filters.mask(read)
            rows = read if mask is None else read.kept(mask)
            if len(rows):
                yield assembler.batch(topic, rows)

    def _gap(self, assembler: Assembler, topic: str, gap: LostSeqs) -> Iterator[Any]:
        clipped = self._clipped(gap)
        if clipped is None:
            return
        if self.fail_on_data_loss:
            raise data_loss(topic, clipped)
        if self.filters.wants_gap(clipped.gap_from):
            yield assembler.gap_batch(topic, clipped)

    def _clipped(self, gap: LostSeqs) -> LostSeqs | None:
        """As much of it as lies in what was asked for."""
        low = max(gap.gap_from, self.filters.seq.low)
        high = (
            self.filters.seq.high if gap.gap_to is None else min(gap.gap_to, self.filters.seq.high)
        )
        if not self.filters.seq.meets(low, high):
            return None
        if low == gap.gap_from and (gap.gap_to is None or high == gap.gap_to):
            return gap
        missed = min(gap.missed_estimate or 0, high - low + 1)
        return LostSeqs(low, None if gap.gap_to is None else high, gap.reason, missed)
