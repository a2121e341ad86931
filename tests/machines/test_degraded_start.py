"""A server whose machines' files are damaged serves everything else, and says what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.config.server import ServerSettings
from headwater.core.errors import DamageError
from headwater.observe.metrics import METRICS, PREFIX
from headwater.wire.kafka.apis import ApiKey
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import wire
from tests.server.raw_http import RawHttp
from tests.server.running_server import running, settings


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Topics and machines, stopped cleanly; then the only segment of the machines' log is lost."""
    found = tmp_path / "data"
    with headwater.open(found) as database:
        database.append("orders", [{"data": 1}])
        database.machines.put_machine("order", 1, ORDER)
        database.machines.create_instance("order", 1, "o-1", {"amount": 1})
    missing_segment(found).unlink()
    return found


def missing_segment(directory: Path) -> Path:
    return directory / "machines" / "wal" / f"{1:016x}.wal"


def chosen() -> ServerSettings:
    hook = "http://127.0.0.1:9/never"
    return settings(rcpx_port=0, kafka_port=0, webhooks=(hook,), deadlines={"drain_s": 1.0})


@pytest.fixture
def server(directory: Path) -> Iterator[Broker]:
    server = Broker(directory, chosen())
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def http(server: Broker) -> Iterator[RawHttp]:
    with server.talk() as connection:
        yield connection


def test_topics_and_kafka_are_served_while_the_machines_are_away(
    server: Broker, http: RawHttp
) -> None:
    assert http.ask("POST", "/v0/topics/orders", {"records": [{"data": 2}]}).status == 200
    told = http.ask("POST", "/v0/topics/orders/diff", {"from_seq": 0})
    assert [record["data"] for record in told.json["records"]] == [1, 2]
    with RawKafka(server.kafka_port) as kafka:
        assert kafka.ask(ApiKey.METADATA)["brokers"]


def test_every_call_to_the_machines_is_answered_with_file_and_reason(
    server: Broker, http: RawHttp, directory: Path
) -> None:
    for method, path, body in (
        ("GET", "/v0/machines", None),
        ("GET", "/v0/instances/o-1", None),
        ("POST", "/v0/instances/o-1/events", {"event": "PAY"}),
        ("POST", "/v0/machines/compact", {}),
        ("PUT", "/v0/machines/order/versions/2", {"definition": ORDER}),
    ):
        told = http.ask(method, path, body) if body is not None else http.get(path)
        assert (told.status, told.code) == (503, "storage_failed"), path
        detail = told.json["error"]["detail"]
        assert (detail["part"], detail["file"]) == ("machines", str(missing_segment(directory)))
    assert not missing_segment(directory).exists(), "nothing was begun anew"


def test_rcpx_is_answered_with_the_contracts_code(server: Broker) -> None:
    assert server.app.rcpx is not None
    with wire(server.app.rcpx.port) as client:
        client.hello()
        for op, params in (
            ("LIST_MACHINES", {}),
            ("APPLY_EVENT", {"instance_id": "o-1", "event": "PAY"}),
        ):
            error = client.ask(op, params)["error"]
            assert (error["code"], error["retryable"]) == ("WAL_IO_ERROR", False)
            assert error["details"]["part"] == "machines"


def test_readiness_status_and_metrics_name_the_part_that_is_away(
    http: RawHttp, directory: Path
) -> None:
    ready = http.get("/v0/ready")
    assert (ready.status, ready.json["status"]) == (200, "degraded")
    (told,) = ready.json["unavailable"]
    assert (told["part"], told["file"]) == ("machines", str(missing_segment(directory)))
    status = http.get("/v0/status").json
    assert (status["state"], status["unavailable"]) == ("degraded", [told])
    assert "part_unavailable" in METRICS
    lines = http.get("/v0/metrics").body.decode().splitlines()
    assert f'{PREFIX}part_unavailable{{part="machines"}} 1.0' in lines
    assert f'{PREFIX}part_unavailable{{part="kafka"}} 0.0' in lines


def test_webhooks_are_off_and_nobody_tries_them(server: Broker) -> None:
    assert server.app.webhooks.deliveries == []
    assert not server.app.webhooks.is_running


def test_an_embedded_database_raises_on_calls_to_machines_only(directory: Path) -> None:
    with headwater.open(directory) as database:
        database.append("orders", [{"data": 2}])
        for _ in range(2):
            with pytest.raises(DamageError, match="the machines are not served") as caught:
                database.machines.get_instance("o-1")
            assert caught.value.path == missing_segment(directory)
    with headwater.open(directory) as database:
        assert [record.data for record in database.diff("orders").records] == [1, 2]


def test_a_start_from_the_older_snapshot_is_told_in_readiness_and_status(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with headwater.open(directory) as database:
        database.machines.put_machine("order", 1, ORDER)
        database.machines.create_instance("order", 1, "o-1", {"amount": 1})
        database.machines.compact()
        database.machines.apply_event("o-1", "PAY")
        name = database.machines.compact().snapshot_id
    snapshot = directory / "machines" / "snapshots" / name
    data = bytearray(snapshot.read_bytes())
    data[60] ^= 0x01
    snapshot.write_bytes(data)
    with running(directory, settings(rcpx_port=0)) as server, server.talk() as http:
        assert http.get("/v0/instances/o-1").json["state"] == "paid"
        ready = http.get("/v0/ready").json
        assert ready["status"] == "ok"
        (told,) = ready["mended"]
        assert (told["part"], told["path"]) == ("machines", str(snapshot))
        assert told["action"] == "moved to quarantine"
        assert http.get("/v0/status").json["mended"] == [told]
    assert not snapshot.exists()
    assert (snapshot.parent / "quarantine" / name).read_bytes() == bytes(data)
