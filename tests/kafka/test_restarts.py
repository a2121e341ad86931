"""What is there after a restart: records, offsets of groups, topics; and producers that live on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from headwater.format.kafka.records import BatchProducer as ProducerOf
from headwater.format.kafka.records import NewRecord, encode_batch
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from tests.kafka.broker import free_port, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_clients_confluent import PATIENCE_S, admins, consuming, options, produce, read


@pytest.mark.claims(1, 2, 44)
def test_records_topics_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    values = [b"value %d" % number for number in range(100)]
    with running_broker(tmp_path / "data") as broker:
        admin = admins.AdminClient(options(broker))
        made = admins.NewTopic("kept", 3, 1, config={"retention.ms": "86400000"})
        admin.create_topics([made])["kept"].result(PATIENCE_S)
        produce(broker, "kept", values)
        with consuming(broker, "readers") as consumer:
            consumer.subscribe(["kept"])
            before = read(consumer, 100)
            place = TopicPartition("kept", 0, 40, metadata="half way")
            consumer.commit(offsets=[place], asynchronous=False)
    for _ in range(2):
        with running_broker(tmp_path / "data") as broker, consuming(broker, "readers") as consumer:
            (found,) = consumer.committed([TopicPartition("kept", 0)], timeout=PATIENCE_S)
            assert (found.offset, found.metadata) == (40, "half way")
            low, high = consumer.get_watermark_offsets(found, timeout=PATIENCE_S)
            assert (low, high) == (0, 100)
            consumer.subscribe(["kept"])
            after = read(consumer, 60)
            assert [each.offset() for each in after] == list(range(40, 100))
            assert [each.value() for each in after] == values[40:]
            assert [each.timestamp() for each in after] == [
                each.timestamp() for each in before[40:]
            ]
            admin = admins.AdminClient(options(broker))
            topic = admin.list_topics("kept", timeout=PATIENCE_S).topics["kept"]
            assert len(topic.partitions) == 3
            which = admins.ConfigResource(admins.ResourceType.TOPIC, "kept")
            told = admin.describe_configs([which])[which].result(PATIENCE_S)
            assert told["retention.ms"].value == "86400000"


def test_a_producer_lives_through_a_restart_and_writes_nothing_twice(tmp_path: Path) -> None:
    port = free_port()
    told: list[Message] = []
    with running_broker(tmp_path / "data", port) as broker:
        producer = Producer(
            options(broker, enable_idempotence=True, linger_ms=0, reconnect_backoff_max_ms=200)
        )
        for number in range(50):
            producer.produce("t", b"%d" % number, on_delivery=lambda _, each: told.append(each))
        assert producer.flush(PATIENCE_S) == 0
    for number in range(50, 100):
        producer.produce("t", b"%d" % number, on_delivery=lambda _, each: told.append(each))
    with running_broker(tmp_path / "data", port) as broker:
        assert producer.flush(PATIENCE_S) == 0
        assert [(each.error(), each.offset()) for each in told] == [
            (None, number) for number in range(100)
        ]
        with consuming(broker, "g") as consumer:
            consumer.assign([TopicPartition("t", 0, 0)])
            assert [each.value() for each in read(consumer, 100)] == [
                b"%d" % number for number in range(100)
            ]


def test_sequences_are_checked_as_before_after_a_restart(tmp_path: Path) -> None:
    def batch(producer_id: int, sequence: int, value: bytes) -> bytes:
        return encode_batch(
            [NewRecord(1, None, value)], producer=ProducerOf(producer_id, 0, sequence)
        )

    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic("t")
        producer_id = speaker.ask(ApiKey.INIT_PRODUCER_ID)["producer_id"]
        for sequence in range(3):
            told = speaker.produce("t", batch(producer_id, sequence, b"%d" % sequence))
            assert (told["error_code"], told["base_offset"]) == (0, sequence)
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        again = speaker.produce("t", batch(producer_id, 2, b"2"))
        assert (again["error_code"], again["base_offset"]) == (0, 2)
        gap = speaker.produce("t", batch(producer_id, 7, b"7"))
        assert gap["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        told = speaker.produce("t", batch(producer_id, 3, b"3"))
        assert (told["error_code"], told["base_offset"]) == (0, 3)
        assert speaker.ask(ApiKey.INIT_PRODUCER_ID)["producer_id"] != producer_id
