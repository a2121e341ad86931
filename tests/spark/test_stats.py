"""What `stats` counts is what was written, and how late a table got it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import headwater
from headwater.config.engine import EngineSettings
from headwater.core.errors import HeadwaterError, RequestError
from headwater.spark.jobs.job import Place
from headwater.spark.jobs.stats import StatsOptions, StatsReport, TagCount, run
from headwater.spark.jobs.stats_plots import write_plots
from headwater.spark.sessions.spark_errors import explained
from headwater.testing import ManualClock
from tests.unit.cli.databases import NO_COMPANY

pytestmark = pytest.mark.spark

START_MS = 1_800_000_000_000
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten records a second for three seconds, then one large one a minute later; and a topic
    that lost records to its cap."""
    directory_path = tmp_path_factory.mktemp("stats") / "data"
    clock = ManualClock(START_MS)
    settings = EngineSettings(wal=NO_COMPANY)
    with headwater.open(directory_path, settings=settings, clock=clock) as db:
        for second in range(3):
            tags = ["often"] * 6 + ["rare"] * 2 + [None, None]
            db.append("clicks", [{"data": second, "tag": tag, "node": "n1"} for tag in tags])
            clock.jump_wall(1_000)
        clock.jump_wall(57_000)
        db.append("clicks", {"data": "x" * 998, "node": "n2"})
        db.create("capped", cap_records=4)
        db.append("capped", [{"data": number} for number in range(10)])
    return directory_path


def stats(spark: SparkSession, directory: Path, **more: object) -> StatsReport:
    topics = more.pop("topics", ())
    options = StatsOptions(place=Place(path=str(directory), topics=topics), **more)  # type: ignore[arg-type]
    with explained():
        return run(spark, options)


def test_counts_and_rates_are_those_of_what_was_written(
    spark: SparkSession, directory: Path
) -> None:
    report = stats(spark, directory, bucket_s=1)
    assert report.ok
    assert [each.topic for each in report.topics] == ["clicks", "capped"]
    clicks = report.topics[0]
    assert (clicks.records, clicks.first_seq, clicks.last_seq) == (31, 1, 31)
    assert (clicks.first_ts, clicks.last_ts) == (START_MS, START_MS + 60_000)
    assert clicks.records_per_s == pytest.approx(31 / 60)
    assert clicks.peak_records_per_s == 10
    assert clicks.bytes == 30 + 1_000
    assert (clicks.sizes.least, clicks.sizes.p50, clicks.sizes.most) == (1, 1, 1_000)
    assert clicks.nodes == 2
    mine = [bucket for bucket in report.buckets if bucket.topic == "clicks"]
    assert [(each.ts - START_MS, each.records) for each in mine] == [
        (0, 10),
        (1_000, 10),
        (2_000, 10),
        (60_000, 1),
    ]


def test_tags_are_ranked_and_their_skew_is_told(spark: SparkSession, directory: Path) -> None:
    (clicks,) = stats(spark, directory, topics=("clicks",), top=2).topics
    assert clicks.tags == 2
    assert clicks.top_tags == (TagCount("often", 18, 18 / 31), TagCount(None, 7, 7 / 31))
    assert clicks.skew == 18 / 24


def test_what_a_cap_took_is_counted_as_lost(spark: SparkSession, directory: Path) -> None:
    (capped,) = stats(spark, directory, topics=("capped",)).topics
    assert (capped.records, capped.first_seq, capped.last_seq) == (4, 7, 10)
    assert (capped.gaps, capped.lost) == (1, 6)


def test_latency_is_from_the_commit_to_the_file_of_the_table(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    rows = spark.read.format("headwater").option("path", str(directory)).option("topic", "clicks")
    rows.load().select("topic", "ts", "seq").where(f.col("seq") <= 10).coalesce(1).write.parquet(
        table
    )
    written_s = START_MS / 1_000 + 7.5
    for file in Path(table).glob("*.parquet"):
        os.utime(file, (written_s, written_s))
    (latency,) = stats(spark, directory, table=table, table_format="parquet").latency
    assert (latency.topic, latency.rows) == ("clicks", 10)
    assert (latency.p50_ms, latency.p99_ms, latency.most_ms) == (7_500, 7_500, 7_500)


def test_plots_are_drawn_of_what_there_is(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    report = stats(spark, directory)
    written = write_plots(report, tmp_path / "new" / "plots")
    assert [path.name for path in written] == ["rates.png", "sizes.png", "tags.png"]
    assert all(Path(path).read_bytes().startswith(PNG) for path in written)


def test_a_topic_that_is_not_there_is_an_error(spark: SparkSession, directory: Path) -> None:
    with pytest.raises(HeadwaterError, match="nothing"):
        stats(spark, directory, topics=("nothing",))


def test_a_table_without_times_cannot_tell_latency(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "table"))
    with pytest.raises(RequestError, match="has no column ts"):
        stats(spark, directory, table=str(tmp_path / "table"), table_format="parquet")
