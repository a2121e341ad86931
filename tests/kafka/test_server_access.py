"""Who may do what: SASL, organisations, scopes, TLS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.core.errors import RequestError
from headwater.server.kafka.api_handlers import HANDLED
from headwater.server.server import Server
from headwater.wire.kafka.apis import SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from headwater.wire.kafka.messages import MESSAGES
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_tables import sample
from tests.rig.kafka import batch_of
from tests.server.running_server import settings
from tests.server.test_foreign_clients import certificate

USERS = (
    "ann:anns-password",
    "bob:bobs-password:2",
    "reader:readers-password:1:read",
    "writer:writers-password:1:write",
)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("locked") / "data"
    with running_broker(directory, kafka_users=USERS) as found:
        yield found


def plain(name: str, password: str) -> bytes:
    return b"\0".join((b"", name.encode(), password.encode()))


def sign_in(speaker: RawKafka, message: bytes, mechanism: str = "PLAIN") -> dict[str, Any]:
    told = speaker.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
    assert told["error_code"] == 0, told
    return speaker.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})


@contextlib.contextmanager
def signed_in(broker: Broker, name: str) -> Iterator[RawKafka]:
    password = next(user.split(":")[1] for user in USERS if user.startswith(name))
    with RawKafka(broker.kafka_port) as speaker:
        assert sign_in(speaker, plain(name, password))["error_code"] == 0
        yield speaker


def client(broker: Broker, mechanism: str, password: str = "anns-password") -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": password,
    }


def write_and_read(config: dict[str, Any], topic: str) -> bytes | None:
    producer = Producer(config)
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def test_who_may_not_write_and_wants_no_answer_is_hung_up_on(locked: Broker, name: str) -> None:
    """An answer would be taken for that to the next request."""
    with signed_in(locked, "ann") as ann:
        ann.make_topic(name)
        with signed_in(locked, "reader") as reader:
            rows = [{"index": 0, "records": batch_of("x")}]
            values = {"acks": 0, "topic_data": [{"name": name, "partition_data": rows}]}
            reader.send(request_frame(ApiKey.PRODUCE, 9, 7, "speaker", values))
            assert reader.is_hung_up()
        assert ann.end_of(name) == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_librdkafka_signs_in_and_works(locked: Broker, name: str, mechanism: str) -> None:
    assert write_and_read(client(locked, mechanism), name) == b"hello"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_to_librdkafka(locked: Broker, mechanism: str) -> None:
    errors: list[Any] = []
    config = client(locked, mechanism, "bobs-password") | {"error_cb": errors.append}
    admin = AdminClient(config)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.7)
    for _ in range(30):
        if errors:
            break
        admin.poll(1)
    assert any("AUTHENTICATION" in str(error) for error in errors), errors


@pytest.mark.parametrize("api", [api for api in ApiKey if not HANDLED[api].is_open])
def test_nothing_is_answered_before_signing_in(locked: Broker, api: ApiKey) -> None:
    with RawKafka(locked.kafka_port) as speaker, pytest.raises(ConnectionResetError):
        speaker.ask(api, sample(MESSAGES[api].request, SUPPORTED[api].newest))


@pytest.mark.parametrize(
    "message",
    [
        plain("ann", "bobs-password"),
        plain("eve", "anns-password"),
        plain("", ""),
        b"",
        b"ann\0anns-password",
        b"bob\0ann\0anns-password",
        b"\0\xff\0anns-password",
        plain("ann", "anns-password") + b"\0",
    ],
)
def test_a_wrong_sign_in_ends_the_connection(locked: Broker, message: bytes) -> None:
    with RawKafka(locked.kafka_port) as speaker:
        told = sign_in(speaker, message)
        assert told["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "password" not in str(told["error_message"]).replace("or the password is", "")
        assert speaker.is_hung_up()


def test_a_mechanism_that_is_not_spoken_is_told_with_those_that_are(locked: Broker) -> None:
    with RawKafka(locked.kafka_port) as speaker:
        told = speaker.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "GSSAPI"})
        assert told["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert told["mechanisms"] == ["PLAIN", "SCRAM-SHA-256"]


def test_signing_in_comes_after_a_handshake_and_once(locked: Broker) -> None:
    with RawKafka(locked.kafka_port) as speaker:
        told = speaker.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b""})
        assert told["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
    with signed_in(locked, "ann") as speaker:
        told = speaker.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
        assert told["error_code"] == ErrorCode.ILLEGAL_SASL_STATE


def test_without_users_there_is_no_sasl(broker: Broker, speaker: RawKafka) -> None:
    told = speaker.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    assert told["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert told["mechanisms"] == []


def test_before_signing_in_requests_must_be_short(locked: Broker) -> None:
    with RawKafka(locked.kafka_port) as speaker:
        speaker.send((65_537).to_bytes(4, "big") + b"\0\0\0\x09")
        assert speaker.is_hung_up()
    with signed_in(locked, "ann") as speaker:
        speaker.make_topic("long")
        assert speaker.produce("long", batch_of("x" * 100_000))["error_code"] == 0


def test_a_stranger_that_keeps_asking_is_not_kept(tmp_path: Path) -> None:
    broker = running_broker(tmp_path / "data", kafka_users=USERS, deadlines={"headers_s": 0.3})
    with (
        broker as found,
        RawKafka(found.kafka_port) as stranger,
        signed_in(found, "ann") as ann,
    ):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while stranger.ask(ApiKey.API_VERSIONS):
                continue
        ann.make_topic("orders")


@pytest.mark.claims(31)
def test_organisations_do_not_see_each_other(locked: Broker, name: str) -> None:
    with signed_in(locked, "ann") as ann, signed_in(locked, "bob") as bob:
        ann.make_topic(name)
        assert ann.produce(name, batch_of("a", "b"))["base_offset"] == 0
        assert bob.fetch(name)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        listed = bob.ask(ApiKey.METADATA, {"topics": None})["topics"]
        assert name not in {topic["name"] for topic in listed}
        bob.make_topic(name)
        assert bob.produce(name, batch_of("c"))["base_offset"] == 0
        assert (ann.end_of(name), bob.end_of(name)) == (2, 1)
        (topic,) = ann.ask(ApiKey.METADATA, {"topics": [{"name": name}]})["topics"]
        by_id = {"topics": [{"name": None, "topic_id": topic["topic_id"]}]}
        (row,) = bob.ask(ApiKey.METADATA, by_id)["topics"]
        assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_groups_of_organisations_are_apart(locked: Broker, name: str) -> None:
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    values = {"group_id": name, "topics": [{"name": name, "partitions": rows}]}
    with signed_in(locked, "ann") as ann, signed_in(locked, "bob") as bob:
        ann.make_topic(name)
        ann.ask(ApiKey.OFFSET_COMMIT, values)
        assert name in {g["group_id"] for g in ann.ask(ApiKey.LIST_GROUPS)["groups"]}
        assert name not in {g["group_id"] for g in bob.ask(ApiKey.LIST_GROUPS)["groups"]}
        (row,) = bob.ask(ApiKey.DELETE_GROUPS, {"groups_names": [name]})["results"]
        assert row["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_reader_reads_and_changes_nothing(locked: Broker, name: str) -> None:
    with signed_in(locked, "ann") as ann, signed_in(locked, "reader") as reader:
        ann.make_topic(name)
        ann.produce(name, batch_of("a"))
        assert reader.fetch(name)["error_code"] == 0
        assert reader.produce(name, batch_of("b"))["error_code"] == (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        asked = {"topics": [{"name": f"{name}-new"}], "allow_auto_topic_creation": True}
        (row,) = reader.ask(ApiKey.METADATA, asked)["topics"]
        assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        told = reader.ask(ApiKey.DELETE_TOPICS, {"topics": [{"name": name}]})
        assert told["responses"][0]["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        told = reader.ask(ApiKey.DELETE_GROUPS, {"groups_names": [name]})
        assert told["results"][0]["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert ann.end_of(name) == 1


def test_a_writer_does_not_read(locked: Broker, name: str) -> None:
    with signed_in(locked, "ann") as ann:
        ann.make_topic(name)
    with signed_in(locked, "writer") as writer:
        assert writer.produce(name, batch_of("a"))["error_code"] == 0
        assert writer.fetch(name)["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        told = writer.ask(ApiKey.JOIN_GROUP, {"group_id": name, "member_id": ""})
        assert told["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_with_keys_and_no_users_the_door_is_closed(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", api_keys=("secret-of-http",)) as broker:
        with RawKafka(broker.kafka_port) as speaker, pytest.raises(ConnectionResetError):
            speaker.ask(ApiKey.METADATA, {"topics": None})
        with RawKafka(broker.kafka_port) as speaker:
            assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


def test_users_that_cannot_be_are_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="ann"):
        Server(tmp_path / "data", settings(kafka_port=0, kafka_users=("ann:short",)))


def test_librdkafka_signs_in_over_tls(tmp_path: Path, name: str) -> None:
    chain, key = certificate(tmp_path)
    fields: dict[str, Any] = {
        "tls_certificate": str(chain),
        "tls_key": str(key),
        "kafka_users": USERS,
    }
    with running_broker(tmp_path / "data", **fields) as broker:
        config = client(broker, "SCRAM-SHA-256") | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(chain),
            "ssl.endpoint.identification.algorithm": "none",
        }
        assert write_and_read(config, name) == b"hello"
        with RawKafka(broker.kafka_port) as speaker:
            speaker.send(b"\0\0\0\x10not tls at all..")
            assert speaker.is_hung_up()
