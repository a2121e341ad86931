"""RCPX connections: both wire modes, hostile bytes, slow and vanished clients, limits, the end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.config.machines import MachineSettings
from headwater.wire.rcpx import HEADER, MessageReader, RcpxFlag, WireMode, frame, message
from tests.machines.conftest import ORDER
from tests.server.running_server import SMALL_ENGINE, RunningServer, eventually, running, settings


class Wire:
    """A client that says exactly what it is told to."""

    def __init__(self, port: int, mode: WireMode = WireMode.FRAMES) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.mode = mode
        self.reader = MessageReader()
        self._number = 0

    def say(self, op: str, params: Any = None, **envelope: Any) -> str:
        self._number += 1
        request: dict[str, Any] = {"type": "request", "id": str(self._number), "op": op}
        if params is not None:
            request["params"] = params
        self.send(message(json.dumps(request | envelope).encode(), self.mode))
        return str(self._number)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> dict[str, Any]:
        while True:
            found = self.reader.next_message()
            if found is not None:
                told: dict[str, Any] = json.loads(found)
                return told
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError
            self.reader.feed(data)

    def ask(self, op: str, params: Any = None, **envelope: Any) -> dict[str, Any]:
        self.say(op, params, **envelope)
        return self.hear()

    def ok(self, op: str, params: Any = None) -> dict[str, Any]:
        answer = self.ask(op, params)
        assert answer["status"] == "ok", answer
        result: dict[str, Any] = answer["result"]
        return result

    def hello(self) -> dict[str, Any]:
        return self.ok("HELLO", {"protocol_version": 1})

    def is_ended(self) -> bool:
        """Everything that is still said is passed over."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
        return True


@contextmanager
def wire(port: int, mode: WireMode = WireMode.FRAMES) -> Iterator[Wire]:
    made = Wire(port, mode)
    with made.socket:
        yield made


@pytest.mark.parametrize("mode", WireMode)
def test_both_wire_modes_carry_a_whole_story(rcpx_port: int, name: str, mode: WireMode) -> None:
    with wire(rcpx_port, mode) as client:
        assert client.hello()["wire_mode"] == mode.value
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        client.ok(
            "CREATE_INSTANCE",
            {"machine": name, "version": 1, "instance_id": name, "initial_ctx": {"amount": 1}},
        )
        client.ok("WATCH_INSTANCE", {"instance_id": name})
        client.say("APPLY_EVENT", {"instance_id": name, "event": "PAY"})
        heard = {each["type"]: each for each in (client.hear(), client.hear())}
        assert heard["response"]["meta"]["wal_offset"] == heard["event"]["wal_offset"]
        assert client.ok("BYE") == {"goodbye": True}
        assert client.is_ended()


def test_hello_changes_the_wire_mode_after_its_answer(rcpx_port: int) -> None:
    with wire(rcpx_port) as client:
        told = client.ok("HELLO", {"protocol_version": 1, "wire_modes": ["jsonl"]})
        assert told["wire_mode"] == "jsonl"
        client.mode = client.reader.mode = WireMode.LINES
        assert client.ok("PING") == {"pong": True}


def test_a_pushed_frame_says_that_it_is_of_a_stream(rcpx_port: int, name: str) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        made = {"machine": name, "version": 1, "instance_id": name, "initial_ctx": {"amount": 1}}
        client.ok("CREATE_INSTANCE", made)
        client.ok("WATCH_INSTANCE", {"instance_id": name})
        client.say("APPLY_EVENT", {"instance_id": name, "event": "PAY"})
        data, flags = b"", set[int]()
        while len(flags) < 2:
            data += client.socket.recv(65_536)
            at, flags = 0, set[int]()
            while len(data) - at >= HEADER.size:
                header = HEADER.unpack(data, at)
                flags.add(header["flags"])
                at += HEADER.size + header["payload_bytes"]
        assert flags == {RcpxFlag.CRC, RcpxFlag.CRC | RcpxFlag.STREAM}


def test_the_first_operation_is_hello_and_of_a_known_version(rcpx_port: int) -> None:
    with wire(rcpx_port) as client:
        assert client.ask("PING")["error"]["code"] == "BAD_REQUEST"
        wrong = client.ask("HELLO", {"protocol_version": 7})
        assert wrong["error"]["code"] == "UNSUPPORTED_PROTOCOL"
        modes = client.ask("HELLO", {"protocol_version": 1, "wire_modes": ["morse"]})
        assert modes["error"]["code"] == "UNSUPPORTED_PROTOCOL"
        assert client.hello()["server_name"] == "headwater"
        assert client.ask("DANCE")["error"]["code"] == "BAD_REQUEST"
        assert client.ask("PING", id="mine")["id"] == "mine"
        client.send(frame(b'{"op":"PING","id":9,"params":null}'))
        assert client.hear()["id"] == 9


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"RCPX" + bytes(14),
        frame(b"{}")[:-1] + b"?",
        frame(b"{}")[:10] + b"\xff\xff\xff\xff" + bytes(4),
        b"RCPY" + frame(b"{}")[4:],
        bytes(100),
    ],
)
def test_bytes_of_somebody_else_end_the_connection(rcpx_port: int, data: bytes) -> None:
    with wire(rcpx_port) as client:
        client.send(data)
        client.reader.mode = WireMode.LINES if data[:1] != b"R" else WireMode.FRAMES
        assert client.is_ended()
    with wire(rcpx_port) as another:
        assert another.hello()


