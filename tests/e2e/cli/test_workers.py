"""`headwater serve --workers`: several processes that are one server to everyone."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

import headwater
from tests.e2e.cli.conftest import SCRIPT, Shell
from tests.rig.server_process import ServerProcess
from tests.server.running_server import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_it_serves_with_gateways_and_stops_cleanly(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "2") as server:
        assert len(server.children) == 3
        with headwater.Client(server.url) as client:
            client.append("a", [{"data": n} for n in range(20)])
            assert client.state("a").count == 20
        assert server.stop() == 0
        assert server.lines[-1] == "stopped cleanly"


def test_what_was_acknowledged_is_there_after_all_processes_were_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "1") as server:
        with headwater.Client(server.url) as client:
            client.append("a", [{"data": n} for n in range(20)])
        server.restart(kill=True)
        with headwater.Client(server.url) as client:
            assert client.state("a").count == 20


def test_a_gateway_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "1") as server:
        _, gateway = server.children
        os.kill(gateway, signal.SIGKILL)
        eventually(lambda: len(server.children) == 2 and gateway not in server.children)
        with headwater.Client(server.url) as client:
            client.append("a", {"data": 1})


def test_connections_survive_a_killed_sequencer_and_go_on_with_the_next(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", "--workers", "1") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
    ):
        assert _status(connection) == 200
        sequencer = server.children[0]
        os.kill(sequencer, signal.SIGKILL)
        eventually(lambda: _status(connection) == 200 and sequencer not in server.children)


def test_processes_end_politely_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--workers", "1") as server:
        server.kill_supervisor()  # waits for all that have its output
        assert server.lines[-1] == "stopped cleanly"


def test_a_port_and_a_directory_in_use_are_refused_as_without_workers(
    shell: Shell, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = shell("serve", "--port", port, "--data-dir", "d", "--workers", "1")
    assert done.code == 5
    assert done.err == (
        f"headwater: cannot listen on 127.0.0.1:{port} (address already in use); "
        "choose another --port, or 0 for a free one\n"
    )
    with ServerProcess(tmp_path / "d", "--workers", "1") as server:
        done = shell("serve", "--port", str(server.port), "--data-dir", "e", "--workers", "1")
        assert done.code == 5
        done = shell("serve", "--port", "0", "--data-dir", "d", "--workers", "1")
    assert done.code == 4
    assert "d is in use by another Headwater (process " in done.err


def test_the_metrics_port_says_what_each_gateway_has(tmp_path: Path) -> None:
    ports = tmp_path / "ports.json"
    flags = ("--workers", "2", "--port-file", str(ports), "--metrics-port", "0")
    with (
        ServerProcess(tmp_path / "data", *flags) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
    ):
        assert _status(connection) == 200
        address = f"http://127.0.0.1:{json.loads(ports.read_text())['metrics']}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        assert told["headwater_ready"] == "1.0"
        assert told["headwater_connections"] == "1.0"
        each = [told[f'headwater_gateway_connections{{gateway="{n}"}}'] for n in range(2)]
        assert sorted(each) == ["0.0", "1.0"]
        assert told['headwater_gateway_starts_total{gateway="1"}'] == "1.0"
        with urllib.request.urlopen(f"{server.url}/v0/status", timeout=10) as answer:
            seen = json.load(answer)["gateways"]
        assert [gateway["pid"] in server.children for gateway in seen] == [True, True]


def _status(connection: socket.socket) -> int:
    connection.sendall(b"GET /v0/topics HTTP/1.1\r\nhost: a\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65_536)
    return int(head.split()[1])
