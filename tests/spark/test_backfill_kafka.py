"""A Kafka topic becomes records of a topic, each once; read through Headwater's own Kafka port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headwater.client import Client
from headwater.core.errors import RequestError
from headwater.spark.jobs import origins
from headwater.spark.jobs.backfill import BackfillOptions, BackfillReport, run
from headwater.spark.jobs.job import Place
from headwater.spark.jobs.origins import (
    Origin,
    parse_kafka_origin,
    plan_kafka_origin,
    read_kafka_range,
)
from tests.kafka.broker import Broker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("origin") / "data") as started:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(60):
            producer.produce(
                "clicks",
                b'{"n":%d}' % number if number % 10 else b"\xff not text",
                key=b"k%d" % number,
                headers=[("trace", b"t%d" % number)],
                partition=0,
            )
        producer.flush()
        yield started


def test_a_location_tells_cluster_topic_and_ends() -> None:
    origin = parse_kafka_origin("kafka://me:secret@one:9092,two:9093/clicks?ends=5,7")
    assert (origin.topic, origin.ends) == ("clicks", (5, 7))
    assert str(origin) == "kafka://one:9092,two:9093/clicks"
    for wrong in ("kafka://", "kafka://one:9092", "http://one/clicks", "kafka://one/t?from=3"):
        with pytest.raises(RequestError):
            parse_kafka_origin(wrong)


def test_tasks_read_ranges_that_do_not_overlap(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "RANGE_RECORDS", 25)
    origin = parse_kafka_origin(f"kafka://{broker.bootstrap}/clicks?ends=55")
    ranges = plan_kafka_origin(origin)
    assert [(range_.first, range_.end) for range_ in ranges] == [(0, 25), (25, 50), (50, 55)]
    rows = [
        row for range_ in ranges for batch in read_kafka_range(range_) for row in batch.to_pylist()
    ]
    assert [row["$block"] for row in rows] == list(range(55))
    assert (rows[1]["data"], rows[1]["tag"]) == ('{"n":1}', "k1")
    for wrong in ("clicks?ends=99", "clicks?ends=1,2", "nothing"):
        with pytest.raises(RequestError):
            plan_kafka_origin(parse_kafka_origin(f"kafka://{broker.bootstrap}/{wrong}"))


@pytest.mark.spark
def test_a_kafka_topic_is_written_once_and_in_order(spark: SparkSession, broker: Broker) -> None:
    url = f"http://127.0.0.1:{broker.port}"

    def fill(location: str) -> BackfillReport:
        place = Place(url=url, topics=("copy",))
        origin = Origin(format="kafka", location=location)
        return run(spark, BackfillOptions(place=place, origin=origin, in_order=True))

    first = fill(f"kafka://{broker.bootstrap}/clicks")
    again = fill(f"kafka://{broker.bootstrap}/clicks?ends=60")
    assert (first.ok, first.records, first.write_id) == (True, 60, again.write_id)
    with Client(url) as client:
        copied = client.diff("copy", limit=1_000).records
        original = client.diff("kafka:clicks:0", limit=1_000).records
    assert [(each.data, each.tag) for each in copied] == [
        (each.data, each.tag) for each in original
    ]
    assert len(copied) == 60
    assert copied[0].meta is not None
    assert original[0].meta is not None
    assert {**original[0].meta, **copied[0].meta} == copied[0].meta


@pytest.mark.spark
def test_the_source_reads_a_partition_through_the_server(
    spark: SparkSession, broker: Broker
) -> None:
    source = spark.read.format("headwater").option("topic", "kafka:clicks:0")
    rows = source.option("url", f"http://127.0.0.1:{broker.port}").load().orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(1, 61))
    assert (rows[1].tag, rows[1].data) == ("k1", '{"n":1}')
