"""A server is as well as the worst of its logs: that of the topics, of the machines, of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headwater.config.kafka import KafkaSettings
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.status_answers import StatusAnswer
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.machines.conftest import ORDER
from tests.rig.captured_logs import captured_logs
from tests.rig.kafka import batch_of
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import RawHttp
from tests.server.running_server import SMALL_ENGINE, eventually, settings

SMALL = MachineSettings(
    wal_segment_bytes=16 * 1024,
    reserve_bytes=1_024,
    zero_chunk_bytes=16 * 1024,
    full_retry_interval_us=20_000,
    transitions_topic=None,
    compaction=CompactionSettings(enabled=False),
)
SMALL_KAFKA = KafkaSettings(segment_bytes=40_000, log_ahead_bytes=8_192, index_ahead_bytes=4_000)


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def server(tmp_path: Path, disk: GatedDisk) -> Iterator[Broker]:
    server = Broker(
        tmp_path / "data",
        settings(kafka_port=0),
        disk=disk,
        engine_settings=replace(SMALL_ENGINE, machines=SMALL),
        kafka_settings=SMALL_KAFKA,
    )
    server.start()
    try:
        with server.talk() as http, RawKafka(server.kafka_port) as speaker:
            speaker.ask(ApiKey.METADATA, {})  # the log is there since its first client came
            put = http.ask("PUT", "/v0/machines/order/versions/1", {"definition": ORDER})
            assert put.status in (200, 201)
            body = {"machine": "order", "instance_id": "o", "initial_ctx": {"amount": 1}}
            assert http.ask("POST", "/v0/instances", body).status in (200, 201)
        yield server
    finally:
        server.stop()


def seen(http: RawHttp) -> tuple[str, dict[str, str]]:
    """What /v0/status says: of all, and the worst shard of each log."""
    told = msgspec.json.decode(http.get("/v0/status").body, type=StatusAnswer)
    states: dict[str, str] = {}
    for shard in told.shards:
        if states.get(shard.log) in (None, "writable"):
            states[shard.log] = shard.state
    return told.state, states


def cancel(http: RawHttp) -> int:
    answer = http.ask("POST", "/v0/instances/o/events", {"event": "CANCEL"})
    return int(answer.status)


def test_all_logs_are_told_of_while_they_are_well(server: Broker) -> None:
    with server.talk() as http:
        assert http.get("/v0/ready").json["status"] == "ok"
        writable = dict.fromkeys(("topics", "machines", "kafka"), "writable")
        assert seen(http) == ("ok", writable)


def test_a_poisoned_log_of_machines_makes_the_server_unready(
    server: Broker, disk: GatedDisk
) -> None:
    disk.concerns = lambda path: "machines" in path.parts
    with server.talk() as http:
        disk.is_broken = True
        assert cancel(http) == 503
        answer = http.get("/v0/ready")
        assert (answer.status, answer.code) == (503, "storage_failed")
        assert "machines" in answer.json["error"]["message"]
        state, logs = seen(http)
        assert (state, logs["machines"], logs["topics"]) == ("poisoned", "poisoned", "writable")
        assert http.write("t", 1).status == 201


def test_a_full_log_of_machines_is_told_until_there_is_room(
    server: Broker, disk: GatedDisk
) -> None:
    disk.concerns = lambda path: "machines" in path.parts
    with server.talk() as http:
        disk.is_full_for_files = True
        eventually(lambda: cancel(http) == 507)
        assert http.get("/v0/ready").json["status"] == "full"
        state, logs = seen(http)
        assert (state, logs["machines"], logs["topics"]) == ("full", "full", "writable")
        disk.is_full_for_files = False
        eventually(lambda: cancel(http) == 200)
        assert http.get("/v0/ready").json["status"] == "ok"


def test_a_poisoned_log_of_kafka_makes_the_server_unready(server: Broker, disk: GatedDisk) -> None:
    with server.talk() as http, RawKafka(server.kafka_port) as speaker:
        speaker.make_topic("orders")
        disk.concerns = lambda path: "kafka" in path.parts
        disk.is_broken = True
        assert speaker.produce("orders", batch_of("x"))["error_code"] != 0
        answer = http.get("/v0/ready")
        assert (answer.status, answer.code) == (503, "storage_failed")
        assert "kafka" in answer.json["error"]["message"]
        state, logs = seen(http)
        assert (state, logs["kafka"], logs["topics"]) == ("poisoned", "poisoned", "writable")


def test_a_full_log_of_kafka_is_told_until_there_is_room(server: Broker, disk: GatedDisk) -> None:
    with (
        captured_logs() as lines,
        server.talk() as http,
        RawKafka(server.kafka_port) as speaker,
    ):

        def told() -> list[str]:
            return [line["level"] for line in lines if line.get("whose") == "kafka"]

        def gauges() -> tuple[int, int]:
            metrics = http.get("/v0/metrics", accept="application/json").json["metrics"]
            names = ("headwater_kafka_wal_read_only", "headwater_housekeeping_failing")
            return int(metrics[names[0]]), int(metrics[names[1]])

        speaker.make_topic("orders")
        disk.concerns = lambda path: "kafka" in path.parts
        disk.is_full = disk.is_full_for_files = True
        assert speaker.produce("orders", batch_of("x" * 9_000))["error_code"] != 0
        assert http.get("/v0/ready").json["status"] == "full"
        state, logs = seen(http)
        assert (state, logs["kafka"], logs["topics"]) == ("full", "full", "writable")
        eventually(lambda: gauges() == (1, 1) and told() == ["warning"])
        disk.is_full = disk.is_full_for_files = False
        eventually(lambda: speaker.produce("orders", batch_of("x"))["error_code"] == 0)
        assert http.get("/v0/ready").json["status"] == "ok"
        eventually(lambda: gauges() == (0, 0) and told() == ["warning", "info"])
