"""A task: slices in, batches out. The same for batch and stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow
from pyspark.sql.datasource import InputPartition

from headwater.core.errors import InvalidPayloadError
from headwater.spark.source.fields import FieldParser, Parsed
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import GapSlice, Location, LostSeqs, ReadContext, data_loss
from headwater.spark.source.options import Invalid, Payload, SourceOptions
from headwater.spark.source.schema import GAP, INVALID_COLUMN, SourceColumns
from headwater.wire.frame_rows import Column, RecordColumns, integers, repeated, timestamps


class Assembler:
    """Rows as the batches Spark asked for: its columns in its order, to the last nullable. Made on
    the executor, for one task."""

    def __init__(self, columns: SourceColumns, invalid: Invalid) -> None:
        self._columns = columns
        self._invalid = invalid
        self._schema = columns.arrow()
        self._parser = FieldParser(columns.fields) if len(columns.fields) else None

    @cached_property
    def _fields_at(self) -> dict[str, int]:
        """Columns that are payload fields, with their places among those."""
        if self._columns.fields_column is not None:
            return {}
        return {name: position for position, name in enumerate(self._columns.fields.fieldNames())}

    def batch(self, topic: str, rows: RecordColumns) -> Any:
        parsed, fields = self._parse(topic, rows)
        made: dict[str, Column] = dict(fields)
        for field in self._schema:
            if field.name not in made:
                made[field.name] = self._envelope(field, topic, rows, parsed)
        arrays = [made[field.name] for field in self._schema]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def gap_batch(self, topic: str, gap: LostSeqs) -> Any:
        """One row that says what is lost."""
        gap_values = dict(
            zip(
                GAP.fieldNames(),
                (gap.gap_from, gap.gap_to, gap.reason, gap.missed_estimate),
                strict=True,
            )
        )
        values = {"topic": topic, "seq": gap.gap_from, "gap": gap_values}
        arrays = [
            pyarrow.array([values.get(field.name)], field.type)
            if field.name in values
            else pyarrow.nulls(1, field.type)
            for field in self._schema
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _envelope(
        self, field: Any, topic: str, rows: RecordColumns, parsed: Parsed | None
    ) -> Column:
        if field.name == "topic":
            return repeated(topic, len(rows))
        if field.name == INVALID_COLUMN and parsed is not None:
            return _reasons(parsed, len(rows))
        return _COLUMNS[field.name](self, rows, field.type)

    def _parse(self, topic: str, rows: RecordColumns) -> tuple[Parsed | None, dict[str, Column]]:
        if self._parser is None:
            return None, {}
        parsed = self._parser.parse(rows.binary("data"))
        if parsed.reasons and self._invalid is Invalid.FAIL:
            position, reason = next(iter(parsed.reasons.items()))
            raise InvalidPayloadError(
                f"the payload of seq {int(rows.seqs[position])} of topic {topic!r} is not what "
                f"option fields says: {reason}; with invalid=column such records come with null "
                "fields and the reason beside them, with invalid=null without it"
            )
        column = self._columns.fields_column
        if column is not None:
            if column not in self._schema.names:
                return parsed, {}
            arrow_type = self._schema.field(column).type
            return parsed, {column: self._parser.struct(parsed.values, arrow_type)}
        names = [name for name in self._fields_at if name in self._schema.names]
        if not names:
            return parsed, {}
        types = [self._schema.field(name).type for name in self._fields_at]
        made = self._parser.columns(parsed.values, types)
        return parsed, {name: made[self._fields_at[name]] for name in names}

    def _data(self, rows: RecordColumns, arrow_type: Any) -> Column:
        if self._columns.payload is Payload.STRING:
            return rows.text("data")
        if self._columns.payload is Payload.BINARY:
            return rows.binary("data")
        return _variants(rows.text("data"), rows, arrow_type)


def _reasons(parsed: Parsed, count: int) -> Column:
    if not parsed.reasons:
        return pyarrow.nulls(count, pyarrow.string())
    return pyarrow.array([parsed.reasons.get(at) for at in range(count)], pyarrow.string())


def _variants(texts: Column, rows: RecordColumns, arrow_type: Any) -> Column:
    """JSON as Spark's VARIANT, by PySpark's own builder: record by record, so not for bulk."""
    from pyspark.sql.types import VariantVal

    variants = []
    for position, text in enumerate(texts.to_pylist()):
        try:
            value = VariantVal.parseJson(text)
        except ValueError as error:
            raise InvalidPayloadError(
                f"the payload of seq {int(rows.seqs[position])} is not JSON: {error}"
            ) from error
        variants.append({"value": value.value, "metadata": value.metadata})
    return pyarrow.array(variants, arrow_type)


_COLUMNS: Final[dict[str, Callable[[Assembler, RecordColumns, Any], Column]]] = {
    "seq": lambda _, rows, __: integers(rows.seqs),
    "ts": lambda _, rows, __: timestamps(rows.ts_us),
    "node": lambda _, rows, __: rows.text("node"),
    "tag": lambda _, rows, __: rows.text("tag"),
    "data": Assembler._data,
    "meta": lambda _, rows, __: rows.text("meta"),
    "gap": lambda _, rows, arrow_type: pyarrow.nulls(len(rows), arrow_type),
}


class SlicePartition(InputPartition):
    """What one task reads."""

    def __init__(self, slices: list[Any]) -> None:
        self.slices = slices

    def __repr__(self) -> str:
        return f"SlicePartition({len(self.slices)} slices)"


@dataclass(slots=True)
class TaskReader:
    """Everything a task needs but its slices."""

    location: Location
    options: SourceOptions
    columns: SourceColumns
    filters: Filters

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SlicePartition):
            return  # Spark's own, when there was nothing to plan
        assembler = Assembler(self.columns, self.options.invalid)
        stored: list[Any] = []
        for each in partition.slices:
            if isinstance(each, GapSlice):
                yield from self._gap(assembler, each.topic, each.gap)
            else:
                stored.append(each)
        if not stored:
            return
        context = ReadContext(self.filters, self.options.verify, self.options.fail_on_data_loss)
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
        if self.options.fail_on_data_loss:
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
