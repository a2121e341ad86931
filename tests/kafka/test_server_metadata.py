"""Metadata of many topics: rows that are written once for many, and turns for others between."""

from __future__ import annotations

import threading

import pytest

from headwater.engine.kafka.partition import KafkaTopic
from headwater.engine.kafka.store import KafkaStore
from headwater.server.kafka import cluster
from headwater.server.kafka.cluster import topic_row
from headwater.wire.kafka.apis import SUPPORTED, ApiKey
from headwater.wire.kafka.codec import encode_response, request_frame
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import KafkaLife
from tests.rig.kafka_client_codec import decode_response

METADATA = SUPPORTED[ApiKey.METADATA]
VERSIONS = range(METADATA.oldest, METADATA.newest + 1)


@pytest.fixture(scope="module")
def store() -> KafkaStore:
    return KafkaLife().store


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [1, 3, 70, 300])
@pytest.mark.parametrize("name", ["?", "a", "x" * 127, "x" * 128, "y" * 249])
def test_a_row_says_what_the_table_says_of_it(
    store: KafkaStore, version: int, partitions: int, name: str
) -> None:
    topic = KafkaTopic(store.core.calls, 1, name, bytes(range(16)), 0, partitions, {})
    values = {"topics": [topic_row(topic, version), topic_row(topic, version)]}
    written = encode_response(ApiKey.METADATA, version, values)
    first, second = decode_response(ApiKey.METADATA, version, written)["topics"]
    assert first == second
    assert (first["error_code"], first["name"]) == (0, name)
    assert first["topic_id"] == (topic.topic_id if version >= 10 else bytes(16))
    assert [each["partition_index"] for each in first["partitions"]] == list(range(partitions))
    for each in first["partitions"]:
        assert (each["error_code"], each["leader_id"]) == (0, 1)
        assert each["leader_epoch"] == (0 if version >= 7 else -1)
        assert each["replica_nodes"] == each["isr_nodes"] == [1]
    again = encode_response(ApiKey.METADATA, version, {"topics": [first, second]})
    assert again == written


def test_others_have_their_turn_while_all_topics_are_listed(
    broker: Broker, speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics may come meanwhile, and are not listed."""
    names = {speaker.make_topic(f"{name}-{number}") for number in range(20)}
    seen: list[str] = []

    def row(topic: KafkaTopic, version: int) -> bytes:
        seen.append("row")
        broker.endpoint.loop.call_soon(seen.append, "turn")
        broker.endpoint.store.create_topic(1, f"{name}-new-{len(seen)}", 1, {})
        return topic_row(topic, version)

    monkeypatch.setattr(cluster, "TURN_BYTES", 1)
    monkeypatch.setattr(cluster, "topic_row", row)
    told = speaker.ask(ApiKey.METADATA, {"topics": None})["topics"]
    assert names <= {row["name"] for row in told}
    assert seen[: 2 * len(told)] == ["row", "turn"] * len(told)


def test_whoever_goes_while_all_topics_are_listed_leaves_nothing_behind(
    broker: Broker, speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        speaker.make_topic(f"{name}-{number}")
    rows: list[int] = []
    gone = threading.Event()

    def row(topic: KafkaTopic, version: int) -> bytes:
        rows.append(version)
        for each in set(broker.endpoint.connections) - known:
            each.transport.abort()
        broker.endpoint.loop.call_later(0.1, gone.set)
        return topic_row(topic, version)

    known = set(broker.endpoint.connections)
    monkeypatch.setattr(cluster, "TURN_BYTES", 1)
    monkeypatch.setattr(cluster, "topic_row", row)
    with RawKafka(broker.kafka_port) as impatient:
        frame = request_frame(ApiKey.METADATA, METADATA.newest, 7, "speaker", {"topics": None})
        impatient.send(frame)
        assert impatient.is_hung_up()
    assert gone.wait(20)
    assert len(rows) == 1
