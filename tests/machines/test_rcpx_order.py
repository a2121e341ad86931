"""Requests that one connection sends behind each other are executed in that order."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.machines.store import MachineStore
from headwater.wire.rcpx import WireMode, message
from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import Wire, wire
from tests.server.running_server import RunningServer, running, settings

Asked = tuple[str, dict[str, Any]]


def pipelined(client: Wire, requests: Sequence[Asked]) -> list[dict[str, Any]]:
    """The responses, in the order of the requests, which leave in one piece."""
    data = b"".join(
        message(
            json.dumps({"type": "request", "id": str(number), "op": op, "params": params}).encode(),
            client.mode,
        )
        for number, (op, params) in enumerate(requests)
    )
    client.send(data)
    responses: dict[str, dict[str, Any]] = {}
    while len(responses) < len(requests):
        heard = client.hear()
        if heard["type"] == "response":
            responses[heard["id"]] = heard
    return [responses[str(number)] for number in range(len(requests))]


def create(machine: str, instance: str) -> Asked:
    params = {"machine": machine, "version": 1, "instance_id": instance}
    return "CREATE_INSTANCE", {**params, "initial_ctx": {"amount": 1}}


def apply(instance: str, event: str) -> Asked:
    return "APPLY_EVENT", {"instance_id": instance, "event": event}


def get(instance: str) -> Asked:
    return "GET_INSTANCE", {"instance_id": instance}


def state_of(response: dict[str, Any]) -> str:
    found: str = response["result"]["state"] if "result" in response else response["error"]["code"]
    return found


@pytest.mark.parametrize("mode", WireMode)
def test_a_read_sees_the_write_that_its_connection_sent_before_it(
    rcpx_port: int, name: str, mode: WireMode
) -> None:
    with wire(rcpx_port, mode) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        asked = [
            one
            for number in range(50)
            for one in (create(name, f"{name}-{number}"), get(f"{name}-{number}"))
        ]
        responses = pipelined(client, asked)
        assert {state_of(each) for each in responses} == {"created"}


@pytest.mark.parametrize("mode", WireMode)
def test_reads_and_writes_take_turns_as_they_were_sent(
    rcpx_port: int, name: str, mode: WireMode
) -> None:
    with wire(rcpx_port, mode) as client:
        client.hello()
        story: list[Asked] = [
            ("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER}),
            ("GET_MACHINE", {"machine": name, "version": 1}),
            create(name, name),
            get(name),
            apply(name, "PAY"),
            get(name),
            ("SNAPSHOT_INSTANCE", {"instance_id": name}),
            apply(name, "SHIP"),
            ("HISTORY", {"instance_id": name}),
            ("WATCH_INSTANCE", {"instance_id": name}),
            (
                "BATCH",
                {"ops": [{"op": "DELETE_INSTANCE", "params": {"instance_id": name}}]},
            ),
            get(name),
            ("LIST_INSTANCES", {"machine": name}),
            create(name, f"{name}-2"),
            ("LIST_INSTANCES", {"machine": name}),
            ("INFO", {}),
            ("PING", {}),
        ]
        told = pipelined(client, story)
        assert told[1]["result"]["definition"] == ORDER
        assert [state_of(told[at]) for at in (3, 5, 11)] == [
            "created", "paid", "INSTANCE_NOT_FOUND",
        ]  # fmt: skip
        assert told[6]["result"]["wal_offset"] == told[4]["result"]["wal_offset"]
        assert [each.get("event") for each in told[8]["result"]["entries"]] == [None, "PAY", "SHIP"]
        assert told[9]["result"]["current_state"] == "shipped"
        assert [told[at]["result"]["total"] for at in (12, 14)] == [0, 1]
        assert told[16]["result"] == {"pong": True}


def test_a_snapshot_of_an_instance_does_not_see_what_was_sent_behind_it(
    rcpx_port: int, name: str
) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        for number in range(10):
            instance = f"{name}-{number}"
            told = pipelined(
                client,
                [
                    create(name, instance),
                    ("SNAPSHOT_INSTANCE", {"instance_id": instance}),
                    apply(instance, "PAY"),
                ],
            )
            assert told[1]["result"]["wal_offset"] == told[0]["result"]["wal_offset"]
            assert told[2]["status"] == "ok"


def test_a_server_that_has_no_machines_yet_keeps_the_order_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "data", settings(rcpx_port=0, deadlines={"drain_s": 1.0})) as server:
        assert server.app.backend.engine.machines.store is None
        later_ones_are_through(server, monkeypatch)
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as client:
            story: list[Asked] = [
                ("HELLO", {"protocol_version": 1}),
                ("PUT_MACHINE", {"machine": "m", "version": 1, "definition": ORDER}),
                create("m", "i"),
                apply("i", "PAY"),
                get("i"),
            ]
            told = pipelined(client, story)
        assert [each["status"] for each in told] == ["ok"] * 5
        assert state_of(told[4]) == "paid"


def later_ones_are_through(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes first to open the machines is held up until another came; not for ever."""
    room = server.app.backend.engine.machines
    open_it, another, lock = room.open, threading.Event(), threading.Lock()
    calls = 0

    def open_later(*arguments: Any) -> MachineStore:
        nonlocal calls
        with lock:
            calls += 1
            is_first = calls == 1
        if is_first:
            another.wait(0.5)
            return open_it(*arguments)
        store = open_it(*arguments)
        another.set()
        return store

    monkeypatch.setattr(room, "open", open_later)


def test_writes_of_one_connection_still_share_their_groups(
    server: RunningServer, rcpx_port: int, name: str
) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        store = server.app.backend.engine.machines.store
        assert store is not None
        before = store.shard.counters.groups
        told = pipelined(client, [create(name, f"{name}-{number}") for number in range(200)])
        assert {each["status"] for each in told} == {"ok"}
        assert store.shard.counters.groups - before <= 40


def test_a_goodbye_waits_for_what_was_asked_before_it(rcpx_port: int, name: str) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        asked = [create(name, f"{name}-{number}") for number in range(20)]
        told = pipelined(client, [*asked, ("BYE", {}), get(f"{name}-0")][:-1])
        assert {each["status"] for each in told} == {"ok"}
        assert told[-1]["result"] == {"goodbye": True}
        assert client.is_ended()


def test_bytes_that_are_no_frame_are_refused_after_what_was_asked_before_them(
    rcpx_port: int, name: str
) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        op, params = create(name, name)
        request = {"type": "request", "id": "first", "op": op, "params": params}
        client.send(message(json.dumps(request).encode(), client.mode) + b"?" * 40)
        assert client.hear()["id"] == "first"
        assert client.hear()["error"]["code"] == "BAD_REQUEST"
        assert client.is_ended()


def test_a_key_that_is_sent_first_holds_for_what_is_sent_behind_it(tmp_path: Path) -> None:
    secret = "rcpx-some-secret"
    chosen = settings(rcpx_port=0, api_keys=(secret,), deadlines={"drain_s": 1.0})
    with running(tmp_path / "data", chosen) as server:
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as client:
            told = pipelined(
                client,
                [
                    ("HELLO", {"protocol_version": 1}),
                    ("LIST_MACHINES", {}),
                    ("AUTH", {"token": secret}),
                    ("PUT_MACHINE", {"machine": "m", "version": 1, "definition": ORDER}),
                    create("m", "i"),
                    get("i"),
                ],
            )
        assert [each["status"] for each in told] == ["ok", "error", *["ok"] * 4]