def test_json_that_is_no_request_is_answered_and_the_connection_goes_on(rcpx_port: int) -> None:
    with wire(rcpx_port, WireMode.LINES) as client:
        client.hello()
        for line in (b"{]", b"{}", b'{"id":"7","op":5}', b'{"op":"PING","type":"response"}'):
            client.send(line + b"\n")
            assert client.hear()["error"]["code"] == "BAD_REQUEST"
        client.send(b'{"id":"8","op":"PING","params":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n")
        assert client.hear()["error"]["code"] == "BAD_REQUEST"
        assert client.ok("PING") == {"pong": True}


def test_many_requests_at_once_are_all_answered(rcpx_port: int, name: str) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        wanted = {
            client.say("CREATE_INSTANCE", {"machine": name, "instance_id": f"{name}-{number}"})
            for number in range(500)
        }
        answers = [client.hear() for _ in range(500)]
        assert {each["id"] for each in answers} == wanted
        assert {each["status"] for each in answers} == {"ok"}


def test_a_slow_watcher_is_told_what_it_missed_and_holds_up_nobody(tmp_path: Path) -> None:
    engine = replace(SMALL_ENGINE, machines=MachineSettings(watch_buffer_events=8))
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    definition = {
        "states": ["a"],
        "initial": "a",
        "transitions": [{"from": "a", "event": "GO", "to": "a"}],
    }
    step = {"instance_id": "i", "event": "GO", "payload": {"x": "y" * 300_000}}
    with running(tmp_path / "data", chosen, engine_settings=engine) as server:
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as slow, wire(listener.port) as writer:
            slow.hello()
            writer.hello()
            writer.ok("PUT_MACHINE", {"machine": "m", "version": 1, "definition": definition})
            writer.ok("CREATE_INSTANCE", {"machine": "m", "instance_id": "i"})
            slow.ok("WATCH_ALL", {"include_ctx": False})
            for _ in range(60):
                writer.ok("APPLY_EVENT", step)
            told = {"event": 0, "gap": 0}
            while sum(told.values()) < 60:
                found = slow.hear()
                told[found["type"]] += found.get("missed", 1)
            assert sum(told.values()) == 60
            assert told["gap"] > 0


def test_a_connection_that_says_nothing_is_ended(tmp_path_factory: pytest.TempPathFactory) -> None:
    chosen = settings(rcpx_port=0, deadlines={"headers_s": 0.2, "body_s": 0.2, "drain_s": 1.0})
    with running(tmp_path_factory.mktemp("deadlines") / "data", chosen) as server:
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as silent, wire(listener.port) as half:
            half.hello()
            half.send(frame(b'{"op":"PING"}')[:-3])
            assert half.is_ended()
            assert silent.is_ended()
        with wire(listener.port) as quiet:
            quiet.hello()
            eventually(lambda: listener.open_connections == 1)
            assert quiet.ok("PING") == {"pong": True}


def test_a_stranger_may_send_little_and_a_known_client_more(tmp_path: Path) -> None:
    secret = "rcpx-some-secret"
    chosen = settings(rcpx_port=0, api_keys=(secret,), deadlines={"drain_s": 1.0})
    long = {"machine": "x" * 100_000}
    with running(tmp_path / "data", chosen) as server:
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as stranger, wire(listener.port) as known:
            assert stranger.hello()["auth_required"]
            assert "at most 65536" in stranger.ask("GET_MACHINE", long)["error"]["message"]
            assert stranger.is_ended()
            known.hello()
            known.ok("AUTH", {"token": secret})
            assert known.ask("GET_MACHINE", long)["error"]["code"] == "BAD_REQUEST"
            assert known.ok("PING") == {"pong": True}


@pytest.mark.one_process
def test_a_client_that_was_let_in_is_read_together_with_others_until_it_leaves(
    server: RunningServer, rcpx_port: int
) -> None:
    before = len(server.app.ports.intake)
    with wire(rcpx_port) as client:
        client.hello()
        for _ in range(3):
            assert client.ok("PING") == {"pong": True}
        assert len(server.app.ports.intake) == before + 1
        half = message(
            json.dumps({"type": "request", "id": "h", "op": "PING"}).encode(), client.mode
        )
        for byte in half:
            client.send(bytes([byte]))
        assert client.hear()["id"] == "h"
    eventually(lambda: len(server.app.ports.intake) == before)


def test_watches_end_with_their_connection(
    server: RunningServer, rcpx_port: int, name: str
) -> None:
    streams = server.app.access.quotas.streams
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("WATCH_ALL", {"machines": [name]})
        assert server.app.access.quotas.streams == streams + 1
    eventually(lambda: server.app.access.quotas.streams == streams)


def test_a_stopping_server_ends_watches_and_finishes_requests(tmp_path: Path) -> None:
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 2.0})
    with running(tmp_path / "data", chosen) as server:
        listener = server.app.rcpx
        assert listener is not None
        client = Wire(listener.port)
        client.hello()
        client.ok("WATCH_ALL")
        server.stop()
    assert client.hear()["type"] == "end"
    with client.socket:
        assert client.is_ended()
