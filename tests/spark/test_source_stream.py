"""`spark.readStream.format("headwater")`: batches, limits, restarts, ends, and what is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.core.errors import DataLossError, RequestError, TopicNotFoundError
from headwater.spark.sessions.spark_errors import explain
from headwater.spark.source.data_source import HeadwaterDataSource
from headwater.spark.source.options import source_options
from headwater.spark.source.stream_reader import StreamReader
from tests.spark.direct_reader import Row, options_of, read_all

SETTINGS = EngineSettings(
    segments=SegmentSettings(segment_max_events=20), checkpoint_interval_ms=3_600_000
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def db(path: Path) -> Iterator[headwater.Database]:
    with headwater.open(path, settings=SETTINGS) as database:
        yield database


def write(db: headwater.Database, count: int, topic: str = "a") -> None:
    head = db.state(topic).head_seq if topic in {s.topic for s in db.topics()} else 0
    db.append(topic, [{"data": {"n": n}} for n in range(head + 1, head + count + 1)])


# -- by hand: what the driver asks a source


class Query:
    """A query as Spark runs it: a batch at a time, its offset kept as text."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._path, self._options = path, options
        topic = {} if "topicPattern" in options else {"topic": "a"}
        given = options_of(path, {**topic, **options})
        self.reader = StreamReader(source_options(given), HeadwaterDataSource(given).schema())
        self.offset = json.dumps(self.reader.initialOffset())

    def restarted(self) -> Query:
        """Another process that goes on from the same checkpoint."""
        other = Query(self._path, **self._options)
        other.offset = self.offset
        return other

    def end(self) -> str:
        limit = self.reader.getDefaultReadLimit()
        return json.dumps(self.reader.latestOffset(json.loads(self.offset), limit))

    def batch(self) -> list[Row]:
        end = self.end()
        planned = self.reader.partitions(json.loads(self.offset), json.loads(end))
        rows = read_all(self.reader, planned)
        self.offset = end
        return rows

    def seqs(self) -> list[int]:
        return [row["seq"] for row in self.batch()]


def test_each_batch_has_what_came_since_the_one_before(path: Path, db: headwater.Database) -> None:
    write(db, 30)
    query = Query(path)
    assert query.seqs() == list(range(1, 31))
    assert query.end() == query.offset, "nothing new is the same text"
    write(db, 5)
    db.checkpoint()
    write(db, 5)
    assert query.seqs() == list(range(31, 41))


def test_a_batch_run_again_has_the_same_rows(path: Path, db: headwater.Database) -> None:
    write(db, 30)
    query = Query(path)
    before, end = query.offset, query.end()
    first = read_all(query.reader, query.reader.partitions(json.loads(before), json.loads(end)))
    write(db, 30)
    db.checkpoint()
    again = Query(path)
    read = read_all(again.reader, again.reader.partitions(json.loads(before), json.loads(end)))
    assert read == first


@pytest.mark.parametrize(
    ("options", "first"),
    [({}, 1), ({"startingSeq": "earliest"}, 1), ({"startingSeq": 12}, 12),
     ({"startingSeq": "latest"}, 31), ({"startingSeq": '{"a": 20}'}, 20)],
)  # fmt: skip
def test_a_stream_begins_where_it_is_told_to(
    path: Path, db: headwater.Database, options: dict[str, Any], first: int
) -> None:
    write(db, 30)
    query = Query(path, **options)
    write(db, 2)
    assert query.seqs() == list(range(first, 33))


def test_a_stream_begins_at_a_time(path: Path, db: headwater.Database) -> None:
    for _ in range(30):
        write(db, 1)
    db.checkpoint()
    every = Query(path).batch()
    for row in (every[0], every[17], every[29]):
        query = Query(path, startingTimestamp=row["ts"].isoformat())
        assert query.batch() == [each for each in every if each["ts"] >= row["ts"]]
    late = Query(path, startingTimestamp="2999-01-01T00:00:00Z")
    write(db, 1)
    assert late.seqs() == [31]


def test_a_limit_bounds_each_batch_and_the_lag_is_told_all_the_same(
    path: Path, db: headwater.Database
) -> None:
    write(db, 25)
    query = Query(path, maxRecordsPerTrigger=10)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert [len(query.batch()) for _ in range(4)] == [10, 10, 5, 0]
    write(db, 25)
    reported = query.reader.reportLatestOffset()
    assert reported["topics"]["a"]["seq"] == 50
    start = json.loads(query.offset)
    everything = query.reader.latestOffset(start, ReadAllAvailable())
    assert everything["topics"]["a"]["seq"] == 50, "the engine's limit wins over the option"
    assert Query(path).reader.getDefaultReadLimit() == ReadAllAvailable()


