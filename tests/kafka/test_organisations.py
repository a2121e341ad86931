"""Two organisations on one server: the same names, and nothing of each other (fault G3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.kafka.broker import Broker, running_broker
from tests.kafka.test_clients_confluent import GROUP, PATIENCE_S, admins, options, read

USERS = {
    "first": ("first:password-one:1", "password-one"),
    "second": ("second:password-two:2", "password-two"),
    "reader": ("reader:password-read:2:read", "password-read"),
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    users = tuple(text for text, _ in USERS.values())
    directory = tmp_path_factory.mktemp("locked") / "data"
    with running_broker(directory, kafka_users=users) as broker:
        yield broker


def signed(broker: Broker, name: str, mechanism: str, **more: Any) -> dict[str, Any]:
    return options(
        broker, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
        sasl_username=name, sasl_password=USERS[name][1], **more,
    )  # fmt: skip


def produce_all(producer: Producer, topic: str, values: list[bytes]) -> list[KafkaError | None]:
    told: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return told


@pytest.mark.claims(31)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_equal_names_of_two_organisations_are_two_topics(
    locked: Broker, name: str, mechanism: str
) -> None:
    sent = {"first": [b"1", b"11"], "second": [b"2", b"22", b"222"]}
    for user, values in sent.items():
        producer = Producer(signed(locked, user, mechanism))
        assert produce_all(producer, name, values) == [None] * len(values)
    for user, values in sent.items():
        consumer = Consumer({**signed(locked, user, mechanism, group_id=name), **GROUP})
        try:
            consumer.subscribe([name])
            found = read(consumer, len(values))
            assert [each.value() for each in found] == values
            assert [each.offset() for each in found] == list(range(len(values)))
            consumer.commit(asynchronous=False)
            (committed,) = consumer.committed([TopicPartition(name, 0)], timeout=PATIENCE_S)
            assert committed.offset == len(values)
        finally:
            consumer.close()


def test_an_organisation_lists_only_what_is_its_own(locked: Broker, name: str) -> None:
    admin = {user: admins.AdminClient(signed(locked, user, "PLAIN")) for user in USERS}
    made = admins.NewTopic(name, 1, 1)
    admin["second"].create_topics([made])[name].result(PATIENCE_S)
    consumer = Consumer({**signed(locked, "second", "PLAIN", group_id=name), **GROUP})
    consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    assert name in admin["second"].list_topics(timeout=PATIENCE_S).topics
    assert name not in admin["first"].list_topics(timeout=PATIENCE_S).topics
    groups = {
        user: {each.group_id for each in admin[user].list_consumer_groups().result().valid}
        for user in ("first", "second")
    }
    assert name in groups["second"]
    assert name not in groups["first"]
    with pytest.raises(KafkaException) as refused:
        admin["first"].delete_topics([name])[name].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name in admin["second"].list_topics(timeout=PATIENCE_S).topics


def test_a_reader_may_not_write(locked: Broker, name: str) -> None:
    producer = Producer(signed(locked, "second", "PLAIN"))
    assert produce_all(producer, name, [b"one"]) == [None]
    reader = Producer(signed(locked, "reader", "PLAIN", message_timeout_ms=5_000))
    (error,) = produce_all(reader, name, [b"two"])
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**signed(locked, "reader", "PLAIN", group_id=name), **GROUP})
    try:
        consumer.subscribe([name])
        assert [each.value() for each in read(consumer, 1)] == [b"one"]
    finally:
        consumer.close()
