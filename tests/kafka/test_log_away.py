"""Kafka's log is damaged: everything else is served, and whoever asks for it is told why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.config.server import ServerSettings
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME
from headwater.observe.metrics import PREFIX
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import batch_of
from tests.server.raw_http import RawHttp
from tests.server.running_server import settings

CORRUPT = ErrorCode.CORRUPT_MESSAGE
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
RECORDS = 5


def chosen() -> ServerSettings:
    return settings(kafka_port=0, rcpx_port=0, deadlines={"drain_s": 1.0})


def begun(directory: Path) -> Broker:
    broker = Broker(directory, chosen())
    broker.start()
    return broker


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A Kafka topic and a group, topics of the engine and a machine; stopped cleanly."""
    found = tmp_path / "data"
    broker = begun(found)
    try:
        with broker.talk() as http:
            assert http.ask("PUT", "/v0/topics/native", {}).status in (200, 201)
            assert (
                http.ask("POST", "/v0/topics/native", {"records": [{"data": {"n": 1}}]}).status
                == 200
            )
        with RawKafka(broker.kafka_port) as kafka:
            kafka.make_topic("orders")
            for number in range(RECORDS):
                kafka.produce("orders", batch_of(f"o{number}"))
    finally:
        broker.stop()
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.fixture
def broker(directory: Path) -> Iterator[Broker]:
    """One bit of the index is another one."""
    flip(directory / "kafka" / "0.oidx", 100)
    found = begun(directory)
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def http(broker: Broker) -> Iterator[RawHttp]:
    with broker.talk() as connection:
        yield connection


@pytest.fixture
def kafka(broker: Broker) -> Iterator[RawKafka]:
    with RawKafka(broker.kafka_port) as speaker:
        yield speaker


def list_latest(kafka: RawKafka, topic: str) -> dict[str, object]:
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    asked = {"topics": [{"name": topic, "partitions": [row]}]}
    (told,) = kafka.ask(ApiKey.LIST_OFFSETS, asked)["topics"]
    (found,) = told["partitions"]
    return dict(found)


def test_topics_are_served_over_http_and_over_the_kafka_port(
    http: RawHttp, kafka: RawKafka
) -> None:
    assert http.ask("POST", "/v0/topics/native", {"records": [{"data": {"n": 2}}]}).status == 200
    told = http.ask("POST", "/v0/topics/native/diff", {"from_seq": 0})
    assert [record["data"]["n"] for record in told.json["records"]] == [1, 2]
    assert kafka.produce("native", batch_of("new"))["error_code"] == ErrorCode.NONE
    assert list_latest(kafka, "native")["offset"] == 3
    found = kafka.fetch("native")
    assert (found["error_code"], found["high_watermark"]) == (ErrorCode.NONE, 3)


def test_partitions_of_the_log_are_answered_with_a_storage_error_and_no_offset(
    kafka: RawKafka,
) -> None:
    for topic in ("orders", "never heard of"):
        found = kafka.fetch(topic)
        assert (found["error_code"], found["high_watermark"]) == (STORAGE, -1)
        assert list_latest(kafka, topic)["error_code"] == STORAGE
        refused = kafka.produce(topic, batch_of("new"))
        assert (refused["error_code"], refused["base_offset"]) == (STORAGE, -1)
        assert "0.oidx" in str(refused["error_message"])


def test_metadata_shows_the_topics_that_the_checkpoint_knows(kafka: RawKafka) -> None:
    told = kafka.ask(ApiKey.METADATA, {"topics": None})["topics"]
    assert {row["name"]: row["error_code"] for row in told} == {"orders": 0, "native": 0}
    asked = {
        "topics": [{"name": name, "topic_id": bytes(16)} for name in ("orders", "another")],
        "allow_auto_topic_creation": True,
    }
    told = kafka.ask(ApiKey.METADATA, asked)["topics"]
    assert [row["error_code"] for row in told] == [ErrorCode.NONE, STORAGE]


def test_groups_are_told_that_their_coordinator_is_not_available(kafka: RawKafka) -> None:
    for api, asked in (
        (ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["readers"]}),
        (ApiKey.HEARTBEAT, {"group_id": "readers", "generation_id": 1, "member_id": "m"}),
        (ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []}),
    ):
        told = kafka.ask(api, asked)
        rows = told.get("coordinators") or [told]
        assert [row["error_code"] for row in rows] == [ErrorCode.COORDINATOR_NOT_AVAILABLE], api


def test_an_idempotent_producer_of_a_native_topic_gets_an_id(kafka: RawKafka) -> None:
    asked = {"transactional_id": None, "transaction_timeout_ms": 0}
    ids = {kafka.ask(ApiKey.INIT_PRODUCER_ID, asked)["producer_id"] for _ in range(3)}
    assert len(ids) == 3
    assert min(ids) >= 2**62


