"""kafka-python, as its users write it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.kafka_python import kafka
from tests.server.running_server import eventually

CODECS = (None, "gzip", "zstd")  # for the others it wants packages of its own
PATIENCE_S = 30

# This client leaves a connection that was being made while it was closed to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What it left is found here, not in a test of something else."""
    yield
    gc.collect()


def produce(broker: Broker, topic: str, values: list[bytes], **more: Any) -> list[Any]:
    """What the server said of each."""
    with closing(kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, **more)) as producer:
        waiting = [
            producer.send(
                topic, value, key=b"key %d" % number, headers=[("number", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number * 1_000, partition=0,
            )
            for number, value in enumerate(values)
        ]  # fmt: skip
        producer.flush(PATIENCE_S)
        return [each.get(PATIENCE_S) for each in waiting]


def consumer_of(broker: Broker, group: str | None = None, **more: Any) -> Any:
    chosen = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000, **more}
    return kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, **chosen)


def read(consumer: Any, count: int) -> list[Any]:
    found = []
    for record in consumer:
        found.append(record)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {count} records came")


@pytest.mark.parametrize(
    ("codec", "acks"), [*((codec, "all") for codec in CODECS), (None, 0), (None, 1)]
)
def test_every_record_comes_back_as_it_was_sent(
    broker: Broker, name: str, codec: str | None, acks: str | int
) -> None:
    values = [b"value %d " % number * 20 for number in range(50)]
    told = produce(broker, name, values, compression_type=codec, acks=acks)
    if acks != 0:
        assert [each.offset for each in told] == list(range(50))
    place = kafka.TopicPartition(name, 0)
    with closing(consumer_of(broker)) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning()
        found = read(consumer, 50)
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(50))
    assert (found[7].key, list(found[7].headers)) == (b"key 7", [("number", b"7")])
    assert found[7].timestamp == 1_700_000_007_000


def test_an_idempotent_producer_writes_each_record_once(broker: Broker, name: str) -> None:
    values = [b"%d" % number for number in range(200)]
    told = produce(broker, name, values, enable_idempotence=True)
    assert [each.offset for each in told] == list(range(200))


def test_reading_begins_at_an_offset_or_a_time(broker: Broker, name: str) -> None:
    produce(broker, name, [b"%d" % number for number in range(20)])
    place = kafka.TopicPartition(name, 0)
    with closing(consumer_of(broker)) as consumer:
        consumer.assign([place])
        consumer.seek(place, 17)
        assert [record.value for record in read(consumer, 3)] == [b"17", b"18", b"19"]
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 20}
        found = consumer.offsets_for_times({place: 1_700_000_004_500})[place]
        assert (found.offset, found.timestamp) == (5, 1_700_000_005_000)


def test_a_group_goes_on_where_it_was(broker: Broker, name: str) -> None:
    produce(broker, name, [b"%d" % number for number in range(10)])
    with closing(consumer_of(broker, name, enable_auto_commit=False)) as consumer:
        consumer.subscribe([name])
        read(consumer, 4)
        place = kafka.TopicPartition(name, 0)
        consumer.commit({place: kafka.OffsetAndMetadata(4, "a note", -1)})
        assert consumer.committed(place) == 4
    with closing(consumer_of(broker, name)) as consumer:
        consumer.subscribe([name])
        assert [record.offset for record in read(consumer, 6)] == [4, 5, 6, 7, 8, 9]


def test_two_members_share_a_topic(broker: Broker, name: str) -> None:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics([kafka.admin.NewTopic(name, 4, 1)])
    held: dict[int, set[int]] = {}
    done = threading.Event()

    def read(number: int) -> None:
        """In a thread of its own, and patiently: kafka-python forgets an assignment that comes
        just when a poll ends."""
        with closing(consumer_of(broker, name)) as consumer:
            consumer.subscribe([name])
            while not done.is_set():
                consumer.poll(1_000)
                held[number] = {place.partition for place in consumer.assignment()}

    members = [threading.Thread(target=read, args=(number,), daemon=True) for number in (0, 1)]
    for member in members:
        member.start()
    try:
        eventually(lambda: sorted(map(sorted, held.values())) == [[0, 1], [2, 3]])
    finally:
        done.set()
        for member in members:
            member.join(PATIENCE_S)


def test_topics_are_made_described_changed_and_deleted(broker: Broker, name: str) -> None:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics(
            [kafka.admin.NewTopic(name, 2, 1, topic_configs={"retention.ms": "86400000"})]
        )
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        admin.create_partitions({name: kafka.admin.NewPartitions(5)})
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 5
        admin.delete_topics([name])
        assert name not in admin.list_topics()
