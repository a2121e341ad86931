"""Kafka topics and groups over HTTP, and in the metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.observe.metrics import METRICS
from headwater.wire.kafka.apis import ApiKey
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_access import plain, sign_in
from tests.kafka.test_server_groups import commit
from tests.rig.kafka import batch_of
from tests.server.running_server import running, settings

KEYS = ("key-of-one", "key-of-two:read::org=2", "key-of-few:read:kafka:orders:")
USERS = ("ann:anns-password:1", "bob:bobs-password:2")


def get(port: int, path: str, key: str = "key-of-one", kind: str = "application/json") -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Accept", kind)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def get_json(port: int, path: str, key: str = "key-of-one") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(get(port, path, key))
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("filled") / "data"
    with running_broker(directory, api_keys=KEYS, kafka_users=USERS) as broker:
        for user, topics in (("ann", ("orders", "users")), ("bob", ("secrets",))):
            with RawKafka(broker.kafka_port) as speaker:
                sign_in(speaker, plain(user, f"{user}s-password"))
                for topic in topics:
                    speaker.make_topic(topic, partitions=2)
                    speaker.produce(topic, batch_of("a", "b", "c"))
                    commit(speaker, f"group-of-{user}", topic, 1)
        yield broker


def test_topics_tell_where_their_partitions_begin_and_end(filled: Broker) -> None:
    told = get_json(filled.port, "/v0/kafka/topics")
    assert [each["topic"] for each in told["topics"]] == ["orders", "users"]
    first, second = told["topics"][0]["partitions"]
    assert (first["start_offset"], first["high_watermark"]) == (0, 3)
    assert first["bytes"] > 0
    assert second == {"partition": 1, "start_offset": 0, "high_watermark": 0, "bytes": 0}


def test_groups_tell_how_far_behind_they_are(filled: Broker) -> None:
    (group,) = get_json(filled.port, "/v0/kafka/groups")["groups"]
    assert (group["group"], group["state"], group["members"]) == ("group-of-ann", "Empty", 0)
    assert group["lag"] == 4
    assert group["offsets"][0] == {"topic": "orders", "partition": 0, "offset": 1, "lag": 2}


def test_a_key_sees_its_own_organisation_only(filled: Broker) -> None:
    told = get_json(filled.port, "/v0/kafka/topics", "key-of-two")
    assert [each["topic"] for each in told["topics"]] == ["secrets"]
    (group,) = get_json(filled.port, "/v0/kafka/groups", "key-of-two")["groups"]
    assert group["group"] == "group-of-bob"
    assert "group-of-ann" not in get(filled.port, "/v0/metrics", "key-of-two")


def test_a_key_with_prefixes_sees_names_that_have_them(filled: Broker) -> None:
    told = get_json(filled.port, "/v0/kafka/topics", "key-of-few")
    assert [each["topic"] for each in told["topics"]] == ["orders"]
    (group,) = get_json(filled.port, "/v0/kafka/groups", "key-of-few")["groups"]
    assert [each["topic"] for each in group["offsets"]] == ["orders"]
    assert 'topic="users"' not in get(filled.port, "/v0/metrics", "key-of-few", "text/plain")


def test_lists_come_in_pages(filled: Broker) -> None:
    first = get_json(filled.port, "/v0/kafka/topics?page_size=1")
    assert first["next_cursor"] == "orders"
    second = get_json(filled.port, "/v0/kafka/topics?page_size=1&cursor=orders")
    assert [each["topic"] for each in second["topics"]] == ["users"]
    assert "next_cursor" not in second


def test_the_metrics_count_what_kafka_clients_do(filled: Broker) -> None:
    text = get(filled.port, "/metrics", kind="text/plain")
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["headwater_kafka_records_produced_total"]) == 9
    assert float(lines['headwater_kafka_requests_total{api="produce"}']) == 3
    assert float(lines['headwater_kafka_group_lag{group="group-of-ann",topic="orders"}']) == 2
    assert float(lines["headwater_kafka_bytes_in_total"]) > 0
    assert float(lines["headwater_kafka_topics"]) == 3
    declared = {name for name in METRICS if name.startswith("kafka_")}
    assert {name for name in declared if f"headwater_{name}" not in text} == set()


def test_a_server_without_the_port_has_no_kafka_topics(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings()) as server:
        for path in ("topics", "groups"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(server.port, f"/v0/kafka/{path}")
            assert refused.value.code == 404
            refused.value.close()
    assert not (tmp_path / "data" / "kafka").exists()


def test_topics_can_be_looked_at_while_the_port_is_off(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic("orders")
        speaker.produce("orders", batch_of("a"))
        assert speaker.ask(ApiKey.METADATA, {"topics": None})["topics"]
    with running(tmp_path / "data", settings()) as server:
        (topic,) = get_json(server.port, "/v0/kafka/topics")["topics"]
        assert topic["partitions"][0]["high_watermark"] == 1
