"""A server with machines through kills and damage: what is told, and what is still there."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

import headwater
from tests.machines.conftest import ORDER
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.e2e


@pytest.mark.claims(51, 80, 102, 104)
def test_answered_events_survive_a_kill_and_damage_is_told_at_the_start(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with headwater.Client(server.url) as client:
            machines = client.machines
            machines.put_machine("order", 1, ORDER)
            places = []
            for number in range(3):
                machines.create_instance("order", 1, f"o-{number}", {"amount": 1})
                places.append(machines.apply_event(f"o-{number}", "PAY").wal_offset)
            machines.create_instance("order", 1, "o-9")
        server.restart(kill=True)
        assert any("state machines: 4 instances" in line for line in server.lines)
        with headwater.Client(server.url) as client:
            assert [each.state for each in client.machines.list_instances().instances] == [
                *("paid", "paid", "paid", "created"),
            ]
        server.stop()
        (segment,) = (tmp_path / "data" / "machines" / "wal").glob("*.wal")
        data = bytearray(segment.read_bytes())
        data[(places[1] & (1 << 40) - 1) + 30] ^= 0xFF
        segment.write_bytes(data)
        server.start()
        told = "\n".join(server.lines)
        assert "1 damaged entries of their log were passed over" in told
        assert str(places[1]) in told
        with headwater.Client(server.url) as client:
            assert client.machines.get_instance("o-1").doubtful
            assert not client.machines.get_instance("o-9").doubtful


@pytest.mark.claims(112)
def test_a_second_process_may_not_have_the_machines(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data") as server,
        headwater.Client(server.url) as client,
    ):
        client.machines.put_machine("order", 1, ORDER)
        with pytest.raises(headwater.core.errors.DirectoryInUseError):
            headwater.open(tmp_path / "data")


def test_the_port_file_names_the_port_of_rcpx(tmp_path: Path) -> None:
    ports = tmp_path / "ports.json"
    flags = ("--rcpx-port", "0", "--port-file", str(ports))
    with ServerProcess(tmp_path / "data", *flags) as server:
        found = json.loads(ports.read_text(encoding="utf-8"))
        assert found["http"] == server.port
        with socket.create_connection(("127.0.0.1", found["rcpx"]), timeout=20) as client:
            client.sendall(b'{"op":"HELLO","id":"1"}\n')
            assert b'"wire_mode":"jsonl"' in client.recv(65_536)


def test_a_server_whose_machines_are_damaged_starts_and_says_so_in_its_lines(
    tmp_path: Path,
) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with headwater.Client(server.url) as client:
            client.append("orders", {"data": 1})
            client.machines.put_machine("order", 1, ORDER)
        server.stop()
        (segment,) = (tmp_path / "data" / "machines" / "wal").glob("*.wal")
        segment.unlink()
        server.start()
        told = "\n".join(server.lines)
        assert "the machines are not served: a segment of the log is missing" in told
        assert str(segment) in told
        assert "no transitions are taken to their topic meanwhile" in told
        with headwater.Client(server.url) as client:
            assert [record.data for record in client.diff("orders").records] == [1]
            with pytest.raises(headwater.core.errors.StorageError, match="not served"):
                client.machines.list_machines()
