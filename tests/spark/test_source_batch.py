"""`spark.read.format("headwater")` in a real session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, parse_json

import headwater
import headwater.spark
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.spark.runtime.filter_pushdown import PUSHDOWN, pushes_safely
from headwater.spark.sessions.spark_errors import explain
from headwater.spark.source.data_source import HeadwaterDataSource, PushingDataSource, source_class

pytestmark = pytest.mark.spark

COUNT = 3_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two topics, mostly in segments of a hundred, the newest in the log of a living owner."""
    directory = tmp_path_factory.mktemp("batch") / "data"
    settings = EngineSettings(
        segments=SegmentSettings(segment_max_events=100), checkpoint_interval_ms=3_600_000
    )
    with headwater.open(directory, settings=settings) as db:
        for start in range(1, COUNT + 1, 100):
            records = [
                {
                    "data": {"user": f"u{n % 7}", "amount": n, "at": "2024-05-01T00:00:00Z"},
                    "tag": None if n % 10 == 0 else f"tag{n % 3}",
                    "node": "web",
                    "meta": {"n": n},
                }
                for n in range(start, start + 100)
            ]
            db.append("orders", records)
            db.append("clicks", [{"data": n} for n in range(10)])
            if start == COUNT - 499:
                db.checkpoint()
        yield directory


def load(spark: SparkSession, path: Path, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("headwater").option("path", str(path))
    for name, value in {"topic": "orders", **options}.items():
        if value is not None:
            reader = reader.option(name, str(value))
    return (reader if schema is None else reader.schema(schema)).load()


def test_every_column_comes_through_as_it_was_written(spark: SparkSession, path: Path) -> None:
    rows = load(spark, path).orderBy("seq").collect()
    assert len(rows) == COUNT
    assert [row.seq for row in rows] == list(range(1, COUNT + 1))
    row = rows[10]
    assert (row.topic, row.seq, row.node, row.tag) == ("orders", 11, "web", "tag2")
    assert row.data == '{"user":"u4","amount":11,"at":"2024-05-01T00:00:00Z"}'
    assert (row.meta, row.gap) == ('{"n":11}', None)
    assert rows[9].tag is None


def test_aggregates_over_fields_give_the_right_sums(spark: SparkSession, path: Path) -> None:
    fields = load(spark, path, fields="user string, amount long, at timestamp")
    read = fields.groupBy("user").sum("amount").collect()
    expected = {f"u{k}": sum(n for n in range(1, COUNT + 1) if n % 7 == k) for k in range(7)}
    assert {row.user: row["sum(amount)"] for row in read} == expected
    assert fields.selectExpr("min(at)").collect()[0][0].year == 2024
    smaller = load(spark, path, schema="amount long")
    assert smaller.columns == ["amount"]
    assert smaller.selectExpr("sum(amount)").collect()[0][0] == COUNT * (COUNT + 1) // 2


def test_several_topics_are_one_table(spark: SparkSession, path: Path) -> None:
    read = load(spark, path, topic=None, topicPattern=".*").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in read} == {"orders": COUNT, "clicks": COUNT // 10}


def test_variants_come_natively_and_through_parse_json(spark: SparkSession, path: Path) -> None:
    options: dict[str, Any] = {"endingSeq": 50}
    native = load(spark, path, payload="variant", **options)
    assert native.schema["data"].dataType.simpleString() == "variant"
    amounts = "sum(variant_get(data, '$.amount', 'long'))"
    assert native.selectExpr(amounts).collect()[0][0] == 50 * 51 // 2
    by_spark = load(spark, path, **options).withColumn("data", parse_json(col("data")))
    assert by_spark.selectExpr(amounts).collect()[0][0] == 50 * 51 // 2


def test_binary_payloads_are_the_stored_bytes(spark: SparkSession, path: Path) -> None:
    row = load(spark, path, payload="binary", startingSeq=1, endingSeq=1).collect()[0]
    assert bytes(row.data) == b'{"user":"u1","amount":1,"at":"2024-05-01T00:00:00Z"}'


# -- filters


def scanned(frame: DataFrame) -> int:
    """Rows that left the source, by Spark's own count."""
    frame.collect()
    plan: Any = frame._jdf.queryExecution().executedPlan()
    leaves = plan.collectLeaves()
    return sum(
        int(leaves.apply(at).metrics().apply("numOutputRows").value())
        for at in range(leaves.size())
    )


@pytest.mark.parametrize(
    ("condition", "rows", "read"),
    [
        ("seq = 1234", 1, 1),
        ("seq in (5, 2999)", 2, 2),
        ("seq > 2990", 10, 10),
        ("seq between 100 and 199", 100, 100),
        ("tag = 'tag1' and seq <= 30", 9, 9),
        ("tag is null and seq <= 30", 3, 3),
        ("tag like 'tag%' and seq <= 30", 27, 27),
        ("topic = 'clicks'", 0, 0),
        ("tag <> 'tag1' and seq <= 30", 18, 18),
        ("data like '%\"amount\":7,%'", 1, COUNT),
        ("seq = 5 or tag = 'tag0'", 901, COUNT),
    ],
)
def test_filters_are_pushed_and_what_is_not_is_left_to_spark(
    spark: SparkSession, path: Path, condition: str, rows: int, read: int
) -> None:
    frame = load(spark, path).where(condition)
    assert len(frame.collect()) == rows
    assert scanned(frame) == read


def test_times_are_filtered_exactly(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path)
    times = [row.ts for row in frame.select("ts").orderBy("seq").collect()]
    middle = times[COUNT // 2]
    younger = frame.where(col("ts") >= middle)
    assert younger.count() == len([each for each in times if each >= middle])
    assert scanned(younger) == len([each for each in times if each >= middle])
    assert frame.where(col("ts") == middle).count() == times.count(middle)


def test_a_point_lookup_reads_one_partition_of_one_record(spark: SparkSession, path: Path) -> None:
    whole = load(spark, path, rowsPerPartition=100)
    assert whole.rdd.getNumPartitions() == COUNT // 100
    assert whole.where("seq = 1700").rdd.getNumPartitions() == 1


def test_a_filter_of_one_query_never_touches_another_on_the_same_frame(
    spark: SparkSession, path: Path
) -> None:
    frame = load(spark, path)
    assert frame.where("seq <= 10").count() == 10
    assert frame.count() == COUNT
    both = frame.where("seq <= 20").union(frame.where("seq > 2990"))
    assert both.count() == 30
    low, high = frame.where("seq <= 50").alias("low"), frame.where("seq > 20").alias("high")
    assert low.join(high, "seq").count() == 30
    frame.createOrReplaceTempView("orders_seen")
    read = spark.sql(
        "select (select count(*) from orders_seen where seq <= 20) a, "
        "(select count(*) from orders_seen where tag = 'tag1') b, "
        "(select count(*) from orders_seen) c"
    ).collect()[0]
    assert (read.a, read.b, read.c) == (20, COUNT * 3 // 10, COUNT)


def test_a_frame_sees_what_was_written_since_it_was_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    with headwater.open(tmp_path / "data") as db:
        db.append("orders", [{"data": 1}, {"data": 2}])
        frame = load(spark, tmp_path / "data")
        assert frame.count() == 2
        db.append("orders", {"data": 3})
        assert frame.count() == 3
        db.delete("orders", before_seq=3)
        assert frame.count() == 1


def test_without_the_rule_or_pushdown_filters_are_left_to_spark(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_class(spark) is PushingDataSource
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert source_class(spark) is HeadwaterDataSource
        spark.dataSource.register(HeadwaterDataSource)
        frame = load(spark, path)
        assert frame.where("seq <= 10").count() == 10
        assert frame.count() == COUNT
    finally:
        spark.conf.set(PUSHDOWN, "true")
        headwater.spark.register(spark)
    monkeypatch.setattr("headwater.spark.runtime.filter_pushdown._JAVA", "public class Broken {")
    monkeypatch.setattr("headwater.spark.runtime.filter_pushdown._RULE", "Broken")
    assert not pushes_safely(spark)


# -- what goes wrong


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"statingSeq": 5}, "did you mean startingSeq"),
        ({"payload": "avro"}, "option payload must be one of"),
        ({"fields": "a strin"}, "there is no type 'strin'"),
        ({"topic": "nothing"}, "there is no topic 'nothing'"),
        ({"topic": "kafka:orders:0"}, "there is no topic 'kafka:orders:0' in what is read"),
        ({"fields": "user long"}, "the payload of seq 1 of topic 'orders'"),
        ({"endingTimestamp": "noon"}, "option endingTimestamp"),
    ],
)
def test_a_mistake_is_told_in_words_through_spark(
    spark: SparkSession, path: Path, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, path, **options).collect()
    ours = explain(caught.value)
    assert ours is not None
    assert text in str(ours)


