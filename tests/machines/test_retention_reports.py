"""Old log is kept for whoever needs it, the status says for whom, and a gap is told everywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.api.machine_requests import WatchFilter
from headwater.engine.engine import Engine
from headwater.engine.machines import store as machine_store
from headwater.engine.machines.host import MachineHost
from headwater.format.machines.names import global_offset, segment_name, segment_of
from headwater.server.machines.webhooks import parse_webhook
from headwater.wire.machine_answers import GapAnswer, TransitionAnswer
from headwater.wire.status_answers import HoldSeen, StatusAnswer
from tests.machines.test_machine_http import apply, create, following, put
from tests.machines.test_rcpx_conduct import wire
from tests.machines.test_webhooks import (
    SHORT_LOG,
    Receiver,
    compact,
    receiver,
    served,
    turn,
    wait_for_the_topic,
    wait_for_webhooks,
)
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, eventually, running, settings

__all__ = ["receiver"]  # a fixture


FIFTH = 4
"""Of the events: neither the first nor the last of its segment."""


def bad_range(moved: list[int]) -> tuple[int, int]:
    """First and last offset of what cannot be read once the fifth is damaged."""
    return moved[FIFTH], moved[FIFTH + 1] - 1


def begin(http: RawHttp) -> None:
    put(http, "order")
    create(http, "order", "o-1", initial_ctx={"amount": 1})


def status(http: RawHttp) -> StatusAnswer:
    return msgspec.json.decode(http.get("/v0/status").body, type=StatusAnswer)


def hold_of(http: RawHttp, owner: str) -> HoldSeen | None:
    return next((each for each in status(http).retention_holds if each.owner == owner), None)


def metric(http: RawHttp, name: str) -> float:
    line = next(
        each for each in http.get("/metrics").body.decode().splitlines() if each.startswith(name)
    )
    return float(line.rpartition(" ")[2])


def damage(directory: Path, offset: int) -> None:
    """One byte of the entry's payload, while the server runs or between two of its lives."""
    path = directory / "machines" / "wal" / segment_name(segment_of(offset))
    data = bytearray(path.read_bytes())
    data[(offset & 0xFF_FFFF_FFFF) + 40] ^= 1
    path.write_bytes(data)


@contextmanager
def with_damage_in_the_middle(directory: Path) -> Iterator[tuple[RunningServer, list[int]]]:
    """A server that runs, and has copied everything, when the fifth of eight is damaged."""
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    with running(directory, chosen, engine_settings=SHORT_LOG) as server, server.talk() as http:
        begin(http)
        moved = turn(http, "o-1", 8)
        wait_for_the_topic(server, moved[-1])
        damage(directory, moved[FIFTH])
        yield server, moved