def test_topics_that_come_later_are_read_from_their_beginning(
    path: Path, db: headwater.Database
) -> None:
    write(db, 5, "t1")
    query = Query(path, topicPattern="t.*", startingSeq="latest")
    write(db, 5, "t2")
    assert query.batch() == [], "it enters the offset before a record of it is read"
    assert [(row["topic"], row["seq"]) for row in query.batch()] == [
        ("t2", seq) for seq in range(1, 6)
    ]


def test_an_available_now_run_ends_at_what_was_there_when_it_began(
    path: Path, db: headwater.Database
) -> None:
    write(db, 25, "t1")
    query = Query(path, topicPattern="t.*", maxRecordsPerTrigger=10)
    query.reader.prepareForTriggerAvailableNow()
    write(db, 25, "t1")
    write(db, 25, "t2")
    read: list[int] = []
    while query.end() != query.offset:
        read += query.seqs()
    assert read == list(range(1, 26))


def test_retention_that_overtakes_a_query_stops_it_and_names_the_range(
    path: Path, db: headwater.Database
) -> None:
    write(db, 10)
    query, tolerant = Query(path), Query(path, failOnDataLoss=False)
    query.batch(), tolerant.batch()
    write(db, 50)
    db.create("a", cap_records=15)
    with pytest.raises(DataLossError, match=r"topic 'a' has lost seqs 11 to 45 \(cap\)"):
        query.batch()
    rows = tolerant.batch()
    assert [row["gap"] for row in rows if row["gap"]] == [
        {"gap_from": 11, "gap_to": 45, "reason": "cap", "missed_estimate": 35}
    ]
    assert [row["seq"] for row in rows if not row["gap"]] == list(range(46, 61))
    assert tolerant.batch() == [], "it is told once"


def test_a_loss_is_told_though_nothing_came_after_it(path: Path, db: headwater.Database) -> None:
    write(db, 10)
    query = Query(path, failOnDataLoss=False)
    query.batch()
    write(db, 10)
    for ttl_ms in (1, 2) * 500:  # a change of the age evicts; records of this millisecond stay
        if not db.create("a", ttl_ms=ttl_ms).count:
            break
    rows = query.batch()
    assert [(row["gap"]["gap_from"], row["gap"]["gap_to"]) for row in rows] == [(11, 20)]
    assert query.end() == query.offset


def test_deleted_records_are_passed_over_in_silence(path: Path, db: headwater.Database) -> None:
    write(db, 10)
    query = Query(path)
    query.batch()
    write(db, 10)
    db.delete("a", before_seq=15)
    assert query.seqs() == list(range(15, 21))


def test_a_topic_dropped_or_made_again_is_a_loss(path: Path, db: headwater.Database) -> None:
    write(db, 10)
    strict, tolerant = Query(path), Query(path, failOnDataLoss=False)
    strict.batch(), tolerant.batch()
    db.drop("a")
    with pytest.raises(DataLossError, match=r"seqs 11 \(dropped\)"):
        strict.batch()
    assert [row["gap"]["reason"] for row in tolerant.batch()] == ["dropped"]
    write(db, 3)
    assert tolerant.batch() == []
    assert tolerant.seqs() == [1, 2, 3]
    db.drop("a")
    write(db, 4)
    assert [row["gap"]["reason"] for row in tolerant.batch()] == ["recreated"]
    assert tolerant.seqs() == [1, 2, 3, 4]
    with pytest.raises(DataLossError, match="recreated"):
        strict.batch()


def test_a_directory_put_back_from_an_older_copy_is_noticed(tmp_path: Path, path: Path) -> None:
    with headwater.open(path) as db:
        write(db, 10)
    shutil.copytree(path, tmp_path / "copy")
    with headwater.open(path) as db:
        write(db, 10)
    strict, tolerant = Query(path), Query(path, failOnDataLoss=False)
    assert len(strict.batch()) == len(tolerant.batch()) == 20
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "copy", path)
    with pytest.raises(DataLossError, match=r"seqs 11 to 20 \(rewound\)"):
        strict.restarted().batch()
    again = tolerant.restarted()
    assert [row["gap"]["reason"] for row in again.batch()] == ["rewound"]
    with headwater.open(path) as db:
        write(db, 2)
    assert again.seqs() == [11, 12]


