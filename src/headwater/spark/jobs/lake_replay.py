"""Dead letters once more: those that fit by now become rows of the main table.

They do when the fields were changed, or the table was. The letters stay in their table; that one
was replayed is said by another row with the same topic, seq and ts. The main table is committed
first, both under the number of the replay; a replay that died between the two is finished by the
next one, which finds in the main table what must be marked.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from headwater.core.clock import Clock, SystemClock
from headwater.core.units import US_PER_S
from headwater.spark.jobs.job import NoProgress, Progress, Report
from headwater.spark.jobs.lake import LakeOptions, Shape, committed, with_variant, write_files
from headwater.spark.jobs.lake_rows import (
    DEAD,
    INVALID,
    Kind,
    LakePayload,
    LandTask,
    LetterStatus,
    RowFitter,
)
from headwater.spark.runtime.arrow_schema import to_arrow, to_spark
from headwater.spark.tables.file_writer import FilesWriter
from headwater.spark.tables.table import Landing, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

REPLAY: Final = "replay"
KEY: Final = ("topic", "seq", "ts")
"""What a letter is known by; with its time, since a topic made anew counts from 1 again."""


class LakeReplayReport(Report, frozen=True, kw_only=True):
    table: str
    replayed: int
    """Letters that are rows of the table now."""
    left: int
    """Letters that still do not fit."""
    seconds: float


def replay(
    spark: SparkSession,
    options: LakeOptions,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> LakeReplayReport:
    """Judge all dead letters that were not replayed by the options as they are now."""
    clock = clock or SystemClock()
    progress = progress or NoProgress()
    started_us = clock.monotonic_us()
    tables, shape = options.tables(), options.shape()
    main, dead = tables[Kind.MAIN], tables[Kind.DEAD]
    replayed = left = 0
    if dead.files():
        progress.say("judging dead letters")
        number = _finished(spark, options, main, dead)
        landing = Landing(f"{options.app()}.{REPLAY}", number, REPLAY, shape.rules)
        columns = main.evolve(shape.columns, shape.partition_by)
        letters = open_letters(spark, dead)
        waiting = letters.count()
        task = LandTask(
            run=uuid.uuid4().hex,
            batch=number,
            payload=shape.payload,
            layouts={
                Kind.MAIN: main.layout(landing, shape.partition_by),
                Kind.DEAD: dead.layout(landing, ()),
            },
            columns=bytes(columns.serialize()),
            replayed=True,
        )
        written = write_files(_parsed(letters, options, shape), task)
        if Kind.MAIN in written:
            main.commit(landing, written[Kind.MAIN])
            dead.commit(landing, written[Kind.DEAD])
            replayed = sum(file.rows for file in written[Kind.MAIN])
        left = waiting - replayed
    return LakeReplayReport(
        ok=True,
        table=options.table,
        replayed=replayed,
        left=left,
        seconds=(clock.monotonic_us() - started_us) / US_PER_S,
    )


def open_letters(spark: SparkSession, dead: Table) -> DataFrame:
    """Dead letters that no row says were replayed."""
    rows = spark.read.schema(to_spark(DEAD)).parquet(*dead.files())
    replayed = rows.where(rows.status == LetterStatus.REPLAYED.value).select(*KEY)
    return rows.where(rows.status == LetterStatus.DEAD.value).join(replayed, list(KEY), "left_anti")


def _finished(spark: SparkSession, options: LakeOptions, main: Table, dead: Table) -> int:
    """Finish a replay that died between its two commits; gives the number of the next one."""
    first = Landing(f"{options.app()}.{REPLAY}", 0, REPLAY)
    in_main, in_dead = main.landed(first), dead.landed(first)
    for table, landed in ((main, in_main), (dead, in_dead)):
        table.clean(first.app, -1 if landed is None else landed.batch)
    if in_main is None:
        return 0
    if in_dead is None or in_dead.batch < in_main.batch:
        landing = Landing(first.app, in_main.batch, REPLAY)
        keys = open_letters(spark, dead).select(*KEY).toArrow()
        there = main.read(KEY)
        both = keys.join(there.cast(keys.schema), list(KEY), join_type="left semi")
        writer = FilesWriter(dead.layout(landing, ()), DEAD, uuid.uuid4().hex)
        writer.write(RowFitter(DEAD, LakePayload.NONE, landing.batch).marked_replayed(both))
        committed(dead, landing, writer.finish())
    return in_main.batch + 1


def _parsed(letters: DataFrame, options: LakeOptions, shape: Shape) -> DataFrame:
    """Letters as the source gives records: with the fields of the options, and what is wrong."""
    from pyspark.sql.types import StringType, StructField, StructType

    from headwater.spark.source.options import Payload
    from headwater.spark.source.schema import envelope, parse_ddl

    fields = parse_ddl(options.fields) if options.fields else StructType([])
    plain = [field for field in envelope(Payload.BINARY).fields if field.name != "gap"]
    schema = StructType([*plain, *fields.fields, StructField(INVALID, StringType())])
    rows = letters.mapInArrow(Parse(fields.json(), schema.json()), schema)
    return with_variant(rows) if shape.payload is LakePayload.VARIANT else rows


@dataclass(frozen=True, slots=True)
class Parse:
    """Letters to rows, on executors."""

    fields: str
    schema: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headwater.spark.source.fields import FieldParser

        fields = _struct(self.fields)
        schema = to_arrow(_struct(self.schema))
        parser = FieldParser(fields)
        types = [schema.field(name).type for name in fields.fieldNames()]
        for batch in batches:
            raw = batch.column("raw").cast(pa.binary())
            parsed = parser.parse(raw) if len(fields) else None
            columns = {name: batch.column(name) for name in batch.schema.names}
            columns["data"] = raw
            reasons: list[str | None] = [None] * len(raw)
            if parsed is not None:
                made = parser.columns(parsed.values, types)
                columns |= dict(zip(fields.fieldNames(), made, strict=True))
                for position, reason in parsed.reasons.items():
                    reasons[position] = reason
            columns[INVALID] = pa.array(reasons, pa.string())
            yield pa.RecordBatch.from_arrays(
                [columns[field.name].cast(field.type) for field in schema], schema=schema
            )


def _struct(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(msgspec.json.decode(text))