def events_of(connection: RawHttp, count: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    while len(found) < count:
        block = b""
        while not block.endswith(b"\n\n"):
            block += connection.take(1)
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
        if fields.get("event") in ("transition", "gap"):
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_an_event_stream_tells_a_gap_with_its_range_where_the_log_is_damaged(
    tmp_path: Path,
) -> None:
    with (
        with_damage_in_the_middle(tmp_path / "data") as (server, moved),
        following(server, "from_offset=0&include_ctx=false") as watch,
    ):
        found = events_of(watch, 8)
    assert [name for name, _ in found] == ["transition"] * 4 + ["gap"] + ["transition"] * 3
    gap = found[FIFTH][1]
    assert gap["reason"] == "damaged"
    assert (gap["first_offset"], gap["last_offset"]) == bad_range(moved)
    assert gap["first_offset_text"] == str(moved[FIFTH])


def test_rcpx_tells_a_gap_with_its_range_where_the_log_is_damaged(tmp_path: Path) -> None:
    with with_damage_in_the_middle(tmp_path / "data") as (server, moved):
        assert server.app.rcpx is not None
        with wire(server.app.rcpx.port) as client:
            client.hello()
            client.ok("WATCH_ALL", {"from_offset": 0, "include_ctx": False})
            found = [client.hear() for _ in range(8)]
    assert [each["type"] for each in found] == ["event"] * 4 + ["gap"] + ["event"] * 3
    assert found[FIFTH]["reason"] == "damaged"
    assert (found[FIFTH]["first_offset"], found[FIFTH]["last_offset"]) == (
        moved[FIFTH],
        moved[FIFTH + 1] - 1,
    )


def test_clients_and_the_embedded_library_get_the_gap_in_its_place(tmp_path: Path) -> None:
    wanted: list[Any] = [TransitionAnswer] * 4 + [GapAnswer] + [TransitionAnswer] * 3
    with (
        with_damage_in_the_middle(tmp_path / "data") as (server, moved),
        headwater.Client(f"http://127.0.0.1:{server.port}") as client,
    ):
        found = list(client.machines.watch(from_offset=0, idle_ms=1))
    assert [type(each) for each in found] == wanted
    with headwater.open(tmp_path / "data", settings=SHORT_LOG) as database:
        again = list(database.machines.watch(from_offset=0, idle_ms=1))
    gaps = [each for each in again if isinstance(each, GapAnswer)]
    assert [type(each) for each in again] == wanted
    assert gaps == [each for each in found if isinstance(each, GapAnswer)]
    assert (gaps[0].first_offset, gaps[0].last_offset) == bad_range(moved)
    assert gaps[0].reason == "damaged"


def test_damage_that_the_feeder_and_a_webhook_meet_is_in_status_readiness_and_metrics(
    tmp_path: Path, receiver: Receiver
) -> None:
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        begin(http)
        assert status(http).gaps == []
        assert "gaps" not in http.get("/readyz").json
        receiver.gate.clear()
        http.put("machines:transitions", cap_records=1, discard="reject")
        moved = turn(http, "o-1", 8)
    damage(tmp_path / "data", moved[FIFTH])
    receiver.gate.set()
    while not receiver.told.empty():
        receiver.next()
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        http.put("machines:transitions", cap_records=0)
        told = [receiver.next()[1]]
        while told[-1].get("wal_offset") != moved[-1]:
            told.append(receiver.next()[1])
        (gap,) = [each for each in told if each["type"] == "gap"]
        assert (gap["first_offset"], gap["last_offset"]) == (
            str(moved[FIFTH]),
            str(moved[FIFTH + 1] - 1),
        )
        assert gap["reason"] == "damaged"
        wait_for_the_topic(server, moved[-1])
        owners = {each.owner: each for each in status(http).gaps}
        assert set(owners) == {"transitions_topic", "webhook"}
        for each in owners.values():
            assert (each.gaps, each.reason) == (1, "damaged")
            assert (each.first_offset, each.last_offset) == (
                str(moved[FIFTH]),
                str(moved[FIFTH + 1] - 1),
            )
        ready = http.get("/readyz")
        assert ready.status == 200
        assert {each["owner"] for each in ready.json["gaps"]} == set(owners)
        assert "127.0.0.1" not in json.dumps(ready.json), "anybody may ask"
        assert metric(http, "headwater_machine_transition_gaps_total") == 1
        assert metric(http, "headwater_webhook_gaps_total") == 1


def test_a_consumer_that_is_behind_is_in_status_with_what_is_kept_for_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        begin(http)
        receiver.gate.clear()
        moved = turn(http, "o-1", 12)
        wait_for_the_topic(server, moved[-1])
        for _ in range(2):
            compact(http)
        feeder, webhook = hold_of(http, "transitions_topic"), hold_of(http, "webhook")
        assert feeder is not None
        assert webhook is not None
        assert feeder.held_bytes == 0
        assert webhook.held_bytes > 0
        assert webhook.behind_bytes is not None
        assert webhook.behind_bytes > 200_000
        assert webhook.name == parse_webhook(receiver.url).label
        assert "token" not in webhook.name
        assert webhook.durable
        assert not webhook.gives_way
        held = metric(http, 'headwater_retention_held_bytes{owner="webhook"}')
        assert held == webhook.held_bytes
        receiver.gate.set()


def test_compaction_waits_for_webhooks_before_the_server_has_opened_them(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        begin(http)
        receiver.gate.clear()
        moved = turn(http, "o-1", 12)
        wait_for_the_topic(server, moved[-1])
        compact(http)  # from here on there is a snapshot that could let the log go
    receiver.gate.set()
    start_feeder, deleted = MachineHost.start_feeder, []

    def compacted_after(room: MachineHost, engine: Engine) -> None:
        start_feeder(room, engine)
        assert room.store is not None
        deleted.append(room.store.compact().segments_deleted)

    monkeypatch.setattr(MachineHost, "start_feeder", compacted_after)
    while not receiver.told.empty():
        receiver.next()
    with served(tmp_path / "data", receiver, engine_settings=SHORT_LOG):
        assert deleted == [0], "the webhook has not got them"
        told = [receiver.next()[1]]
        while told[-1].get("wal_offset") != moved[-1]:
            told.append(receiver.next()[1])
        assert {each["type"] for each in told} == {"transition"}
        assert {*moved[1:]} <= {each["wal_offset"] for each in told}


def test_a_webhook_that_is_not_configured_any_more_lets_go_and_the_log_says_so(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        begin(http)
        receiver.gate.clear()
        moved = turn(http, "o-1", 12)
        wait_for_the_topic(server, moved[-1])
    receiver.gate.set()
    plain = settings(deadlines={"drain_s": 1.0})
    with (
        caplog.at_level(logging.WARNING, logger="headwater.retention"),
        running(tmp_path / "data", plain, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        assert hold_of(http, "webhook") is None
        assert compact(http) + compact(http) > 0
    assert any(
        "not configured any more" in each or "no such webhook" in each for each in caplog.messages
    )
    while not receiver.told.empty():
        receiver.next()
    with served(tmp_path / "data", receiver, engine_settings=SHORT_LOG):
        first = receiver.next()[1]
        while first["type"] == "transition" and first["wal_offset"] <= moved[0]:
            first = receiver.next()[1]
        assert first["type"] == "gap", "it is configured again, and told what it missed"
        assert first["reason"] == "compacted"


def test_a_damaged_position_of_a_webhook_means_repeats_and_not_silence(
    tmp_path: Path, receiver: Receiver
) -> None:
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        begin(http)
        moved = turn(http, "o-1", 3)
        for _ in moved:
            receiver.next()
    path = tmp_path / "data" / "machines" / "webhooks" / parse_webhook(receiver.url).file_name
    good = path.read_bytes()
    path.write_bytes(good.replace(b'set":"1', b'set":"9'))
    assert path.read_bytes() != good
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        assert [receiver.next()[1]["wal_offset"] for _ in moved] == moved
        (after,) = [apply(http, "o-1", "CANCEL").json["wal_offset"]]
        assert receiver.next()[1]["wal_offset"] == after


def test_the_log_is_kept_for_a_watch_until_it_has_read_what_came_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with headwater.open(tmp_path / "data", settings=SHORT_LOG) as database:
        room = database.engine.machines
        database.machines.put_machine("order", 1, {"states": ["a"], "initial": "a", "transitions": [
            {"from": "a", "event": "GO", "to": "a"}]})  # fmt: skip
        database.machines.create_instance("order", 1, "o-1")
        moved = [
            database.machines.apply_event("o-1", "GO", {"text": "x" * 20_000}).wal_offset
            for _ in range(12)
        ]
        eventually(lambda: room.feeder is not None and room.feeder.position > moved[-1])
        store = room.store
        assert store is not None
        assert database.machines.compact().segments_deleted == 0, "the first snapshot"
        watched = database.machines.watch(from_offset=0, idle_ms=1)
        first = next(watched)
        assert isinstance(first, TransitionAnswer)
        # All of it came in one part, so nothing is needed any more.
        assert [each.owner.value for each in store.retention_holds()] == ["transitions_topic"]
        assert len(list(watched)) == 11
        watcher = database.engine.core.owner.call(lambda: store.watch(WatchFilter(), 0))
        (mine,) = [each for each in store.retention_holds() if each.owner.value == "watch"]
        assert mine.position == global_offset(1, 0)
        assert not mine.durable
        assert database.machines.compact().segments_deleted == 0
        assert watcher.catch_up is not None
        found = watcher.catch_up.read()
        assert [each.wal_offset for each in found.events] == moved
        assert found.gaps == []
        watcher.close()
        left = database.engine.core.owner.call(lambda: store.watch(WatchFilter(), 0))
        assert len(store.holds) == 2
        left.close()
        assert len(store.holds) == 1, "whoever goes away holds nothing"
        monkeypatch.setattr(machine_store, "WATCH_HELD_BYTES_MAX", 1_000)
        slow = database.engine.core.owner.call(lambda: store.watch(WatchFilter(), 0))
        assert database.machines.compact().segments_deleted > 0, "it is too far behind"
        assert slow.catch_up is not None
        (gap,) = slow.catch_up.read().gaps
        assert gap.reason.value == "compacted"
        slow.close()
