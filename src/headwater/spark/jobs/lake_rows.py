"""What executors do for the job `lake`: fitter rows, and write files for three tables.

A row is a record that fits the table, a record that does not, or a gap in a topic. One pass over
the columns of a batch decides; only what does not fit is parsed one by one, for its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from headwater.core.errors import InvariantError
from headwater.spark.tables.file_writer import FilesWriter
from headwater.spark.tables.table import FileLayout

DATE: Final = "date"
"""The day of a record's ts, in UTC; a column of the table when it is partitioned by it."""
VARIANT: Final = "variant"
"""The payload as Spark parsed it; null where it is no JSON."""
INVALID: Final = "invalid"
GAP: Final = "gap"
TS: Final = pa.timestamp("us", "UTC")

ENVELOPE: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("seq", pa.int64()),
        ("ts", TS),
        ("node", pa.string()),
        ("tag", pa.string()),
        ("meta", pa.string()),
    ]
)
DEAD: Final = pa.schema(
    [
        *ENVELOPE,
        ("raw", pa.binary()),
        ("cause", pa.string()),
        ("batch", pa.int64()),
        ("status", pa.string()),
    ]
)
GAPS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("gap_from", pa.int64()),
        ("gap_to", pa.int64()),
        ("reason", pa.string()),
        ("missed_estimate", pa.int64()),
        ("batch", pa.int64()),
    ]
)
WRITTEN: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("partition", pa.string()),
        ("stats", pa.string()),
    ]
)


class Kind(Enum):
    """Which of the three tables a file is for."""

    MAIN = "main"
    DEAD = "dead"
    GAPS = "gaps"


class LetterStatus(Enum):
    """Of a dead letter. Its table only grows: that one was replayed is another row."""

    DEAD = "dead"
    REPLAYED = "replayed"


class LakePayload(Enum):
    """What becomes of the payload itself, beside the fields that are taken out of it."""

    TEXT = "text"
    BINARY = "binary"
    VARIANT = "variant"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LandTask:
    """Called with the rows of one partition; gives what files it wrote. Sent to executors."""

    run: str
    batch: int
    payload: LakePayload
    layouts: dict[Kind, FileLayout]
    columns: bytes
    """The main table's schema, serialized."""
    replayed: bool = False
    """Rows are dead letters: those that fit now are marked, the others stay what they are."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise InvariantError("rows are landed by tasks of Spark only")
        # The attempt is in the name: what another attempt left behind is never written over.
        name = f"{self.run}-{context.partitionId():05d}-{context.taskAttemptId()}"
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        schemas = {Kind.MAIN: schema, Kind.DEAD: DEAD, Kind.GAPS: GAPS}
        writers = {
            kind: FilesWriter(layout, schemas[kind], name) for kind, layout in self.layouts.items()
        }
        fitter = RowFitter(schema, self.payload, self.batch)
        try:
            for batch in batches:
                for kind, rows in fitter.sorted_out(pa.Table.from_batches([batch])):
                    self._write(writers, fitter, kind, rows)
            yield _described({kind: writer.finish() for kind, writer in writers.items()})
        except BaseException:
            for writer in writers.values():
                writer.abandon()
            raise

    def _write(
        self, writers: dict[Kind, FilesWriter], fitter: RowFitter, kind: Kind, rows: pa.Table
    ) -> None:
        if not self.replayed:
            writers[kind].write(rows)
        elif kind is Kind.MAIN:
            writers[kind].write(rows)
            writers[Kind.DEAD].write(fitter.marked_replayed(rows))


class RowFitter:
    """Which rows fit the columns of a table, and why the others do not."""

    def __init__(self, schema: pa.Schema, payload: LakePayload, batch: int) -> None:
        self._schema = schema
        self._payload = payload
        self._batch = batch

    def sorted_out(self, rows: pa.Table) -> Iterator[tuple[Kind, pa.Table]]:
        """The rows for each table, as that table has them."""
        if GAP in rows.column_names:
            is_gap = pc.is_valid(rows.column(GAP))
            if pc.any(is_gap).as_py():
                yield Kind.GAPS, self._gaps(rows.filter(is_gap))
                rows = rows.filter(pc.invert(is_gap))
        if not rows.num_rows:
            return
        columns, causes = self._columns(rows.combine_chunks())
        main = pa.Table.from_arrays(columns, schema=self._schema)
        if causes.null_count == len(causes):
            yield Kind.MAIN, main
            return
        fits = pc.is_null(causes)
        if pc.any(fits).as_py():
            yield Kind.MAIN, main.filter(fits)
        dead = pc.invert(fits)
        yield Kind.DEAD, self._dead(rows.filter(dead), causes.filter(dead))

    def marked_replayed(self, rows: pa.Table) -> pa.Table:
        """The rows of the dead letter table that say: this one is in the main table now."""
        count = rows.num_rows
        known = {name: rows.column(name) for name in ("topic", "seq", "ts")}
        status = pa.repeat(pa.scalar(LetterStatus.REPLAYED.value), count)
        batch = pa.repeat(pa.scalar(self._batch, pa.int64()), count)
        return _filled({**known, "batch": batch, "status": status}, DEAD, count)

    def _columns(self, rows: pa.Table) -> tuple[list[Any], Any]:
        """The table's columns, and for each row why it does not fit; null when it does."""
        count = rows.num_rows
        causes = pa.nulls(count, pa.string())
        if INVALID in rows.column_names:
            causes = _single(rows.column(INVALID))
        columns = []
        for field in self._schema:
            if field.name == "data" and self._payload is not LakePayload.NONE:
                column, wrong = self._payload_column(rows, field)
            elif field.name == DATE and DATE not in rows.column_names:
                column, wrong = pc.cast(_single(rows.column("ts")), pa.date32()), None
            elif field.name in rows.column_names:
                column, wrong = fitted(_single(rows.column(field.name)), field)
            else:
                column, wrong = pa.nulls(count, field.type), None
            columns.append(column)
            if wrong is not None:
                causes = pc.coalesce(causes, wrong)
        return columns, causes

    def _payload_column(self, rows: pa.Table, field: pa.Field) -> tuple[Any, Any]:
        raw = _single(rows.column("data"))
        if self._payload is LakePayload.BINARY:
            return raw, None
        if self._payload is LakePayload.TEXT:
            return as_text(raw)
        parsed = _single(rows.column(VARIANT))
        wrong = pc.and_(pc.is_null(parsed), pc.is_valid(raw))
        cause = pc.if_else(wrong, "the payload is not JSON", pa.scalar(None, pa.string()))
        names = [inner.name for inner in field.type]
        parts = [pc.struct_field(parsed, name) for name in names]
        return pa.StructArray.from_arrays(parts, names=names, mask=pc.is_null(parsed)), cause

    def _dead(self, rows: pa.Table, causes: Any) -> pa.Table:
        count = rows.num_rows
        known = {name: rows.column(name) for name in ENVELOPE.names}
        known["raw"] = rows.column("data")
        known["cause"] = causes
        known["batch"] = pa.repeat(pa.scalar(self._batch, pa.int64()), count)
        known["status"] = pa.repeat(pa.scalar(LetterStatus.DEAD.value), count)
        return _filled(known, DEAD, count)

    def _gaps(self, rows: pa.Table) -> pa.Table:
        gap = _single(rows.column(GAP))
        names = ("gap_from", "gap_to", "reason", "missed_estimate")
        known = {name: pc.struct_field(gap, name) for name in names}
        known["topic"] = rows.column("topic")
        known["batch"] = pa.repeat(pa.scalar(self._batch, pa.int64()), rows.num_rows)
        return _filled(known, GAPS, rows.num_rows)