def test_a_corrupt_segment_fails_the_query_with_file_and_offset(
    spark: SparkSession, tmp_path: Path
) -> None:
    with headwater.open(tmp_path / "data") as db:
        db.append("orders", [{"data": n} for n in range(100)])
    (file,) = (tmp_path / "data").glob("topics/*/*.data")
    contents = bytearray(file.read_bytes())
    contents[32] ^= 1
    file.write_bytes(contents)
    with pytest.raises(PySparkException) as caught:
        load(spark, tmp_path / "data").count()
    assert f"seq 1: checksum does not match in {file} at byte 0" in str(explain(caught.value))
    assert load(spark, tmp_path / "data", verify=False).count() == 100
    rows = load(spark, tmp_path / "data", failOnDataLoss=False).where("gap is not null").collect()
    assert [(row.gap.gap_from, row.gap.gap_to) for row in rows] == [(1, 1)]


def test_an_empty_topic_is_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as db:
        db.create("orders")
    frame = load(spark, tmp_path / "data", fields="a long")
    assert frame.count() == 0
    assert frame.selectExpr("sum(a)").collect()[0][0] is None


def test_workers_are_forked_from_a_process_that_has_everything_loaded(spark: SparkSession) -> None:
    def frozen(batches: Iterator[Any]) -> Iterator[Any]:
        import gc

        import pyarrow

        for _ in batches:
            yield pyarrow.record_batch([pyarrow.array([gc.get_freeze_count()])], ["frozen"])

    read = spark.range(4).mapInArrow(frozen, "frozen long").collect()
    assert all(row.frozen > 0 for row in read)
