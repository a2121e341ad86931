"""The job `backfill`: rows from files or tables become records of a topic.

First every row is inspected, on the executors: they are counted, those that can be no record are
found, and a checksum over all of them that does not depend on their order is taken, so that the
same rows are known again. A row that cannot be a record ends the job before anything is written.
Then the sink writes, exactly once: the write is named after what was found (the topic, the files, a
checksum over all rows), so the same backfill run again finishes what was interrupted and writes
nothing twice. Or the rows go straight into segments of a new topic, see `straight`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core import limits
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.format.checksum import checksum64
from headwater.spark.jobs.job import NoProgress, Place, Progress, Report, tasks_shown
from headwater.spark.jobs.origins import (
    BLOCK,
    CARRIED,
    DATA,
    FILE,
    NODE,
    TAG,
    UNFIT,
    Origin,
    parse_kafka_origin,
    read_origin,
)
from headwater.spark.runtime.arrow_schema import to_spark
from headwater.spark.sink.rows import all_valid, json_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


class BackfillOptions(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    origin: Origin
    order_by: tuple[str, ...] = ()
    """Columns, or parts of a JSON payload as `$.name`; the topic gets the rows in this order."""
    in_order: bool = False
    """Files by name and rows as they stand there, by one writer."""
    write_id: str | None = None
    durability: str | None = None
    straight: bool = False
    """Into segments of a new topic in a stopped data directory, without a server."""

    def topic(self) -> str:
        if len(self.place.topics) != 1:
            raise RequestError("name the one topic that gets the records")
        return self.place.topics[0]


class BackfillReport(Report, frozen=True, kw_only=True):
    exit_code: ClassVar[int] = RequestError.exit_code

    topic: str
    files: int
    records: int
    bytes: int
    """Of the payloads, where they are text; 0 where columns become them."""
    unfit: int
    unfit_rows: tuple[UnfitRow, ...]
    write_id: str
    """What the sink knows this write by; nothing for a topic of segments."""
    seconds: float


def run(
    spark: SparkSession,
    options: BackfillOptions,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> BackfillReport:
    """Inspect every row, then write them. With one row that does not fit, nothing is written."""
    progress = progress or NoProgress()
    clock = clock or SystemClock()
    started_us = clock.monotonic_us()
    topic = options.topic()
    _check_target(options)
    rows = read_origin(spark, options.origin)
    progress.say("inspecting every row")
    with tasks_shown(spark, progress):
        inspection = inspect_rows(rows)
    write_id = "" if options.straight else options.write_id or _name_of(options, inspection)
    if not inspection.unfit:
        progress.say(f"writing {inspection.rows:,} records to {topic}")
        with tasks_shown(spark, progress):
            if options.straight:
                _write_segments(rows, options, topic, clock.wall_ms())
            else:
                _write(rows, options, topic, write_id)
    return BackfillReport(
        ok=not inspection.unfit,
        topic=topic,
        files=len(inspection.files),
        records=0 if inspection.unfit else inspection.rows,
        bytes=inspection.bytes,
        unfit=inspection.unfit,
        unfit_rows=inspection.unfit_rows,
        write_id=write_id,
        seconds=(clock.monotonic_us() - started_us) / US_PER_S,
    )


def _check_target(options: BackfillOptions) -> None:
    if options.straight and options.place.path is None:
        raise RequestError("segments are written into a stopped data directory: name it with path")
    if options.straight and not PurePath(options.place.path or "").is_absolute():
        raise RequestError(f"name {options.place.path} with its whole path: tasks run elsewhere")
    if options.straight and options.write_id is not None:
        raise RequestError("a new topic needs no write id: it is there whole, or not at all")
    if not options.straight and options.place.url is None:
        raise RequestError("a topic is written through its server: name it with url")


def _write_segments(rows: DataFrame, options: BackfillOptions, topic: str, ts: int) -> None:
    from headwater.spark.jobs.straight import write_straight

    assert options.place.path is not None
    wanted = _ordered(rows, options).drop(*CARRIED)
    if options.order_by or options.in_order:
        # Sorted once: a second sort could cut the partitions elsewhere.
        wanted = wanted.persist()
    try:
        write_straight(wanted, PurePath(options.place.path), topic, options.durability, ts)
    finally:
        wanted.unpersist()


def _write(rows: DataFrame, options: BackfillOptions, topic: str, write_id: str) -> None:
    in_order = options.in_order or bool(options.order_by)
    writer = (
        for_the_sink(rows, options)
        .write.format("headwater")
        .mode("append")
        .options(**options.place.options())
    )
    if options.durability is not None:
        writer = writer.option("durability", options.durability)
    if in_order:
        # One writer with one order has the same rows whenever it is run; else partitions are
        # as many as the master of the day has cores, and the sink has to compare.
        writer = writer.option("rerun", "trust")
    writer.option("topic", topic).option("writeId", write_id).save()


def for_the_sink(rows: DataFrame, options: BackfillOptions) -> DataFrame:
    """What the sink gets: in an order only from one writer, because two would mix their rows."""
    wanted = _ordered(rows, options).drop(*CARRIED)
    return wanted.coalesce(1) if options.in_order or options.order_by else wanted


def _ordered(rows: DataFrame, options: BackfillOptions) -> DataFrame:
    """Rows in the order the options name, partition by partition."""
    from pyspark.sql import functions as f

    if not options.order_by and not options.in_order:
        return rows
    wanted = [
        f.get_json_object(DATA, name) if name.startswith("$.") else f.col(f"`{name}`")
        for name in options.order_by
    ]
    as_it_stands = [f.col(f"`{FILE}`"), f.col(f"`{BLOCK}`"), f.monotonically_increasing_id()]
    return rows.orderBy(*wanted, *as_it_stands)


def _name_of(options: BackfillOptions, inspection: RowInspection) -> str:
    """The same rows for the same topic have the same name; one row more is another write."""
    origin = options.origin
    if origin.format == "kafka":  # neither a password nor how the end was said is part of it
        place = parse_kafka_origin(origin.location)
        origin = msgspec.structs.replace(origin, location=str(place))
    identity = (options.topic(), origin, options.order_by, options.in_order)
    return f"backfill-{checksum64(msgspec.json.encode([*identity, inspection])):016x}"


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
