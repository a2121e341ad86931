"""The job `stats`: what is in topics, how it came, and how late it is processed.

One scan: what is needed of each record (topic, seq, time, tag, node, size of the payload) is kept
by Spark while it answers. Latency is computed from a table that a pipeline fills: a file
of it was written when its rows had been processed, and each row says when it had been written to
the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.spark.jobs.job import NoProgress, Place, Progress, Report, tasks_shown
from headwater.spark.jobs.origins import delta_table, parquet_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS_WANTED: Final = 120
BUCKETS_S: Final = (1, 10, 60, 600, 3_600, 21_600, 86_400)
"""Lengths a bucket may have when the options name none; the shortest that needs few enough of
them."""
MS_PER_S: Final = 1_000
_TABLES: Final = {"delta": delta_table, "parquet": parquet_table}
_SHARES: Final = (0.5, 0.9, 0.99)


class StatsOptions(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    top: int = 10
    """So many tags of each topic are named."""
    bucket_s: int | None = None
    """Length of the time buckets that rates are counted in."""
    table: str | None = None
    """A table that is filled from these topics, for latency."""
    table_format: str = "delta"


class TagCount(msgspec.Struct, frozen=True):
    tag: str | None
    records: int
    share: float


class Sizes(msgspec.Struct, frozen=True):
    """Of payloads, in bytes."""

    least: int
    mean: float
    p50: int
    p99: int
    most: int


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    records: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts: int | None
    last_ts: int | None
    records_per_s: float
    """Over the time from the first to the last, a second at least."""
    peak_records_per_s: float
    """In the busiest bucket."""
    sizes: Sizes
    nodes: int
    tags: int
    """How many different ones; records without a tag do not count."""
    top_tags: tuple[TagCount, ...]
    skew: float
    """The share of the most frequent tag among tagged records: 1 means there is only one."""
    gaps: int
    lost: int
    """Records that caps or age took before they were read."""


class Bucket(msgspec.Struct, frozen=True):
    topic: str
    ts: int
    records: int
    bytes: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """From the commit of a record to the file of the table that has it, in milliseconds."""

    topic: str | None
    rows: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    most_ms: int


class StatsReport(Report, frozen=True, kw_only=True):
    topics: tuple[TopicStats, ...]
    bucket_s: int
    buckets: tuple[Bucket, ...]
    latency: tuple[Latency, ...]
    seconds: float


def run(
    spark: SparkSession,
    options: StatsOptions,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> StatsReport:
    """Read every record of the topics once."""
    progress = progress or NoProgress()
    clock = clock or SystemClock()
    started_us = clock.monotonic_us()
    if options.table is not None and options.table_format not in _TABLES:
        raise RequestError(
            f"latency is computed from {' or '.join(_TABLES)}, not from another format"
        )
    progress.say("reading every record")
    with tasks_shown(spark, progress):
        slim = _slim(spark, options).persist()
        try:
            totals = _totals(slim)
            bucket_s = options.bucket_s or _step(totals)
            buckets = _buckets(slim, bucket_s)
            tags = _tags(slim, options.top)
        finally:
            slim.unpersist()
        latency = _latency(spark, options)
    peaks: dict[str, int] = {}
    for bucket in buckets:
        peaks[bucket.topic] = max(peaks.get(bucket.topic, 0), bucket.records)
    return StatsReport(
        ok=True,
        topics=tuple(
            _topic(row, tags.get(row["topic"], []), peaks.get(row["topic"], 0) / bucket_s)
            for row in totals
        ),
        bucket_s=bucket_s,
        buckets=buckets,
        latency=latency,
        seconds=(clock.monotonic_us() - started_us) / US_PER_S,
    )


def _slim(spark: SparkSession, options: StatsOptions) -> DataFrame:
    """What the questions need of each record, and of each gap."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    from headwater.spark.source.options import Payload
    from headwater.spark.source.schema import envelope

    columns = [each for each in envelope(Payload.BINARY).fields if each.name != "meta"]
    reader = spark.read.format("headwater").options(**options.place.reading())
    # From the first record ever, not from the earliest there is: what is lost counts too.
    reader = reader.option("startingSeq", "1").option("failOnDataLoss", "false")
    rows = reader.schema(StructType(columns)).load()
    is_record = f.col("gap").isNull()
    return rows.select(
        "topic",
        "seq",
        f.unix_millis("ts").alias("ts"),
        "tag",
        "node",
        f.when(is_record, f.coalesce(f.octet_length("data"), f.lit(0))).alias("size"),
        f.col("gap.missed_estimate").alias("lost"),
        (~is_record).cast("int").alias("gaps"),
    )


