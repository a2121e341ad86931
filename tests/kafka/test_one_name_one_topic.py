"""One name is one topic: a bare name that another protocol uses is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import headwater
from headwater.core.errors import (
    HeadwaterError,
    InvalidRequestError,
    NotAQueueError,
    TopicExistsIncompatibleError,
    TopicNotFoundError,
)
from headwater.format.kafka.names import parse_partition_name
from tests.kafka.broker import Broker, running_broker
from tests.kafka.protocols import Target, over_http, over_kafka
from tests.server.test_websocket import open_socket

MachineCall = Callable[[headwater.Client, str], Any]

READING: dict[str, MachineCall] = {
    "diff": lambda client, name: client.diff(name),
    "state": lambda client, name: client.state(name),
    "arrow": lambda client, name: client.arrow(name),
    "watch": lambda client, name: next(client.watch(name)),
    "write": lambda client, name: client.append(name, {"data": 1}, create=False),
    "delete": lambda client, name: client.delete(name, before_seq=1),
    "claim": lambda client, name: client.claim(name, "worker"),
    "nack": lambda client, name: client.nack(name, "worker", [1]),
    "source": lambda client, name: client.put_router("r", source=name, dest="away"),
}
MAKING: dict[str, MachineCall] = {
    "create": lambda client, name: client.create(name),
    "queue": lambda client, name: client.create(name, type="queue"),
    "write": lambda client, name: client.append(name, {"data": 1}),
    "with settings": lambda client, name: client.append(name, {"data": 1}, settings={"ttl_ms": 5}),
    "dest": lambda client, name: client.put_router("r", source="origin", dest=name),
    "dead letters": lambda client, name: client.create("jobs", type="queue", dead_letter=name),
}


@pytest.mark.parametrize("ask", READING.values(), ids=READING)
def test_a_topic_that_only_kafka_clients_have_is_told_under_its_other_name(
    kafka_topic: Target, ask: MachineCall
) -> None:
    with kafka_topic.client() as client:
        with pytest.raises(TopicNotFoundError, match=rf"made kafka:{kafka_topic.kafka}:0 to "):
            ask(client, kafka_topic.kafka)
        assert client.state(kafka_topic.elsewhere).head_seq == 0


@pytest.mark.parametrize("ask", MAKING.values(), ids=MAKING)
def test_no_topic_is_made_under_a_name_that_kafka_clients_have(
    kafka_topic: Target, ask: MachineCall
) -> None:
    with kafka_topic.client() as client:
        client.create("origin")
        with pytest.raises(TopicExistsIncompatibleError, match=f"kafka:{kafka_topic.kafka}:0"):
            ask(client, kafka_topic.kafka)
        assert [each.topic for each in client.topics(kafka_topic.kafka)] == []
        client.create(kafka_topic.kafka + ".more")
        listed = [each.topic for each in client.topics(kafka_topic.kafka)]
        assert listed == [kafka_topic.kafka + ".more"]


def test_a_websocket_is_told_the_other_name_too(kafka_topic: Target) -> None:
    with open_socket(kafka_topic.broker) as socket:
        socket.say("subscribe", topic=kafka_topic.kafka)
        told = socket.until("error")
        assert told["code"] == "topic_not_found"
        assert kafka_topic.elsewhere in told["message"]
        socket.say("publish", topic=kafka_topic.kafka, records=[{"data": 1}])
        told = socket.until("error")
        assert told["code"] == "topic_exists_incompatible"
        assert kafka_topic.elsewhere in told["message"]


def test_a_topic_that_both_have_had_before_goes_on(kafka_topic: Target) -> None:
    own = Target(kafka_topic.broker, kafka_topic.kafka, kafka_topic.kafka)
    database = own.broker.app.backend.ready_database
    own.broker.inside(lambda: database.engine.topics.create(own.kafka, {}))
    assert over_http(own, {"data": "own"}) == 1
    with own.client() as client:
        client.create(own.kafka, ttl_ms=60_000)
        assert [record.data for record in client.diff(own.kafka).records] == ["own"]


def test_a_name_is_taken_while_its_kafka_topic_is_on_its_way_to_the_log(
    broker: Broker, name: str
) -> None:
    store = broker.app.kafka.store
    assert store is not None

    def begin() -> tuple[bool, bool]:
        making = store.create_topic(1, name, 1)
        return making.done, broker.app.backend.space(name, None) is broker.app.backend.engine

    assert broker.inside(begin) == (False, False)


def test_another_organisations_topics_are_not_told_and_stand_in_nobodys_way(
    tmp_path: Path,
) -> None:
    keys = ("first-secret:admin", "second-secret:admin::org=2")
    users = ("two:password-two:2",)
    with running_broker(tmp_path / "data", api_keys=keys, kafka_users=users) as broker:
        admin = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "two",
                "sasl.password": "password-two",
            }
        )
        for name in ("theirs", "others"):
            admin.create_topics([NewTopic(name, 1)])[name].result(20)
        url = f"http://127.0.0.1:{broker.port}"
        with headwater.Client(url, token="first-secret") as first:
            with pytest.raises(TopicNotFoundError) as told:
                first.diff("theirs")
            assert "kafka" not in str(told.value).lower()
            first.append("theirs", {"data": 1})
        with headwater.Client(url, token="second-secret") as second:
            assert [record.data for record in second.diff("theirs").records] == [1]
            with pytest.raises(TopicExistsIncompatibleError, match="kafka:others:0"):
                second.append("others", {"data": 1})


def told_of_producing(broker: Broker, name: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 10_000})
    producer.produce(name, b"job", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(20) == 0
    return told[0]


def test_a_kafka_client_is_refused_the_name_of_a_queue(
    broker: Broker, admin: AdminClient, name: str
) -> None:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.create(name, type="queue")
        error = told_of_producing(broker, name)
        assert error is not None
        assert error.code() == KafkaError.TOPIC_EXCEPTION
        with pytest.raises(KafkaException, match="queue of Headwater's own") as refused:
            admin.create_topics([NewTopic(name, 1)])[name].result(20)
        assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION
        assert client.state(name).count == 0
        assert [each.topic for each in client.topics(f"kafka:{name}:")] == []
        client.drop(name)
        assert told_of_producing(broker, name) is None
        assert [each.data for each in client.diff(f"kafka:{name}:0").records] == ["am9i"]


WHAT_IT_CANNOT: dict[str, tuple[MachineCall, type[HeadwaterError], str]] = {
    "settings": (lambda client, name: client.create(name, ttl_ms=5), InvalidRequestError, "change"),
    "claim": (lambda client, name: client.claim(name, "w"), NotAQueueError, "need a queue"),
    "ack": (lambda client, name: client.ack(name, "w", [1]), NotAQueueError, "need a queue"),
    "nack": (lambda client, name: client.nack(name, "w", [1]), NotAQueueError, "need a queue"),
    "extend": (lambda client, name: client.extend(name, "w", [1]), NotAQueueError, "need a queue"),
    "source": (
        lambda client, name: client.put_router("r", source=name, dest="away"),
        InvalidRequestError,
        "routers are between",
    ),
    "dest": (
        lambda client, name: client.put_router("r", source="origin", dest=name),
        InvalidRequestError,
        "routers are between",
    ),
}


@pytest.mark.parametrize("what", WHAT_IT_CANNOT)
def test_what_a_partition_cannot_do_is_not_told_as_if_it_were_not_there(
    kafka_topic: Target, what: str
) -> None:
    ask, refused, why = WHAT_IT_CANNOT[what]
    with kafka_topic.client() as client:
        client.create("origin")
        with pytest.raises(refused, match=why) as told:
            ask(client, kafka_topic.elsewhere)
        assert "there is no" not in str(told.value)
        assert "partition of a Kafka topic" in str(told.value)


@pytest.mark.parametrize("letters", [248, 249])
def test_the_longest_names_of_kafka_topics_are_reached_through_every_door(
    broker: Broker, admin: AdminClient, letters: int
) -> None:
    name = "n" * letters
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    target = Target(broker, name, f"kafka:{name}:0")
    assert over_kafka(target, {"data": 1}) == 1
    assert over_http(target, {"data": 2}) == 2
    with target.client() as client:
        assert [record.data for record in client.diff(target.elsewhere).records] == [1, 2]
        assert getattr(next(client.watch(target.elsewhere)), "data", None) == 1
        with pytest.raises(InvalidRequestError, match="1 to 255"):
            client.diff("n" * 256)


def test_only_whole_numbers_of_partitions_make_a_name() -> None:
    assert parse_partition_name(f"kafka:{'n' * 249}:10000") == ("n" * 249, 10_000)
    for rest in (
        "x",
        "x:",
        ":0",
        "x:00",
        "x:-1",
        "x:٣",
        "a:b:0",
        f"{'n' * 250}:0",
        "x:" + "1" * 5_000,
    ):
        assert parse_partition_name(f"kafka:{rest}") is None, rest[:40]
    assert parse_partition_name("x:0") is None
