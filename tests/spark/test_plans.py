"""What a query reads and copies: only columns it uses, once; and how a session ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.spark.runtime import column_pruning, filter_pushdown, projection_removal
from headwater.spark.runtime.optimizations import optimize

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
COUNT = 50


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segments of sixteen, and the rest in the log."""
    directory = tmp_path_factory.mktemp("plans") / "data"
    settings = EngineSettings(
        segments=SegmentSettings(segment_max_events=16), checkpoint_interval_ms=3_600_000
    )
    with headwater.open(directory, settings=settings) as db:
        records = [{"data": {"n": n}, "tag": f"t{n % 3}"} for n in range(COUNT)]
        db.append("orders", records[:40])
        db.checkpoint()
        db.append("orders", records[40:])
        db.append("orders", {"data": "no number"})
        db.delete("orders", before_seq=3)
    return directory


@pytest.fixture
def orders(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("headwater").options(path=str(path), topic="orders").load()


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def scanned(frame: DataFrame) -> list[str]:
    """The columns of each scan of a plan."""
    parts = plan(frame).split("BatchScan headwater[")[1:]
    return [",".join(name.split("#")[0] for name in part.split("]")[0].split(", "))
            for part in parts]  # fmt: skip


def test_all_that_makes_queries_fast_is_active_on_every_version_that_is_allowed(
    spark: SparkSession,
) -> None:
    assert optimize(spark) == {
        filter_pushdown.NAME: True,
        column_pruning.NAME: True,
        projection_removal.NAME: True,
    }


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("when", "active", "reason"),
    [
        ("before", [False, False, False], "not on this version of Spark, so "),
        ("while", [True, True, True], "spark: ERROR Headwater"),
    ],
)
def test_queries_are_right_on_a_spark_whose_insides_have_changed(
    path: Path, when: str, active: list[bool], reason: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.changed_spark", str(path), when],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert list(results.pop("active").values()) == active
    assert results == {"count": COUNT - 1, "late": COUNT - 39, "joined": 9, "rows": COUNT - 1}
    lines = [line for line in done.stderr.splitlines() if reason in line]
    assert len(lines) == (3 if when == "before" else 2), done.stderr


def test_a_count_reads_no_payload_and_counts_what_is_there(orders: DataFrame) -> None:
    counting = orders.groupBy().count()
    assert scanned(counting) == ["seq"]
    assert counting.collect()[0][0] == orders.count() == COUNT - 1
    assert len(orders.collect()) == COUNT - 1


def test_only_the_columns_of_a_query_and_its_filters_are_read(orders: DataFrame) -> None:
    assert scanned(orders.select("tag")) == ["tag"]
    chosen = orders.where("data like '%7%' and seq > 5").select("tag")
    assert scanned(chosen) == ["seq,tag,data"]
    expected = [row.tag for row in orders.collect() if row.seq > 5 and "7" in row.data]
    assert [row.tag for row in chosen.collect()] == expected
    assert scanned(orders) == ["topic,seq,ts,node,tag,data,meta,gap"]


def test_two_scans_of_one_frame_each_have_their_own_columns(orders: DataFrame) -> None:
    tags = orders.where("seq < 20").select("seq", "tag")
    datas = orders.where("seq > 10").select("seq", "data")
    joined = tags.join(datas, "seq")
    assert sorted(scanned(joined)) == ["seq,data", "seq,tag"]
    assert joined.count() == 9


def test_fields_are_checked_whether_they_are_used_or_not(spark: SparkSession, path: Path) -> None:
    reader = spark.read.format("headwater").options(path=str(path), topic="orders")
    strict = reader.option("fields", "n long").load()
    with pytest.raises(Exception, match="is not what option fields says"):
        strict.count()
    lax = reader.option("invalid", "column").load()
    assert lax.where("invalid is null").count() == COUNT - 2


def test_a_schema_of_the_users_own_keeps_a_column_when_none_is_used(
    spark: SparkSession, path: Path
) -> None:
    reader = spark.read.format("headwater").options(path=str(path), topic="orders")
    frame = reader.schema("data string, tag string").load()
    assert scanned(frame.groupBy().count()) == ["tag"]
    assert frame.count() == COUNT - 1


def test_rows_of_a_scan_are_not_copied_again(orders: DataFrame) -> None:
    assert "Project" not in plan(orders)
    assert "Project" not in plan(orders.select("seq", "data"))
    assert "Project" in plan(orders.selectExpr("seq + 1"))
    shuffled = orders.repartition(3)
    assert sorted(row.seq for row in shuffled.collect()) == [row.seq for row in orders.collect()]


def test_who_planned_is_hung_up_on_without_a_word(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.quiet_session", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    rows, waiting, still_there = map(int, done.stdout.split())
    assert rows == COUNT - 1
    assert waiting == 2  # one made the source, one planned; the one that looked it up is gone
    assert still_there == 0
    assert "Traceback" not in done.stderr