def fitted(column: Any, field: pa.Field) -> tuple[Any, Any]:
    """A column as the table has it, and for each value that cannot be it, why.

    The table's type may be narrower than the one in the options, where the format could not
    widen it. A value fits when it comes back unchanged.
    """
    if column.type == field.type:
        return column, None
    try:
        return pc.cast(column, field.type, safe=True), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        narrow = pc.cast(column, field.type, safe=False)
        wrong = pc.fill_null(pc.not_equal(pc.cast(narrow, column.type, safe=False), column), False)
        cause = f"{field.name} does not fit the table's column, which is {field.type}"
        narrow = pc.if_else(wrong, pa.scalar(None, field.type), narrow)
        return narrow, pc.if_else(wrong, cause, pa.scalar(None, pa.string()))


def as_text(raw: Any) -> tuple[Any, Any]:
    """Bytes as text, and for those that are none, why."""
    try:
        return pc.cast(raw, pa.string()), None
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        causes: list[str | None] = []
        for value in raw.to_pylist():
            try:
                texts.append(None if value is None else value.decode())
                causes.append(None)
            except UnicodeDecodeError as error:
                texts.append(None)
                causes.append(f"the payload is not UTF-8: {error.reason} at byte {error.start}")
        return pa.array(texts, pa.string()), pa.array(causes, pa.string())


def _single(column: Any) -> Any:
    """A column of a table as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _filled(known: dict[str, Any], schema: pa.Schema, count: int) -> pa.Table:
    columns = []
    for field in schema:
        column = known.get(field.name)
        columns.append(pa.nulls(count, field.type) if column is None else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _described(files_by_kind: dict[Kind, list[Any]]) -> pa.RecordBatch:
    """Files as rows for the driver."""
    import msgspec

    rows = [
        {
            "kind": kind.value,
            "path": file.path,
            "rows": file.rows,
            "bytes": file.bytes,
            "partition": msgspec.json.encode(file.partition).decode(),
            "stats": file.stats,
        }
        for kind, files in files_by_kind.items()
        for file in files
    ]
    return pa.RecordBatch.from_pylist(rows, schema=WRITTEN)
