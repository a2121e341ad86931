"""aiokafka, as its users write it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.kafka.broker import Broker

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 30.0


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 2 * PATIENCE_S))


async def produce(broker: Broker, topic: str, values: list[bytes], **more: Any) -> list[Any]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **more) as producer:
        waiting = [
            await producer.send(
                topic, value, key=b"key %d" % number, headers=[("number", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number * 1_000, partition=0,
            )
            for number, value in enumerate(values)
        ]  # fmt: skip
        return list(await asyncio.gather(*waiting))


def consumer_of(broker: Broker, *topics: str, group: str | None = None) -> Any:
    return AIOKafkaConsumer(
        *topics, bootstrap_servers=broker.bootstrap, group_id=group,
        auto_offset_reset="earliest", enable_auto_commit=False, heartbeat_interval_ms=100,
    )  # fmt: skip


async def read(consumer: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), PATIENCE_S) for _ in range(count)]


@pytest.mark.parametrize(
    ("codec", "acks"), [*((codec, "all") for codec in CODECS), (None, 0), (None, 1)]
)
def test_every_record_comes_back_as_it_was_sent(
    broker: Broker, name: str, codec: str | None, acks: str | int
) -> None:
    async def work() -> None:
        values = [b"value %d " % number * 20 for number in range(50)]
        told = await produce(broker, name, values, compression_type=codec, acks=acks)
        if acks != 0:
            assert [each.offset for each in told] == list(range(50))
        async with consumer_of(broker) as consumer:
            consumer.assign([TopicPartition(name, 0)])
            found = await read(consumer, 50)
        assert [record.value for record in found] == values
        assert [record.offset for record in found] == list(range(50))
        assert (found[7].key, found[7].headers) == (b"key 7", (("number", b"7"),))

    run(work())


def test_an_idempotent_producer_writes_each_record_once(broker: Broker, name: str) -> None:
    async def work() -> None:
        values = [b"%d" % number for number in range(200)]
        told = await produce(broker, name, values, enable_idempotence=True)
        assert [each.offset for each in told] == list(range(200))

    run(work())


def test_reading_begins_at_an_offset_or_a_time(broker: Broker, name: str) -> None:
    async def work() -> None:
        await produce(broker, name, [b"%d" % number for number in range(20)])
        place = TopicPartition(name, 0)
        async with consumer_of(broker) as consumer:
            consumer.assign([place])
            consumer.seek(place, 18)
            assert [record.value for record in await read(consumer, 2)] == [b"18", b"19"]
            found = (await consumer.offsets_for_times({place: 1_700_000_004_500}))[place]
            assert found.offset == 5
            assert await consumer.end_offsets([place]) == {place: 20}

    run(work())


def test_two_members_share_a_topic_and_their_offsets_stay(broker: Broker, name: str) -> None:
    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, 4, 1)])
        await admin.close()
        await produce(broker, name, [b"one", b"two"])
        async with consumer_of(broker, name, group=name) as first:
            await read(first, 2)
            async with consumer_of(broker, name, group=name) as second:
                for _ in range(600):
                    await asyncio.wait_for(first.getmany(timeout_ms=50), PATIENCE_S)
                    await asyncio.wait_for(second.getmany(timeout_ms=50), PATIENCE_S)
                    if len(first.assignment()) == len(second.assignment()) == 2:
                        break
                assert len(first.assignment() | second.assignment()) == 4
            for _ in range(600):
                await asyncio.wait_for(first.getmany(timeout_ms=50), PATIENCE_S)
                if len(first.assignment()) == 4:
                    break
            place = TopicPartition(name, 0)
            await first.commit({place: 2})
        async with consumer_of(broker, name, group=name) as later:
            assert await later.committed(place) == 2

    run(work())


def test_topics_are_made_grown_and_deleted(broker: Broker, name: str) -> None:
    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, 2, 1)])
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 2
            await admin.create_partitions({name: NewPartitions(3)})
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 3
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    run(work())
