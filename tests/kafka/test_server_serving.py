"""The Kafka listener as an operator meets it: `headwater serve`, pressure, descriptors."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest

from headwater.config.loading import Settings
from headwater.engine.pressure import PressureControl
from headwater.format.kafka.records import BatchProducer
from headwater.wire.kafka.apis import SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_fetch import asked
from tests.rig.kafka import batch_of
from tests.rig.server_process import ServerProcess


@pytest.mark.e2e
def test_serve_tells_its_kafka_port_and_stops_while_clients_wait(tmp_path: Path) -> None:
    ports = tmp_path / "ports.json"
    flags = ("--kafka-port", "0", "--port-file", str(ports))
    server = ServerProcess(tmp_path / "data", *flags, HEADWATER_KAFKA_PORT="")
    with server:
        port = json.loads(ports.read_text())["kafka"]
        with RawKafka(port) as speaker:
            speaker.make_topic("orders")
            assert speaker.produce("orders", batch_of("a"))["base_offset"] == 0
            version = SUPPORTED[ApiKey.FETCH].newest
            values = asked("orders", 1, wait_ms=60_000)
            speaker.send(request_frame(ApiKey.FETCH, version, 9, "speaker", values))
            assert server.stop() == 0
            assert speaker.answer(ApiKey.FETCH, version, 9)["error_code"] == 0
        said = "\n".join(server.lines)
        told = f"Kafka clients on 127.0.0.1:{port} (no users: every client may do everything)"
        assert told in said
        server.restart()
        with RawKafka(json.loads(ports.read_text())["kafka"]) as speaker:
            assert speaker.end_of("orders") == 1


@pytest.mark.claims(46)
@pytest.mark.e2e
def test_segments_and_indexes_lie_in_the_data_directory_that_is_named(tmp_path: Path) -> None:
    assert Settings().data_dir == "./headwater-data"
    ports = tmp_path / "ports.json"
    server = ServerProcess(
        tmp_path / "named", "--kafka-port", "0", "--port-file", str(ports), HEADWATER_KAFKA_PORT=""
    )
    with server:
        with RawKafka(json.loads(ports.read_text())["kafka"]) as speaker:
            speaker.make_topic("orders")
            assert speaker.produce("orders", batch_of("a"))["error_code"] == 0
        assert server.stop() == 0
    found = {each.name for each in (tmp_path / "named" / "kafka").iterdir()}
    assert found == {"0.log", "0.oidx", "checkpoint", "checkpoint.copy", "checkpoint.spare"}


def test_under_pressure_producers_are_told_to_come_back(
    broker: Broker, speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker.make_topic(name)
    rows = [{"index": 0, "records": batch_of("a")}]
    values = {"acks": -1, "topic_data": [{"name": name, "partition_data": rows}]}
    refused = broker.app.backend.engine.pressure_control.writes_refused
    with monkeypatch.context() as pressed:
        pressed.setattr(PressureControl, "refuses", True)
        told = speaker.ask(ApiKey.PRODUCE, values)
        assert speaker.fetch(name)["error_code"] == 0
    row = told["responses"][0]["partition_responses"][0]
    assert row["error_code"] == ErrorCode.NOT_ENOUGH_REPLICAS
    assert told["throttle_time_ms"] > 0
    assert broker.app.backend.engine.pressure_control.writes_refused == refused + 1
    assert speaker.end_of(name) == 0
    told = speaker.ask(ApiKey.PRODUCE, values)
    assert told["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert told["throttle_time_ms"] == 0


def test_what_a_new_producer_sent_behind_a_refused_batch_is_not_taken_before_it(
    speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker.make_topic(name)
    batches = [batch_of("a", producer=BatchProducer(77, 0, sequence)) for sequence in range(2)]
    with monkeypatch.context() as pressed:
        pressed.setattr(PressureControl, "refuses", True)
        told = speaker.produce(name, batches[0])
        assert told["error_code"] == ErrorCode.NOT_ENOUGH_REPLICAS
    told = speaker.produce(name, batches[1])
    assert told["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [speaker.produce(name, batch)["base_offset"] for batch in batches] == [0, 1]


def test_all_protocols_share_the_connections_there_may_be(tmp_path: Path) -> None:
    server = running_broker(tmp_path / "data", limits={"connections": 2})
    with (
        server as broker,
        RawKafka(broker.kafka_port) as one,
        RawKafka(broker.kafka_port) as two,
    ):
        for speaker in (one, two):
            speaker.ask(ApiKey.METADATA, {"topics": []})
        with (
            socket.create_connection(("127.0.0.1", broker.port), 20) as late,
            contextlib.suppress(ConnectionResetError),
        ):
            assert late.recv(1) == b""
