"""Log topics as Kafka clients see them: one partition, offset = seq - 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

import headwater
from headwater.core.errors import OverloadedError
from headwater.engine.pressure import PressureControl
from headwater.engine.topics.record_encoding import encode_records
from headwater.format.kafka.batch import BatchHeader, read_sound
from headwater.format.kafka.records import BatchProducer as ProducerOf
from headwater.wire.kafka.apis import ErrorCode
from tests.kafka.broker import Broker, running_broker
from tests.kafka.protocols import Target, consumed, embedded, over_http, over_kafka
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import batch_of


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
        assert broker.app.kafka.endpoint is not None
        store = broker.app.kafka.endpoint.store
        topic = store.topic(1, native_topic.kafka)
        assert topic is not None
        (batch,) = topic.partitions[0].plan_fetch(offset, 1_000_000).read()
        return read_sound(batch)

    found = [broker.inside(lambda at=at: header(at)) for at in (1, 5)]
    shown = [(h.base_offset, h.record_count, h.last_offset_delta) for h in found]
    assert shown == [(1, 3, 4), (5, 0, 0)]


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
        assert configs["retention.ms"].value == "-1"
        client.create(f"{name}.log", ttl_ms=60_000)
        configs = admin.describe_configs([resource])[resource].result(20)
        assert configs["retention.ms"].value == "60000"


def test_where_both_have_a_topic_of_one_name_the_kafka_topic_is_meant(
    kafka_topic: Target,
) -> None:
    with kafka_topic.client() as client:
        # No protocol makes it any more; a data directory may have it from before.
        embedded(Target(kafka_topic.broker, kafka_topic.kafka, kafka_topic.kafka), {"data": "own"})
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


def test_batches_stay_in_order_whoever_decodes_them(native_topic: Target) -> None:
    producer = Producer(
        {
            "bootstrap.servers": native_topic.broker.bootstrap,
            "compression.type": "zstd",
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    for number in range(200):
        pad = "x" * (0, 40_000, 10)[number % 3]  # as it is; compressed; too short for it
        producer.produce(native_topic.kafka, json.dumps({"n": number, "pad": pad}).encode())
        producer.poll(0)
    assert producer.flush(20) == 0
    seen = [json.loads(message.value())["n"] for message in consumed(native_topic, 200)]
    assert seen == list(range(200))


@pytest.mark.parametrize(("synced", "waits"), [(True, True), (False, False)])
def test_acks_all_makes_a_disk_topic_wait_for_its_sync(
    broker: Broker, name: str, synced: bool, waits: bool
) -> None:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.create(name, durability="disk")
        client.append(name, {"data": 0})
        client.append(name, {"data": 1})

    def begin() -> bool:
        records = encode_records([{"data": 2}])
        engine = broker.app.backend.engine
        write = engine.append(name, records, synced=synced)
        engine.core.owner.end_turn()
        return write.waits

    assert broker.inside(begin) is waits


def test_offsets_of_a_log_topic_are_found_by_time(native_topic: Target) -> None:
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


def test_a_log_topic_made_again_is_not_read_from_where_a_group_was_in_the_one_before(
    tmp_path: Path,
) -> None:
    def committed(broker: Broker) -> list[int]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        spots = [TopicPartition(name, 0) for name in ("kept", "again", "kafkas")]
        offsets = [each.offset for each in consumer.committed(spots, timeout=20)]
        consumer.close()
        return offsets

    with running_broker(tmp_path / "data") as broker:
        with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
            for name in ("kept", "again", "kafkas"):
                client.append(name, [{"data": n} for n in range(10)])
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
            spots = [TopicPartition(name, 0, 10) for name in ("kept", "again", "kafkas")]
            consumer.commit(offsets=spots, asynchronous=False)
            consumer.close()
            assert committed(broker) == [10, 10, 10]
            for name in ("again", "kafkas"):
                client.drop(name)
            client.append("again", [{"data": n} for n in range(20)])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("kafkas", 1)])["kafkas"].result(20)
        nowhere = -1001
        assert committed(broker) == [10, nowhere, nowhere]
        with broker.talk() as http:
            (group,) = http.get("/v0/kafka/groups").json["groups"]
            assert [each["topic"] for each in group["offsets"]] == ["kept"]
    for _ in range(2):
        with running_broker(tmp_path / "data") as broker:
            assert committed(broker) == [10, nowhere, nowhere]


@pytest.mark.parametrize("by_pressure", [True, False])
def test_what_a_new_producer_sent_to_a_log_topic_behind_a_refused_batch_is_not_taken_before_it(
    native_topic: Target,
    speaker: RawKafka,
    by_pressure: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def overloaded(*_: object, **__: object) -> None:
        raise OverloadedError("too much for now")

    batches = [batch_of("1", producer=ProducerOf(77, 0, sequence)) for sequence in range(2)]
    with monkeypatch.context() as pressed:
        if by_pressure:
            pressed.setattr(PressureControl, "refuses", True)
        else:
            pressed.setattr(native_topic.broker.app.backend.engine, "append", overloaded)
        told = speaker.produce(native_topic.kafka, batches[0])
        assert told["error_code"] == ErrorCode.NOT_ENOUGH_REPLICAS
    told = speaker.produce(native_topic.kafka, batches[1])
    assert told["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    offsets = [speaker.produce(native_topic.kafka, batch)["base_offset"] for batch in batches]
    assert offsets == [0, 1]


def test_a_group_behind_the_retention_of_a_log_topic_is_told_out_of_range(
    native_topic: Target,
) -> None:
    """Kafka's word for a tombstone: the client's `auto.offset.reset` says what comes of it."""
    target = native_topic
    with target.client() as client:
        client.append(target.elsewhere, [{"data": n} for n in range(8)])
        client.create(target.elsewhere, cap_records=3)
        consumer = Consumer(
            {
                "bootstrap.servers": target.broker.bootstrap,
                "group.id": f"{target.kafka}-behind",
                "auto.offset.reset": "error",
            }
        )
        try:
            spot = TopicPartition(target.kafka, 0, 2)
            consumer.commit(offsets=[spot], asynchronous=False)
            consumer.assign([TopicPartition(target.kafka, 0)])
            told = None
            for _ in range(100):
                told = consumer.poll(0.2)
                if told is not None:
                    break
            assert told is not None
            error = told.error()
            assert error is not None
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
        finally:
            consumer.close()
        late = client.diff(target.elsewhere, 2).tombstone
        assert late is not None
        assert (late.reason, late.gap_from, late.gap_to) == ("cap", 3, 5)
