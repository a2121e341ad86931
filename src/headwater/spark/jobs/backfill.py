"""The job `backfill`: rows from files or tables become records of a topic.

First every row is inspected: a row that cannot be a record ends the job before anything is
written. Then the sink writes, exactly once: the write is named after what was found (the topic,
the files, a checksum over all rows), so the same backfill run again finishes what was interrupted
and writes nothing twice. Or the rows go straight into segments of a new topic, see `straight`.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

import msgspec

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.format.checksum import checksum64
from headwater.spark.jobs.job import NoProgress, Place, Progress, Report, tasks_shown
from headwater.spark.jobs.kafka_origin import parse_kafka_origin
from headwater.spark.jobs.origins import BLOCK, CARRIED, DATA, FILE, Origin, read_origin
from headwater.spark.jobs.row_inspection import RowInspection, UnfitRow, inspect_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
