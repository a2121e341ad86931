"""One log, every protocol: what is written through one is read through all, with the same seqs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import headwater
from headwater.core.errors import InvalidRequestError, TopicNotFoundError
from headwater.core.results import Tombstone
from tests.kafka.broker import Broker, running_broker
from tests.kafka.protocols import WAYS_IN, WAYS_OUT, Seen, Target, consumed, over_http, over_kafka
from tests.server.test_websocket import open_socket
from tests.server.watches import watching


def record_of(number: int) -> dict[str, Any]:
    return {"data": {"n": number, "text": "größer"}, "tag": f"t{number % 2}", "meta": {"h": "v"}}


def check_every_door(target: Target, ways_in: list[str]) -> None:
    expected: list[Seen] = []
    for number, way in enumerate(ways_in * 2):
        record = record_of(number)
        assert WAYS_IN[way](target, record) == number + 1, way
        expected.append((number + 1, record["data"], record["tag"], record["meta"]))
    for way, read in WAYS_OUT.items():
        assert read(target, len(expected)) == expected, way


def test_a_kafka_topic_is_written_and_read_through_every_door(kafka_topic: Target) -> None:
    check_every_door(kafka_topic, ["http", "websocket", "kafka"])


def test_a_log_topic_is_written_and_read_through_every_door(native_topic: Target) -> None:
    check_every_door(native_topic, ["http", "websocket", "kafka", "embedded"])


@pytest.mark.parametrize("kind", ["kafka_topic", "native_topic"])
def test_bytes_that_are_no_json_come_through_unchanged(
    kind: str, request: pytest.FixtureRequest
) -> None:
    target: Target = request.getfixturevalue(kind)
    written: list[tuple[Any, Any, Any]] = [
        (b"\xff\xfe", b"\x00\x01", [("h", b"\xff"), ("h", None)]),
        (b"k" * 300, b"plain text", []),
        (None, None, [("n", None)]),
        (b"", b"", []),
        (b"key", b"null", [("a", b"1")]),
    ]
    producer = Producer({"bootstrap.servers": target.broker.bootstrap, "compression.type": "lz4"})
    for key, value, headers in written:
        producer.produce(target.kafka, value, key, 0, headers=headers)
    assert producer.flush(20) == 0
    found = consumed(target, len(written))
    assert [(m.key(), m.value(), m.headers() or []) for m in found] == written
    with target.client() as client:
        records = client.diff(target.elsewhere).records
        assert records[0].tag == "//4="
        assert records[1].data == "cGxhaW4gdGV4dA=="
        assert [record.data for record in records[2:]] == [None, "", None]
        # Written again over HTTP as they were read, they are the same for Kafka clients.
        again = [{"data": r.data, "tag": r.tag, "meta": r.meta} for r in records]
        client.append(target.elsewhere, again)
    found = consumed(target, len(written), start=len(written))
    assert [(m.key(), m.value(), m.headers() or []) for m in found] == written


@pytest.mark.parametrize("kind", ["kafka_topic", "native_topic"])
def test_a_reader_that_waits_is_answered_when_another_door_writes(
    kind: str, request: pytest.FixtureRequest
) -> None:
    target: Target = request.getfixturevalue(kind)
    seen: list[Any] = []
    with target.client() as client:
        waiting = threading.Thread(
            target=lambda: seen.append(client.diff(target.elsewhere, 0, wait_ms=20_000))
        )
        wishes = {target.elsewhere: {"tail": True}}
        with watching(target.broker, wishes) as events, open_socket(target.broker) as socket:
            events.until("caught-up")
            socket.say("subscribe", topic=target.elsewhere, tail=True)
            socket.until("caught_up")
            waiting.start()
            over_kafka(target, {"data": 7})
            assert events.until("record")[-1].data["records"][0]["data"] == 7
            assert socket.records(1)[0]["data"] == 7
            over_kafka(target, {"data": 8})
            assert events.until("record")[-1].data["records"][0]["data"] == 8
        waiting.join(20)
    assert [record.data for record in seen[0].records][:1] == [7]


def test_deleting_from_the_front_leaves_a_tombstone_for_who_comes_late(
    kafka_topic: Target, admin: AdminClient
) -> None:
    target = kafka_topic
    with target.client() as client:
        client.append(target.elsewhere, [{"data": n} for n in range(10)])
        deleted = client.delete(target.elsewhere, before_seq=4)
        assert (deleted.deleted, deleted.earliest_seq, deleted.head_seq) == (3, 4, 10)
        spot = TopicPartition(target.kafka, 0, 6)
        assert admin.delete_records([spot])[spot].result(20).low_watermark == 6
        late = client.diff(target.elsewhere, 2)
        assert late.tombstone == Tombstone(3, 6, "log_start", 4, 7, 10)
        assert [record.data for record in late.records] == [6, 7, 8, 9]
        assert client.diff(target.elsewhere, 6).tombstone is None
        state = client.state(target.elsewhere)
        assert (state.earliest_seq, state.head_seq, state.count) == (7, 10, 4)
        with pytest.raises(InvalidRequestError, match="before_seq"):
            client.delete(target.elsewhere, match="t")
        ahead = client.diff(target.elsewhere, 99)
        assert ahead.tombstone is not None
        assert ahead.tombstone.reason == "recreated"


def test_a_page_of_a_partition_ends_within_a_batch_and_goes_on_there(kafka_topic: Target) -> None:
    with kafka_topic.client() as client:
        client.append(kafka_topic.elsewhere, [{"data": n} for n in range(100)])
        client.append(kafka_topic.elsewhere, [{"data": n} for n in range(100, 130)])
        cursor, seen = 0, []
        while cursor < 130:
            page = client.diff(kafka_topic.elsewhere, cursor, limit=33)
            assert page.next_from_seq == page.records[-1].seq
            assert page.caught_up == (page.next_from_seq == 130)
            seen += [record.data for record in page.records]
            cursor = page.next_from_seq
        assert seen == list(range(130))
        assert [r.data for r in client.diff(kafka_topic.elsewhere, 5, limit=2).records] == [5, 6]


def test_the_same_key_of_a_write_makes_it_once(kafka_topic: Target) -> None:
    with kafka_topic.client() as client:
        first = client.append(kafka_topic.elsewhere, {"data": 1}, idempotency_key="once")
        again = client.append(kafka_topic.elsewhere, {"data": 1}, idempotency_key="once")
        assert again.deduped
        assert (again.first_seq, again.head_seq) == (first.first_seq, 1)
        with pytest.raises(headwater.core.errors.HeadConflictError):
            client.append(kafka_topic.elsewhere, {"data": 2}, expect_head_seq=0)
        assert client.append(kafka_topic.elsewhere, {"data": 2}, expect_head_seq=1).first_seq == 2


def test_what_a_partition_cannot_do_is_refused_with_what_to_do_instead(
    kafka_topic: Target,
) -> None:
    with kafka_topic.client() as client:
        for name in (f"kafka:{kafka_topic.kafka}:2", "kafka:nobody:0", "kafka:x", "kafka:x:00"):
            with pytest.raises(TopicNotFoundError):
                client.diff(name)
            with pytest.raises((TopicNotFoundError, InvalidRequestError)):
                client.append(name, {"data": 1})
        with pytest.raises(InvalidRequestError, match="Kafka client"):
            client.create("kafka:new:0")
        with pytest.raises(InvalidRequestError, match="Kafka client"):
            client.drop(kafka_topic.elsewhere)
        with pytest.raises(InvalidRequestError, match="begin with"):
            client.append(kafka_topic.elsewhere, {"data": 1, "meta": {"$own": 1}})
        with pytest.raises(headwater.core.errors.NotAQueueError):
            client.append(kafka_topic.elsewhere, {"data": 1, "deliver_at": 5})
        assert client.state(kafka_topic.elsewhere).head_seq == 0
        names = [state.topic for state in client.topics(f"kafka:{kafka_topic.kafka}:")]
        assert names == [f"kafka:{kafka_topic.kafka}:{n}" for n in (0, 1)]
        assert kafka_topic.elsewhere not in [state.topic for state in client.topics()]


def test_a_stream_is_told_when_its_kafka_topic_is_deleted(
    kafka_topic: Target, admin: AdminClient
) -> None:
    over_http(kafka_topic, {"data": 1})
    wishes = {kafka_topic.elsewhere: {"from_seq": 0}}
    with watching(kafka_topic.broker, wishes) as events:
        events.until("caught-up")
        admin.delete_topics([kafka_topic.kafka])[kafka_topic.kafka].result(20)
        assert events.until("topic-deleted")[-1].data["topic"] == kafka_topic.elsewhere


def test_the_key_decides_whose_partitions_a_name_means(tmp_path: Path, name: str) -> None:
    keys = ("first-secret:admin", "second-secret:admin::org=2")
    users = ("one:password-one", "two:password-two:2")
    with running_broker(tmp_path / "data", api_keys=keys, kafka_users=users) as broker:
        url = f"http://127.0.0.1:{broker.port}"
        for user, value in (("one", b"1"), ("two", b"2")):
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": user,
                    "sasl.password": f"password-{user}",
                }
            )
            producer.produce("shared", value)
            assert producer.flush(20) == 0
        with (
            headwater.Client(url, token="first-secret") as first,
            headwater.Client(url, token="second-secret") as second,
        ):
            assert [r.data for r in first.diff("kafka:shared:0").records] == [1]
            assert [r.data for r in second.diff("kafka:shared:0").records] == [2]
            watch, other = second.watch("kafka:shared:0"), first.watch("kafka:shared:0")
            assert getattr(next(watch), "data", None) == 2
            assert getattr(next(other), "data", None) == 1
            first.append("kafka:shared:0", {"data": "for one only"})
            second.append("kafka:shared:0", {"data": "for two"})
            assert getattr(next(watch), "data", None) == "for two"
            assert getattr(next(other), "data", None) == "for one only"
            first.create("of-headwater")
            # Topics of Headwater's own belong to the first organisation.
            listed = [
                set(AdminClient({**_sasl(broker, user)}).list_topics(timeout=20).topics)
                for user in ("one", "two")
            ]
            assert listed == [{"shared", "of-headwater"}, {"shared"}]


def _sasl(broker: Broker, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"password-{user}",
    }