def test_options_that_make_no_sense_for_a_stream_are_refused(
    path: Path, db: headwater.Database
) -> None:
    write(db, 1)
    for options in ({"endingSeq": 5}, {"endingSeq": '{"a": 5}'}, {"endingTimestamp": 5}):
        with pytest.raises(RequestError, match="is for batch queries"):
            Query(path, **options)
    with pytest.raises(TopicNotFoundError):
        Query(path, topic="b")


def test_an_offset_of_another_query_is_refused(path: Path, db: headwater.Database) -> None:
    write(db, 1)
    query = Query(path)
    with pytest.raises(RequestError, match="none of this source"):
        query.reader.latestOffset({"0": {"orders": 5}}, ReadAllAvailable())


# -- in a session


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "table"


def stream(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.readStream.format("headwater").option("path", str(path))
    for name, value in {"topic": "a", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def land(spark: SparkSession, frame: DataFrame, target: Path, **options: Any) -> Any:
    """One availableNow run into Parquet files."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(target))
        .option("checkpointLocation", str(target) + ".checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def landed(spark: SparkSession, target: Path) -> list[int]:
    return [row.seq for row in spark.read.parquet(str(target)).orderBy("seq").collect()]


@pytest.mark.spark
def test_runs_go_on_from_their_checkpoint_and_read_each_record_once(
    spark: SparkSession, path: Path, target: Path, db: headwater.Database
) -> None:
    write(db, 50)
    frame = stream(spark, path, maxRecordsPerTrigger=20, fields="n long")
    query = land(spark, frame, target)
    assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [
        20, 20, 10,
    ]  # fmt: skip
    assert landed(spark, target) == list(range(1, 51))
    land(spark, frame, target)
    assert landed(spark, target) == list(range(1, 51)), "nothing new"
    write(db, 30)
    db.checkpoint()
    land(spark, frame, target)
    assert landed(spark, target) == list(range(1, 81))
    assert spark.read.parquet(str(target)).selectExpr("sum(n)").collect()[0][0] == 80 * 81 // 2


@pytest.mark.spark
def test_a_lost_checkpoint_begins_again_where_the_options_say(
    spark: SparkSession, path: Path, target: Path, db: headwater.Database
) -> None:
    write(db, 20)
    land(spark, stream(spark, path), target)
    shutil.rmtree(str(target) + ".checkpoint")
    shutil.rmtree(target)
    land(spark, stream(spark, path, startingSeq=11), target)
    assert landed(spark, target) == list(range(11, 21))


@pytest.mark.spark
def test_progress_tells_the_true_lag(
    spark: SparkSession, path: Path, target: Path, db: headwater.Database
) -> None:
    write(db, 50)
    query = land(spark, stream(spark, path, maxRecordsPerTrigger=20), target)
    source = query.recentProgress[0]["sources"][0]
    ends = [
        json.loads(source[name])["topics"]["a"]["seq"] for name in ("endOffset", "latestOffset")
    ]
    assert ends == [20, 50]


@pytest.mark.spark
def test_a_query_overtaken_by_retention_fails_with_topic_and_range(
    spark: SparkSession, path: Path, target: Path, db: headwater.Database
) -> None:
    write(db, 10)
    land(spark, stream(spark, path), target)
    write(db, 50)
    db.create("a", cap_records=15)
    with pytest.raises(Exception, match="DataLossError") as caught:
        land(spark, stream(spark, path), target)
    assert "topic 'a' has lost seqs 11 to 45 (cap)" in str(explain(caught.value))
    land(spark, stream(spark, path, failOnDataLoss=False), target)
    table = spark.read.parquet(str(target))
    gap = table.where("gap is not null").collect()[0].gap
    assert (gap.gap_from, gap.gap_to, gap.reason) == (11, 45, "cap")
    kept = [row.seq for row in table.where("gap is null").orderBy("seq").collect()]
    assert kept == [*range(1, 11), *range(46, 61)]


@pytest.mark.spark
def test_a_running_query_keeps_up_with_a_writer(
    spark: SparkSession, path: Path, db: headwater.Database
) -> None:
    write(db, 10)
    seen: list[int] = []

    def take(batch: DataFrame, _number: int) -> None:
        seen.extend(row.seq for row in batch.select("seq").collect())

    query = stream(spark, path).writeStream.foreachBatch(take).start()
    try:
        for _ in range(5):
            write(db, 10)
            db.checkpoint()
            query.processAllAvailable()
        assert sorted(seen) == list(range(1, 61))
        assert len(seen) == 60
    finally:
        query.stop()
