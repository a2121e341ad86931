"""The topic of transitions through every protocol: a follower of topics can follow machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import headwater
from headwater import Record
from tests.kafka.broker import Broker, running_broker
from tests.server.running_server import eventually

TOPIC, AMONG_KAFKAS = "machines:transitions", "machines.transitions"
LAMP: dict[str, Any] = {
    "states": ["off", "on"],
    "initial": "off",
    "transitions": [
        {"from": "off", "event": "PRESS", "to": "on"},
        {"from": "on", "event": "PRESS", "to": "off"},
    ],
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path / "data") as found:
        yield found


@pytest.fixture
def client(broker: Broker) -> Iterator[headwater.Client]:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as found:
        yield found


def press(client: headwater.Client, times: int) -> list[int]:
    return [client.machines.apply_event("lamp", "PRESS").wal_offset for _ in range(times)]


def begin(client: headwater.Client) -> None:
    client.machines.put_machine("lamp", 1, LAMP)
    client.machines.create_instance("lamp", 1, "lamp")


def is_there(client: headwater.Client) -> bool:
    return TOPIC in [each.topic for each in client.topics()]


def test_the_topic_is_there_before_the_first_transition(client: headwater.Client) -> None:
    begin(client)
    eventually(lambda: is_there(client))
    assert client.state(TOPIC).count == 0


def test_streams_and_queues_follow_machines(client: headwater.Client) -> None:
    begin(client)
    eventually(lambda: is_there(client))
    client.create("work", type="queue")
    client.put_router("to-work", source=TOPIC, dest="work")
    moved = press(client, 3)
    followed = client.watch(TOPIC)
    found = [next(followed) for _ in moved]
    assert [each.data["wal_offset"] for each in found if isinstance(each, Record)] == moved
    jobs: list[Any] = []
    while len(jobs) < len(moved):
        jobs += client.claim("work", "follower", 3, wait_ms=1_000).jobs
    assert [each.record.data["wal_offset"] for each in jobs] == moved


def test_kafka_clients_follow_machines_under_a_name_they_know(
    broker: Broker, client: headwater.Client
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "followers",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": True,
            "topic.metadata.refresh.interval.ms": 100,
        }
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    try:
        # There are no machines yet, and nobody takes their place meanwhile.
        consumer.subscribe([AMONG_KAFKAS])
        consumer.poll(0.5)
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic(AMONG_KAFKAS, 3)])[AMONG_KAFKAS].result(20)
        assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        begin(client)
        moved = press(client, 3)
        told: list[Any] = []
        for _ in range(200):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                assert message.key() == b"lamp"
                told.append(json.loads(message.value() or b"")["wal_offset"])
            if len(told) == len(moved):
                break
        assert told == moved
        assert AMONG_KAFKAS in admin.list_topics(timeout=20).topics
        assert TOPIC not in admin.list_topics(timeout=20).topics
    finally:
        consumer.close()