def test_http_names_file_and_offset_for_partitions_and_lists(
    http: RawHttp, directory: Path
) -> None:
    for method, path, body in (
        ("GET", "/v0/kafka/topics", None),
        ("GET", "/v0/kafka/groups", None),
        ("POST", "/v0/topics/kafka:orders:0/diff", {"from_seq": 0}),
        ("POST", "/v0/topics/orders", {"records": [{"data": 1}]}),
        ("PUT", "/v0/topics/orders", {}),
    ):
        told = http.get(path) if body is None else http.ask(method, path, body)
        assert (told.status, told.code) == (503, "storage_failed"), path
        detail = told.json["error"]["detail"]
        assert (detail["part"], detail["offset"]) == ("kafka", 0), path
        assert detail["file"] == str(directory / "kafka" / "0.oidx")


def test_readiness_status_and_metric_name_the_log(http: RawHttp, directory: Path) -> None:
    ready = http.get("/v0/ready")
    assert (ready.status, ready.json["status"]) == (200, "degraded")
    (told,) = ready.json["unavailable"]
    assert (told["part"], told["offset"]) == ("kafka", 0)
    assert told["file"] == str(directory / "kafka" / "0.oidx")
    assert http.get("/v0/status").json["unavailable"] == [told]
    lines = http.get("/v0/metrics").body.decode().splitlines()
    assert f'{PREFIX}part_unavailable{{part="kafka"}} 1.0' in lines


def test_a_repair_brings_the_log_back_with_every_offset_where_it_was(directory: Path) -> None:
    index, log = directory / "kafka" / "0.oidx", directory / "kafka" / "0.log"
    whole = index.read_bytes()
    flip(index, 100)
    shown = headwater("repair", str(directory))
    assert "0.oidx: write again from what can be read: put together again" in shown
    assert "its checksum proves that nothing is missing" in shown
    headwater("repair", str(directory), "--apply")
    assert index.read_bytes() == whole
    log.write_bytes(log.read_bytes()[:-3])  # of the last record
    shown = headwater("repair", str(directory))
    assert f"kafka:orders:0 offset {RECORDS - 1}, 1 record(s) lost" in shown
    assert "Gives up 1 record(s)." in shown
    headwater("repair", str(directory), "--apply")
    assert "BAD" not in headwater("verify", str(directory))
    broker = begun(directory)
    try:
        with RawKafka(broker.kafka_port) as kafka:
            assert list_latest(kafka, "orders")["offset"] == RECORDS
            assert kafka.fetch("orders")["error_code"] == ErrorCode.NONE
            assert kafka.fetch("orders", RECORDS - 1)["error_code"] == CORRUPT
            assert kafka.produce("orders", batch_of("new"))["base_offset"] == RECORDS
            assert kafka.fetch("orders", RECORDS)["error_code"] == ErrorCode.NONE
            assert kafka.fetch("orders", RECORDS - 1)["error_code"] == CORRUPT
    finally:
        broker.stop()


def headwater(*words: str) -> str:
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_nothing_of_the_damaged_log_is_changed(directory: Path) -> None:
    flip(directory / "kafka" / "0.oidx", 100)
    before = {path: path.read_bytes() for path in (directory / "kafka").iterdir()}
    begun(directory).stop()
    assert {path: path.read_bytes() for path in (directory / "kafka").iterdir()} == before


def test_one_damaged_checkpoint_is_written_again_from_the_other(directory: Path) -> None:
    for name, other in ((CHECKPOINT_NAME, COPY_NAME), (COPY_NAME, CHECKPOINT_NAME)):
        flip(directory / "kafka" / name, 50)
        broker = begun(directory)
        try:
            with RawKafka(broker.kafka_port) as kafka:
                assert list_latest(kafka, "orders")["offset"] == RECORDS
            store = broker.app.kafka.store
            assert store is not None
            told = [(each.path.name, each.action.value) for each in store.report.findings]
            assert told == [(name, "written again from the files")]
            with broker.talk() as http:
                (mended,) = http.get("/v0/ready").json["mended"]
            assert (mended["part"], mended["path"]) == ("kafka", str(directory / "kafka" / name))
        finally:
            broker.stop()
        kept = directory / "kafka" / "quarantine" / f"{name}.damaged"
        assert kept.exists(), other


def test_with_both_checkpoints_damaged_no_topic_is_known_and_none_is_made(
    directory: Path,
) -> None:
    for name in (CHECKPOINT_NAME, COPY_NAME):
        flip(directory / "kafka" / name, 50)
    broker = begun(directory)
    try:
        with RawKafka(broker.kafka_port) as kafka:
            told = kafka.ask(ApiKey.METADATA, {"topics": None})["topics"]
            assert [row["name"] for row in told] == ["native"]
            assert list_latest(kafka, "orders")["error_code"] == STORAGE
    finally:
        broker.stop()
