"""Inspection of every row of a backfill, on the executors, before anything is written.

Counts them, finds those that can be no record, and takes a checksum over all of them that does
not depend on their order, so that the same rows are known again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core import limits
from headwater.spark.jobs.origins import CARRIED, DATA, FILE, NODE, TAG, UNFIT
from headwater.spark.runtime.arrow_schema import to_spark
from headwater.spark.sink.rows import all_valid, json_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

UNFIT_SHOWN: Final = 10
HASH: Final = "$hash"
_CHARACTERS_SHOWN: Final = 80
_LIMITS: Final = {
    DATA: limits.RECORD_BYTES_MAX,
    TAG: limits.TAG_BYTES_MAX,
    NODE: limits.NODE_BYTES_MAX,
}
_LINE: Final = pa.schema(
    [
        ("file", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("mix", pa.int64()),
        ("unfit", pa.int64()),
        ("text", pa.string()),
        ("why", pa.string()),
    ]
)
_one = msgspec.json.Decoder(msgspec.Raw)


class UnfitRow(msgspec.Struct, frozen=True):
    """The first row of a file that can be no record."""

    file: str
    text: str
    why: str


class RowInspection(msgspec.Struct, frozen=True):
    files: tuple[str, ...]
    rows: int
    bytes: int
    """Of payloads that are text; 0 where columns become them."""
    mix: int
    """A checksum over all rows, whatever their order."""
    unfit: int
    unfit_rows: tuple[UnfitRow, ...]


def inspect_rows(rows: DataFrame) -> RowInspection:
    """Every row once."""
    from pyspark.sql import functions as f

    lines = _by_python(rows) if _has_texts(rows) else _by_java(rows)
    totals = lines.groupBy("file").agg(
        f.sum("rows").alias("rows"),
        f.sum("bytes").alias("bytes"),
        f.bit_xor("mix").alias("mix"),
        f.sum("unfit").alias("unfit"),
        f.first(f.when(f.col("unfit") > 0, f.struct("text", "why")), ignorenulls=True).alias("at"),
    )
    files = totals.orderBy("file").collect()
    unfit = [UnfitRow(row["file"], *row["at"]) for row in files if row["at"]]
    mix = 0
    for row in files:
        mix ^= row["mix"]
    return RowInspection(
        tuple(row["file"] for row in files),
        sum(row["rows"] for row in files),
        sum(row["bytes"] for row in files),
        mix,
        sum(row["unfit"] for row in files),
        tuple(unfit[:UNFIT_SHOWN]),
    )


def _has_texts(rows: DataFrame) -> bool:
    """Is there a payload that says it is JSON, so that it must be parsed?"""
    return DATA in rows.columns and rows.schema[DATA].dataType.typeName() == "string"


def _checksum(rows: DataFrame) -> Column:
    from pyspark.sql import functions as f

    names = [name for name in rows.columns if name not in CARRIED]
    return f.xxhash64(*(_hashable(name, rows.schema[name].dataType) for name in names))


def _hashable(name: str, kind: DataType) -> Column:
    """Spark takes no checksum of maps and variants, nor of what holds them."""
    from pyspark.sql import functions as f

    column = f.col(f"`{name}`")
    type_name = kind.simpleString()
    return f.to_json(f.struct(column)) if "map<" in type_name or "variant" in type_name else column


def _by_java(rows: DataFrame) -> DataFrame:
    """Columns have types, so only lengths and what the reader complained of can be wrong."""
    from pyspark.sql import functions as f

    reasons: list[Column] = [f.col(f"`{UNFIT}`")]
    for name, most in _LIMITS.items():
        if name in rows.columns and rows.schema[name].dataType.typeName() in ("string", "binary"):
            too_long = f.octet_length(name) > most
            reasons.append(f.when(too_long, f.lit(_too_long(name, most))))
    shown = [f.col(f"`{name}`") for name in rows.columns if name not in CARRIED]
    inspected = rows.select(
        f.col(f"`{FILE}`").alias("file"),
        _checksum(rows).alias("mix"),
        f.coalesce(*reasons).alias("why"),
        f.substring(f.to_json(f.struct(*shown)), 1, _CHARACTERS_SHOWN).alias("text"),
    )
    bad = f.col("why").isNotNull()
    return inspected.groupBy("file").agg(
        f.count("*").alias("rows"),
        f.lit(0).cast("long").alias("bytes"),
        f.bit_xor("mix").alias("mix"),
        f.count("why").alias("unfit"),
        f.first(f.when(bad, f.col("text")), ignorenulls=True).alias("text"),
        f.first("why", ignorenulls=True).alias("why"),
    )


def _by_python(rows: DataFrame) -> DataFrame:
    """Texts are read as JSON by the parser the server reads them with."""
    from pyspark.sql import functions as f

    wanted = [name for name in (*_LIMITS, FILE, UNFIT) if name in rows.columns]
    inspected = rows.select(*(f.col(f"`{name}`") for name in wanted), _checksum(rows).alias(HASH))
    return inspected.mapInArrow(_inspect_batches, to_spark(_LINE))


def _inspect_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One line for each file of each batch, with its first row that does not fit."""
    for batch in batches:
        names = batch.column(FILE)
        reasons = _reasons(batch)
        lines = [
            _line(name, batch.filter(mine), reasons.filter(mine))
            for name in pc.unique(names).to_pylist()
            for mine in (pc.equal(names, name),)
        ]
        yield pa.RecordBatch.from_pylist(lines, schema=_LINE)


def _line(name: str, rows: pa.RecordBatch, reasons: pa.Array) -> dict[str, Any]:
    texts = rows.column(DATA)
    unfit = len(reasons) - reasons.null_count
    first = pc.index(reasons.is_valid(), True).as_py() if unfit else None
    return {
        "file": name,
        "rows": len(rows),
        "bytes": pc.sum(pc.binary_length(texts)).as_py() or 0,
        "mix": int(numpy.bitwise_xor.reduce(rows.column(HASH).to_numpy())),
        "unfit": unfit,
        "text": None if first is None else str(texts[first].as_py())[:_CHARACTERS_SHOWN],
        "why": None if first is None else reasons[first].as_py(),
    }


def _reasons(batch: pa.RecordBatch) -> pa.Array:
    """Why each row is no record; null where it is one."""
    reasons = batch.column(UNFIT)
    texts = batch.column(DATA)
    if not all_valid(pc.utf8_trim(texts, characters=" \t\r\n"), json_values):
        reasons = pc.coalesce(reasons, _json_reasons(texts))
    for name, most in _LIMITS.items():
        if name in batch.schema.names:
            too_long = pc.fill_null(pc.greater(pc.binary_length(batch.column(name)), most), False)
            why = pc.if_else(too_long, _too_long(name, most), pa.scalar(None, pa.string()))
            reasons = pc.coalesce(reasons, why)
    return reasons


def _json_reasons(texts: pa.Array) -> pa.Array:
    reasons: list[str | None] = []
    for text in texts.to_pylist():
        try:
            _one.decode("null" if text is None else text)
            reasons.append(None)
        except (msgspec.MsgspecError, RecursionError) as error:
            reasons.append(f"not JSON: {error}")
    return pa.array(reasons, pa.string())


def _too_long(name: str, most: int) -> str:
    return f"{name} has over {most} bytes"
