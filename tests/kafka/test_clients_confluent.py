"""librdkafka, through confluent-kafka, as its users write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.kafka.broker import Broker

admins: Any = confluent_kafka.admin  # exports nothing in the words of a type checker
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FAST = [*((codec, "all") for codec in CODECS), ("none", "0"), ("none", "1")]
WIDE = [(codec, acks) for codec in CODECS for acks in ("0", "1", "all")]
PATIENCE_S = 30.0
QUICK = {"socket.timeout.ms": 20_000, "log_level": 0}
GROUP = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 100,
    "fetch.wait.max.ms": 50,
}


def options(broker: Broker, **more: Any) -> dict[str, Any]:
    told = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": broker.bootstrap, **QUICK, **told}


def produce(broker: Broker, topic: str, values: list[bytes], **more: Any) -> list[Message]:
    """Send them all, wait, and give what the server said of each."""
    told: list[Message] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        told.append(message)

    producer = Producer(options(broker, linger_ms=2, **more))
    for number, value in enumerate(values):
        producer.produce(
            topic, value, key=b"key %d" % number, headers=[("number", b"%d" % number)],
            timestamp=1_700_000_000_000 + number * 1_000, on_delivery=note,
            partition=0,
        )  # fmt: skip
    assert producer.flush(PATIENCE_S) == 0
    return told


@contextmanager
def consuming(broker: Broker, group: str, **more: Any) -> Iterator[Consumer]:
    consumer = Consumer({**options(broker, group_id=group), **GROUP, **more})
    with closing(consumer):
        yield consumer


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        some = consumer.consume(count - len(found), timeout=PATIENCE_S)
        assert some, f"only {len(found)} of {count} records came"
        for message in some:
            assert message.error() is None, message.error()
        found += some
    return found


def poll_until(consumers: list[Consumer], condition: Callable[[], bool]) -> list[Message]:
    """Let all of them live until something holds."""
    found: list[Message] = []
    for _ in range(2_000):
        if condition():
            return found
        for consumer in consumers:
            message = consumer.poll(0.01)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
    raise AssertionError("it never happened")


@pytest.mark.parametrize(("codec", "acks"), FAST)
def test_every_record_comes_back_as_it_was_sent(
    broker: Broker, name: str, codec: str, acks: str
) -> None:
    values = [b"value %d " % number * 20 for number in range(50)]
    told = produce(broker, name, values, compression_type=codec, acks=acks)
    if acks != "0":
        assert [message.offset() for message in told] == list(range(50))
    with consuming(broker, name) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        found = read(consumer, len(values))
    assert [message.offset() for message in found] == list(range(50))
    assert [message.value() for message in found] == values
    assert [message.key() for message in found] == [b"key %d" % number for number in range(50)]
    assert found[7].headers() == [("number", b"7")]
    assert found[7].timestamp()[1] == 1_700_000_007_000


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "acks"), WIDE)
def test_ten_thousand_records_of_all_lengths_come_back(
    broker: Broker, name: str, codec: str, acks: str
) -> None:
    values = [b"%d" % number * (number % 97) for number in range(10_000)]
    produce(broker, name, values, compression_type=codec, acks=acks)
    with consuming(broker, name) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        assert [message.value() for message in read(consumer, len(values))] == values


def test_an_idempotent_producer_writes_each_record_once(broker: Broker, name: str) -> None:
    values = [b"%d" % number for number in range(500)]
    told = produce(broker, name, values, enable_idempotence=True)
    assert [message.offset() for message in told] == list(range(500))
    with consuming(broker, name) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        assert [message.value() for message in read(consumer, 500)] == values
        assert consumer.get_watermark_offsets(TopicPartition(name, 0)) == (0, 500)


def test_reading_begins_at_an_offset_or_a_time(broker: Broker, name: str) -> None:
    produce(broker, name, [b"%d" % number for number in range(20)])
    with consuming(broker, name) as consumer:
        consumer.assign([TopicPartition(name, 0, 13)])
        assert [message.value() for message in read(consumer, 7)] == [
            b"%d" % number for number in range(13, 20)
        ]
        # Record n is of second n.
        for asked_ms, wanted in ((0, 0), (5_000, 5), (5_001, 6), (19_000, 19), (19_001, -1)):
            (found,) = consumer.offsets_for_times(
                [TopicPartition(name, 0, 1_700_000_000_000 + asked_ms)], timeout=PATIENCE_S
            )
            assert found.offset == wanted


def test_three_members_share_a_topic_as_they_join_and_leave(broker: Broker, name: str) -> None:
    admin = admins.AdminClient(options(broker))
    admin.create_topics([admins.NewTopic(name, 6, 1)])[name].result(PATIENCE_S)
    with consuming(broker, name) as first, consuming(broker, name) as second:
        members = [first]

        def settled() -> bool:
            held = [[each.partition for each in member.assignment()] for member in members]
            return all(held) and sorted(chain.from_iterable(held)) == list(range(6))

        first.subscribe([name])
        poll_until(members, settled)
        members.append(second)
        second.subscribe([name])
        poll_until(members, settled)
        assert len(second.assignment()) == 3
        with consuming(broker, name) as third:
            members.append(third)
            third.subscribe([name])
            poll_until(members, settled)
            assert [len(member.assignment()) for member in members] == [2, 2, 2]
            members.remove(third)
        poll_until(members, settled)
        assert [len(member.assignment()) for member in members] == [3, 3]
        producer = Producer(options(broker))
        for number in range(60):
            producer.produce(name, b"%d" % number, partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0
        seen: list[Message] = []
        poll_until_seen(members, seen, 60)
        assert sorted(int(message.value() or b"") for message in seen) == list(range(60))


def poll_until_seen(members: list[Consumer], seen: list[Message], count: int) -> None:
    for _ in range(2_000):
        for member in members:
            message = member.poll(0.01)
            if message is not None:
                assert message.error() is None
                seen.append(message)
        if len(seen) >= count:
            return
    raise AssertionError(f"only {len(seen)} of {count} records came")


def test_committed_offsets_are_where_the_next_member_begins(broker: Broker, name: str) -> None:
    produce(broker, name, [b"%d" % number for number in range(10)])
    with consuming(broker, name) as consumer:
        consumer.subscribe([name])
        read(consumer, 4)
        place = TopicPartition(name, 0, 4, metadata="a note")
        consumer.commit(offsets=[place], asynchronous=False)
    with consuming(broker, name) as consumer:
        (found,) = consumer.committed([TopicPartition(name, 0)], timeout=PATIENCE_S)
        assert (found.offset, found.metadata) == (4, "a note")
        consumer.subscribe([name])
        assert [message.value() for message in read(consumer, 6)] == [
            b"4",
            b"5",
            b"6",
            b"7",
            b"8",
            b"9",
        ]


def test_topics_are_made_described_changed_and_deleted(broker: Broker, name: str) -> None:
    admin = admins.AdminClient(options(broker))
    made = admins.NewTopic(name, 2, 1, config={"retention.ms": "86400000"})
    admin.create_topics([made])[name].result(PATIENCE_S)
    with pytest.raises(KafkaException) as again:
        admin.create_topics([made])[name].result(PATIENCE_S)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    described = admin.list_topics(name, timeout=PATIENCE_S).topics[name]
    assert sorted(described.partitions) == [0, 1]
    admin.create_partitions([admins.NewPartitions(name, 5)])[name].result(PATIENCE_S)
    assert len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) == 5
    which = admins.ConfigResource(admins.ResourceType.TOPIC, name)
    configs = admin.describe_configs([which])[which].result(PATIENCE_S)
    assert configs["retention.ms"].value == "86400000"
    operation = admins.AlterConfigOpType.SET
    entry = admins.ConfigEntry("retention.ms", "1000000", incremental_operation=operation)
    change = admins.ConfigResource(admins.ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(PATIENCE_S)
    configs = admin.describe_configs([which])[which].result(PATIENCE_S)
    assert configs["retention.ms"].value == "1000000"
    admin.delete_topics([name])[name].result(PATIENCE_S)
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_groups_and_the_cluster_are_described(broker: Broker, name: str) -> None:
    produce(broker, name, [b"one"])
    admin = admins.AdminClient(options(broker))
    with consuming(broker, name) as consumer:
        consumer.subscribe([name])
        read(consumer, 1)
        consumer.commit(asynchronous=False)
        group = admin.describe_consumer_groups([name])[name].result(PATIENCE_S)
        assert len(group.members) == 1
        assert [each.topic for each in group.members[0].assignment.topic_partitions] == [name]
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        assert name in {each.group_id for each in listed.valid}
    admin.delete_consumer_groups([name])[name].result(PATIENCE_S)
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert name not in {each.group_id for each in listed.valid}
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert cluster.cluster_id == "headwater"
    assert [node.id for node in cluster.nodes] == [1]


def test_deleted_records_are_not_read_again(broker: Broker, name: str) -> None:
    produce(broker, name, [b"%d" % number for number in range(10)])
    admin = admins.AdminClient(options(broker))
    place = TopicPartition(name, 0, 6)
    assert admin.delete_records([place])[place].result(PATIENCE_S).low_watermark == 6
    with consuming(broker, name) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        assert [message.offset() for message in read(consumer, 4)] == [6, 7, 8, 9]
        assert consumer.get_watermark_offsets(place, timeout=PATIENCE_S) == (6, 10)