def _totals(slim: DataFrame) -> list[Any]:
    from pyspark.sql import functions as f

    at_record = f.col("size").isNotNull()
    totals = slim.groupBy("topic").agg(
        f.count("size").alias("records"),
        f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
        f.coalesce(f.min(f.when(at_record, f.col("seq"))), f.lit(0)).alias("first_seq"),
        f.coalesce(f.max(f.when(at_record, f.col("seq"))), f.lit(0)).alias("last_seq"),
        f.min("ts").alias("first_ts"),
        f.max("ts").alias("last_ts"),
        f.min("size").alias("least"),
        f.avg("size").alias("mean"),
        f.percentile_approx("size", [0.5, 0.99]).alias("shares"),
        f.max("size").alias("most"),
        f.count_distinct("node").alias("nodes"),
        f.sum("gaps").alias("gaps"),
        f.coalesce(f.sum("lost"), f.lit(0)).alias("lost"),
    )
    return totals.orderBy(f.desc("records"), "topic").collect()


def _step(totals: list[Any]) -> int:
    firsts = [row["first_ts"] for row in totals if row["first_ts"] is not None]
    lasts = [row["last_ts"] for row in totals if row["last_ts"] is not None]
    span_s = (max(lasts, default=0) - min(firsts, default=0)) / MS_PER_S
    return next((step for step in BUCKETS_S if span_s / step <= BUCKETS_WANTED), BUCKETS_S[-1])


def _buckets(slim: DataFrame, bucket_s: int) -> tuple[Bucket, ...]:
    from pyspark.sql import functions as f

    step = bucket_s * MS_PER_S
    start = (f.floor(f.col("ts") / step) * step).cast("long").alias("ts")
    counts = slim.where("size is not null").groupBy("topic", start)
    rows = counts.agg(f.count("size").alias("records"), f.sum("size").alias("bytes"))
    return tuple(
        Bucket(row["topic"], row["ts"], row["records"], row["bytes"])
        for row in rows.orderBy("topic", "ts").collect()
    )


def _tags(slim: DataFrame, top: int) -> dict[str, list[Any]]:
    """Topic -> its most frequent tags, each with how many there are of it and of tags in all."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counts = slim.where("size is not null").groupBy("topic", "tag").agg(f.count("*").alias("n"))
    whole = Window.partitionBy("topic")
    ranked = counts.select(
        "topic",
        "tag",
        "n",
        f.count("tag").over(whole).alias("tags"),
        f.sum(f.when(f.col("tag").isNotNull(), f.col("n"))).over(whole).alias("tagged"),
        f.max(f.when(f.col("tag").isNotNull(), f.col("n"))).over(whole).alias("most"),
        f.row_number().over(whole.orderBy(f.desc("n"), "tag")).alias("rank"),
    )
    by_topic: dict[str, list[Any]] = {}
    for row in ranked.where(f.col("rank") <= max(top, 1)).orderBy("topic", "rank").collect():
        by_topic.setdefault(row["topic"], []).append(row)
    return by_topic


def _topic(row: Any, tags: list[Any], peak: float) -> TopicStats:
    records = row["records"]
    span_ms = (row["last_ts"] or 0) - (row["first_ts"] or 0)
    tagged = (tags[0]["tagged"] or 0) if tags else 0
    p50, p99 = row["shares"] or (0, 0)
    return TopicStats(
        topic=row["topic"],
        records=records,
        bytes=row["bytes"],
        first_seq=row["first_seq"],
        last_seq=row["last_seq"],
        first_ts=row["first_ts"],
        last_ts=row["last_ts"],
        records_per_s=records * MS_PER_S / max(span_ms, MS_PER_S),
        peak_records_per_s=peak,
        sizes=Sizes(row["least"] or 0, row["mean"] or 0.0, p50, p99, row["most"] or 0),
        nodes=row["nodes"],
        tags=tags[0]["tags"] if tags else 0,
        top_tags=tuple(TagCount(tag["tag"], tag["n"], tag["n"] / records) for tag in tags),
        skew=tags[0]["most"] / tagged if tagged else 0.0,
        gaps=row["gaps"],
        lost=row["lost"],
    )


def _latency(spark: SparkSession, options: StatsOptions) -> tuple[Latency, ...]:
    from pyspark.sql import functions as f

    if options.table is None:
        return ()
    table = _TABLES[options.table_format](spark, options.table)
    if "ts" not in table.columns:
        raise RequestError(
            f"the table {options.table} has no column ts, which says when its rows were "
            "written to the log"
        )
    topic = f.col("topic") if "topic" in table.columns else f.lit(None).cast("string")
    took = f.unix_millis("_metadata.file_modification_time") - f.unix_millis("ts")
    rows = table.select(topic.alias("topic"), took.alias("took")).where("took is not null")
    if options.place.topics and "topic" in table.columns:
        rows = rows.where(f.col("topic").isin(list(options.place.topics)))
    latencies = rows.groupBy("topic").agg(
        f.count("*").alias("rows"),
        f.percentile_approx("took", list(_SHARES)).alias("shares"),
        f.max("took").alias("most"),
    )
    return tuple(
        Latency(
            topic=row["topic"],
            rows=row["rows"],
            p50_ms=row["shares"][0],
            p90_ms=row["shares"][1],
            p99_ms=row["shares"][2],
            most_ms=row["most"],
        )
        for row in latencies.orderBy("topic").collect()
    )
