"""APPLY_EVENT over RCPX takes a short way: with the answers, and in the order, of the long one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.server.access.keys import ANYONE
from headwater.wire.rcpx import frame
from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import Wire
from tests.server.running_server import RunningServer


@pytest.fixture
def wire(rcpx_port: int, name: str) -> Iterator[Wire]:
    """A connection that has sent an event before, so that it takes the short way."""
    made = Wire(rcpx_port)
    made.hello()
    made.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
    create(made, name, f"{name}-0")
    made.ok("APPLY_EVENT", {"instance_id": f"{name}-0", "event": "PAY"})
    yield made
    made.socket.close()


def create(wire: Wire, machine: str, instance: str) -> None:
    asked = {"machine": machine, "version": 1, "instance_id": instance}
    wire.ok("CREATE_INSTANCE", {**asked, "initial_ctx": {"amount": 1}})


def test_requests_sent_behind_each_other_are_done_in_that_order(
    wire: Wire, name: str, server: RunningServer
) -> None:
    create(wire, name, name)
    said = [
        wire.say("APPLY_EVENT", {"instance_id": name, "event": "PAY", "payload": {"n": 1}}),
        wire.say("APPLY_EVENT", {"instance_id": name, "event": "PAY"}),
        wire.say("APPLY_EVENT", {"instance_id": name, "event": "SHIP", "event_id": "e"}),
        wire.say("DELETE_INSTANCE", {"instance_id": name}),
        wire.say("APPLY_EVENT", {"instance_id": name, "event": "CANCEL"}),
    ]
    answers = {answer["id"]: answer for answer in (wire.hear() for _ in said)}
    paid, twice, shipped, deleted, late = (answers[each] for each in said)
    assert paid["result"]["ctx"] == {"amount": 1, "n": 1}
    assert twice["error"]["code"] == "INVALID_TRANSITION"
    assert (shipped["result"]["from_state"], shipped["result"]["event_id"]) == ("paid", "e")
    assert paid["meta"]["wal_offset"] < shipped["meta"]["wal_offset"]
    assert deleted["result"]["wal_offset"] > shipped["result"]["wal_offset"]
    assert late["error"]["code"] == "INSTANCE_NOT_FOUND"
    assert server.app.access.quotas.of(ANYONE).in_flight == 0


def test_events_of_many_connections_at_once_are_each_answered_on_their_own(
    wire: Wire, rcpx_port: int, name: str
) -> None:
    wires = [Wire(rcpx_port) for _ in range(20)]
    for number, each in enumerate(wires):
        each.hello()
        create(each, name, f"{name}-at-{number}")
    answers: list[dict[str, Any]] = []
    for event in ("PAY", "SHIP", "SHIP"):
        for number, each in enumerate(wires):
            each.say("APPLY_EVENT", {"instance_id": f"{name}-at-{number}", "event": event})
        answers = [each.hear() for each in wires]
    assert [answer["error"]["code"] for answer in answers] == ["INVALID_TRANSITION"] * 20
    states = [wire.ok("GET_INSTANCE", {"instance_id": f"{name}-at-{n}"}) for n in range(20)]
    assert [each["state"] for each in states] == ["shipped"] * 20
    for each in wires:
        each.socket.close()


@pytest.mark.parametrize(
    "request_of",
    [
        {"params": {"instance_id": "nobody", "event": "PAY"}},
        {"params": {"instance_id": "nobody", "event": "PAY"}, "id": 7},
        {"params": {"instance_id": "nobody", "event": "PAY"}, "id": "i" * 300},
        {"params": {"instance_id": "nobody", "event": "PAY"}, "id": None},
        {"params": {"instance_id": "nobody", "event": "PAY"}, "type": "event"},
        {"params": {"instance_id": "nobody", "event": "PAY"}, "more": "APPLY_EVENT"},
        {"params": {"instance_id": "nobody", "event": "PAY", "unknown": 1}},
        {"params": {"instance_id": "nobody", "event": 1}},
        {"params": {"instance_id": "nobody", "event": "PAY", "payload": [1]}},
        {"params": {"instance_id": "", "event": "PAY"}},
        {"params": {"instance_id": "nobody", "event": "PAY", "expected_wal_offset": "x"}},
        {"params": {"instance_id": "nobody", "event": "PAY", "idempotency_key": ""}},
        {"params": {"event": "PAY"}},
        {"params": None},
        {"params": "APPLY_EVENT"},
        {"op": "PING", "params": {"told": "APPLY_EVENT"}},
    ],
    ids=str,
)
def test_what_the_short_way_does_not_take_is_refused_in_the_words_of_the_long_one(
    wire: Wire, rcpx_port: int, request_of: dict[str, Any]
) -> None:
    stranger = Wire(rcpx_port)
    stranger.hello()
    asked = {"type": "request", "id": "same", "op": "APPLY_EVENT", **request_of}
    by_the_long_way, by_the_short_way = told(stranger, asked), told(wire, asked)
    assert by_the_short_way == by_the_long_way
    stranger.socket.close()


def told(wire: Wire, asked: dict[str, Any]) -> dict[str, Any]:
    wire.send(frame(json.dumps(asked).encode()))
    answer = wire.hear()
    for field in ("meta", "result"):  # the time is in them
        answer.pop(field, None)
    return answer
