"""One log, every door: what is written through one is read through all, with the same seqs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

import headwater
from headwater.core.errors import InvalidRequestError, TopicNotFoundError
from headwater.format.kafka.batch import BatchHeader, read_sound
from headwater.model.loss import Tombstone
from tests.kafka.broker import Broker, running_broker
from tests.kafka.doors import WAYS_IN, WAYS_OUT, Seen, Target, consumed, over_http, over_kafka
from tests.server.test_websocket import open_socket
from tests.server.watching import watching


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def kafka_topic(broker: Broker, admin: AdminClient, name: str) -> Target:
    """A Kafka topic with two partitions; its first is looked at."""
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    return Target(broker, name, f"kafka:{name}:0")


@pytest.fixture
def native_topic(broker: Broker, name: str) -> Target:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.create(name)
    return Target(broker, name, name)


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


def test_records_deleted_within_a_log_topic_are_gaps_between_offsets(
    native_topic: Target, admin: AdminClient
) -> None:
    target = native_topic
    with target.client() as client:
        client.append(target.elsewhere, [{"data": n, "tag": f"t{n % 2}"} for n in range(10)])
        client.delete(target.elsewhere, match="t1")
        client.append(target.elsewhere, {"data": 10})
        found = consumed(target, 6)
        assert [(m.offset(), json.loads(m.value())) for m in found] == [
            (n, n) for n in (0, 2, 4, 6, 8, 10)
        ]
        client.delete(target.elsewhere, match=["tag", "Glob", "t*"], before_seq=11)
        spot = TopicPartition(target.kafka, 0, 3)
        low = admin.delete_records([spot])[spot].result(20).low_watermark
        assert low == client.state(target.elsewhere).earliest_seq - 1
        assert [m.offset() for m in consumed(target, 1, start=low)] == [10]


def test_a_batch_of_a_log_topic_tells_of_offsets_behind_its_last_record(
    native_topic: Target,
) -> None:
    with native_topic.client() as client:
        client.append(native_topic.elsewhere, [{"data": n, "tag": f"t{n}"} for n in range(6)])
        client.delete(native_topic.elsewhere, match="t3")
        client.delete(native_topic.elsewhere, match="t5")
    broker = native_topic.broker

    def header(offset: int) -> BatchHeader:
        assert broker.app.kafka is not None
        assert broker.app.kafka.door is not None
        store = broker.app.kafka.door.store
        topic = store.topic(1, native_topic.kafka)
        assert topic is not None
        (batch,) = store.plan_fetch(topic.partitions[0], offset, 1_000_000).read()
        return read_sound(batch)

    found = [broker.inside(lambda at=at: header(at)) for at in (1, 5)]
    shown = [(h.base_offset, h.record_count, h.last_offset_delta) for h in found]
    assert shown == [(1, 3, 4), (5, 0, 0)]


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


# -- log topics as Kafka clients see them


def test_only_log_topics_with_names_that_kafka_knows_are_shown(
    broker: Broker, admin: AdminClient, name: str
) -> None:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.create(f"{name}.log")
        client.create(f"{name}.queue", type="queue")
        client.create(f"{name}:colon")
        shown = {n for n in admin.list_topics(timeout=20).topics if n.startswith(name)}
        assert shown == {f"{name}.log"}
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic(f"{name}.log", 1)])[f"{name}.log"].result(20)
        assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaException) as refused:
            admin.delete_topics([f"{name}.log"])[f"{name}.log"].result(20)
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
        resource = ConfigResource(ConfigResource.Type.TOPIC, f"{name}.log")
        configs = admin.describe_configs([resource])[resource].result(20)
        assert configs["message.timestamp.type"].value == "LogAppendTime"


def test_where_both_have_a_topic_of_one_name_the_kafka_topic_is_meant(
    kafka_topic: Target,
) -> None:
    with kafka_topic.client() as client:
        client.append(kafka_topic.kafka, {"data": "own"})
        over_kafka(kafka_topic, {"data": "kafka"})
        assert [json.loads(m.value()) for m in consumed(kafka_topic, 1)] == ["kafka"]
        assert [r.data for r in client.diff(kafka_topic.kafka).records] == ["own"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_every_compression_can_be_produced_to_a_log_topic(
    native_topic: Target, codec: str, idempotent: bool
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": native_topic.broker.bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 20,
        }
    )
    for number in range(300):
        producer.produce(native_topic.kafka, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    with native_topic.client() as client:
        records = client.diff(native_topic.elsewhere, limit=1_000).records
    assert [record.data for record in records] == list(range(300))


def test_offsets_of_a_log_topic_are_found_by_time(native_topic: Target) -> None:
    from confluent_kafka import Consumer

    with native_topic.client() as client:
        for number in range(5):
            client.append(native_topic.elsewhere, {"data": number})
        client.delete(native_topic.elsewhere, before_seq=2)
        times = [record.ts for record in client.diff(native_topic.elsewhere, 1).records]
    consumer = Consumer({"bootstrap.servers": native_topic.broker.bootstrap, "group.id": "times"})
    try:
        for wanted in (0, *times, times[-1] + 1):
            spot = TopicPartition(native_topic.kafka, 0, wanted)
            (found,) = consumer.offsets_for_times([spot], timeout=20)
            first = next((n for n, ts in enumerate(times) if ts >= wanted), None)
            assert found.offset == (-1 if first is None else first + 1)
    finally:
        consumer.close()


def test_a_record_over_a_limit_of_log_topics_refuses_its_batch(native_topic: Target) -> None:
    told: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": native_topic.broker.bootstrap, "message.max.bytes": 5_000_000}
    )
    many: Any = [(f"h{n}", b"v") for n in range(65)]
    for value, headers in ((b"x" * 1_100_000, []), (b"1", many)):
        producer.produce(
            native_topic.kafka, value, headers=headers, on_delivery=lambda e, _: told.append(e)
        )
        assert producer.flush(20) == 0
    assert [error.code() for error in told] == [
        KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_REQUEST,
    ]  # fmt: skip
    with native_topic.client() as client:
        assert client.state(native_topic.elsewhere).head_seq == 0


def test_log_topics_read_from_files_after_a_restart_have_the_same_offsets(tmp_path: Path) -> None:
    for run in range(2):
        with running_broker(tmp_path / "data") as broker:
            target = Target(broker, "t", "t")
            if run == 0:
                over_http(target, {"data": 1, "tag": "a"})
                over_kafka(target, {"data": 2, "tag": "b"})
            found = consumed(target, 2)
            assert [(m.offset(), m.key(), m.value()) for m in found] == [
                (0, b"a", b"1"), (1, b"b", b"2"),
            ]  # fmt: skip
            if run == 1:
                assert over_kafka(target, {"data": 3}) == 3
