"""A backfill straight into segments: the same records as through a server, whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.core.clock import SystemClock
from headwater.core.errors import (
    DamageError,
    DirectoryInUseError,
    HeadwaterError,
    RequestError,
    TopicExistsIncompatibleError,
)
from headwater.disk import PosixDisk
from headwater.engine.read_only.directory_check import verify_directory
from headwater.spark.jobs.backfill import BackfillOptions, BackfillReport, run
from headwater.spark.jobs.job import Place
from headwater.spark.jobs.origins import Origin
from headwater.spark.jobs.straight import StraightTask, columns_of, reserve
from headwater.spark.sessions.spark_errors import explained

pytestmark = pytest.mark.spark
ROWS = 25_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory_path = tmp_path / "data"
    with headwater.open(directory_path) as db:
        db.append("old", {"data": "old"})
    return directory_path


def fill(
    spark: SparkSession, directory: Path, origin: Origin, topic: str = "filled", **more: Any
) -> BackfillReport:
    target = Place(path=str(directory), topics=(topic,))
    with explained():
        return run(
            spark,
            BackfillOptions(place=target, origin=origin, straight=True, **more),
        )


def read(directory: Path, topic: str = "filled") -> list[Any]:
    records: list[Any] = []
    with headwater.open(directory) as db:
        head = db.state(topic).head_seq
        while len(records) < head:
            records += db.diff(topic, len(records), limit=1_000).records
    return records


def test_many_tasks_write_one_topic_without_a_gap(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    origin = Origin(format="parquet", location=str(tmp_path / "rows"), tag="kind")
    rows = spark.range(ROWS).selectExpr("id as n", "concat('k', id % 3) as kind")
    rows.repartition(4).write.parquet(origin.location)
    setting = "spark.sql.files.maxPartitionBytes"
    spark.conf.set(setting, "20kb")
    try:
        report = fill(spark, directory, origin)
    finally:
        spark.conf.unset(setting)
    assert (report.ok, report.records, report.write_id) == (True, ROWS, "")
    faults = verify_directory(
        PosixDisk(), directory, SystemClock(), lambda _: lambda _: None
    ).faults
    assert faults == []
    records = read(directory)
    assert [record.seq for record in records] == list(range(1, ROWS + 1))
    assert sorted(record.data["n"] for record in records) == list(range(ROWS))
    assert all(record.tag == record.data["kind"] for record in records)
    segments = list((directory / "topics").rglob("*.idx"))
    assert len(segments) > 3, "each task wrote its own"
    assert [record.data for record in read(directory, "old")] == ["old"]


def test_lines_of_json_are_kept_byte_for_byte_and_in_order(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    texts = [f'{{"n": {number},  "x":1.50}}' for number in range(1_000)]
    for half in range(2):
        part = texts[half * 500 : (half + 1) * 500]
        (tmp_path / f"{half}.jsonl").write_text("\n".join(part) + "\n")
    setting = "spark.sql.files.maxPartitionBytes"
    spark.conf.set(setting, "4kb")
    try:
        origin = Origin(format="json", location=str(tmp_path / "*.jsonl"))
        fill(spark, directory, origin, in_order=True)
    finally:
        spark.conf.unset(setting)
    rows = spark.read.format("headwater").option("path", str(directory)).option("topic", "filled")
    read = {row["seq"]: row["data"] for row in rows.load().select("seq", "data").collect()}
    assert [read[seq] for seq in range(1, 1_001)] == texts


def test_a_server_that_runs_is_not_written_under(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    origin = Origin(format="json", location=str(tmp_path / "a.jsonl"))
    with headwater.open(directory), pytest.raises(DirectoryInUseError):
        fill(spark, directory, origin)


def test_a_topic_that_is_there_is_not_written_to(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    origin = Origin(format="json", location=str(tmp_path / "a.jsonl"))
    with pytest.raises(TopicExistsIncompatibleError, match="there is a topic 'old'"):
        fill(spark, directory, origin, topic="old")
    fill(spark, directory, origin)
    with pytest.raises(TopicExistsIncompatibleError, match="there is a topic 'filled'"):
        fill(spark, directory, origin)


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ("id as meta", {}, "column 'meta' cannot be written straight"),
        ("'1' as data, id as other", {"tag": None}, "column 'other' cannot be written straight"),
        ("id", {"durability": "memory"}, "a topic of segments is of class fsync or disk"),
        ("id", {"write_id": "x"}, "a new topic needs no write id"),
        ("id", {"rows": 0}, "there are no rows"),
    ],
)
def test_what_cannot_be_written_straight_is_refused(
    spark: SparkSession,
    directory: Path,
    tmp_path: Path,
    columns: str,
    more: dict[str, Any],
    message: str,
) -> None:
    origin = Origin(format="parquet", location=str(tmp_path / "rows"), tag=more.pop("tag", None))
    spark.range(more.pop("rows", 3)).selectExpr(*columns.split(", ")).write.parquet(origin.location)
    with pytest.raises(RequestError, match=message):
        fill(spark, directory, origin, **more)
    with headwater.open(directory) as db:
        assert [state.topic for state in db.topics()] == ["old"]


def test_rows_that_change_between_counting_and_writing_are_noticed(tmp_path: Path) -> None:
    task = StraightTask(str(tmp_path / "segments"), 7, (1, 6), 1_700_000_000_000)
    batch = pa.record_batch({"id": list(range(4))})
    with pytest.raises(DamageError, match="had 5 rows when it was counted and 4 when"):
        task.write(PosixDisk(), 0, [batch])


def test_a_directory_that_is_none_of_ours_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    origin = Origin(format="json", location=str(tmp_path / "a.jsonl"))
    with pytest.raises(HeadwaterError, match="is not a Headwater data directory"):
        fill(spark, tmp_path, origin)


def test_payloads_are_those_the_sink_would_send() -> None:
    rows = {"n": [1, 2], "s": ['a"b', None], "l": [None, [1, 2]], "tag": ["t", None]}
    nodes, tags, payloads = columns_of(pa.record_batch(rows))
    assert payloads == [b'{"n":1,"s":"a\\"b"}', b'{"n":2,"l":[1,2]}']
    assert (nodes, tags) == ([b"", b""], [b"t", b""])


def test_a_new_topic_gets_no_id_that_the_log_gave_a_router(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as db:
        for name in ("in", "out"):
            db.append(name, {"data": 1})
        db.put_router("r", source="in", dest="out")
        shutil.copytree(tmp_path / "data", tmp_path / "killed")  # before any snapshot
    new = reserve(PosixDisk(), PurePath(tmp_path / "killed"), "more")
    assert new.topic_id == 4
    with headwater.open(tmp_path / "killed") as db:
        assert db.router("r").source == "in"
