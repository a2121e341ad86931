"""The contract of machines over HTTP: statuses, keys, streams, drawings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.machines.drawing import svg as drawing_svg
from headwater.engine.machines.drawing.picture import Picture
from headwater.engine.machines.drawing.svg import svg
from headwater.engine.machines.operations import catch_up_operation
from headwater.engine.machines.watchers import CatchUpPlan, CaughtUp
from headwater.engine.operation import Operation
from tests.machines.conftest import ORDER
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings

READER, TENANT, ADMIN = "reader-secret", "tenant-secret", "admin-secret"


def put(http: RawHttp, machine: str, version: int = 1, definition: Any = ORDER) -> Any:
    path = f"/v0/machines/{machine}/versions/{version}"
    return http.ask("PUT", path, {"definition": definition})


def create(http: RawHttp, machine: str, instance_id: str, **fields: Any) -> Any:
    body = {"machine": machine, "instance_id": instance_id, **fields}
    return http.ask("POST", "/v0/instances", body)


def apply(http: RawHttp, instance_id: str, event: str, **fields: Any) -> Any:
    return http.ask("POST", f"/v0/instances/{instance_id}/events", {"event": event, **fields})


@contextmanager
def following(server: RunningServer, query: str, **headers: str) -> Iterator[RawHttp]:
    with server.talk() as connection:
        connection.send(connection.request("GET", f"/v0/instances/watch?{query}", headers=headers))
        status, _ = connection.head()
        assert status == 200
        yield connection


def next_event(connection: RawHttp, name: str) -> tuple[str, Any]:
    """The next event of this name: its id and its data."""

    while True:
        block = b""
        while not block.endswith(b"\n\n"):
            block += connection.take(1)
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
        assert fields.get("event") != "gap", "nothing was missed"
        if fields.get("event") == name:
            return fields.get("id", ""), json.loads(fields["data"])


def test_making_is_201_and_repeating_is_200(http: RawHttp, name: str) -> None:
    assert put(http, name).status == 201
    assert put(http, name).status == 200
    assert put(http, name, 1, {**ORDER, "initial": "paid"}).code == "MACHINE_VERSION_EXISTS"
    first = create(http, name, name, idempotency_key="k")
    assert (first.status, first.json["applied"]) == (201, True)
    repeat = create(http, name, name, idempotency_key="k")
    assert (repeat.status, repeat.json["applied"]) == (200, False)
    assert create(http, name, name).status == 409


def test_an_idempotency_key_may_come_as_a_header(http: RawHttp, name: str) -> None:
    put(http, name)
    create(http, name, name, initial_ctx={"amount": 1})
    path, headers = f"/v0/instances/{name}/events", {"idempotency-key": "pay"}
    assert http.ask("POST", path, {"event": "PAY"}, headers).json["applied"]
    assert not http.ask("POST", path, {"event": "PAY"}, headers).json["applied"]
    assert http.ask("DELETE", f"/v0/instances/{name}", headers=headers).json["applied"]
    assert not http.ask("DELETE", f"/v0/instances/{name}", headers=headers).json["applied"]


def test_ids_with_any_printable_character_go_through_a_path(http: RawHttp, name: str) -> None:
    put(http, name)
    assert create(http, name, f"{name}/ä b?#%").status == 201
    path = f"/v0/instances/{name}%2F%C3%A4%20b%3F%23%25"
    assert http.get(path).json["instance_id"] == f"{name}/ä b?#%"


def test_every_offset_stands_there_as_a_number_and_as_text(http: RawHttp, name: str) -> None:
    put(http, name)
    made = create(http, name, name, initial_ctx={"amount": 1}).json
    assert made["wal_offset_text"] == str(made["wal_offset"])
    text = made["wal_offset_text"]
    assert apply(http, name, "PAY", expected_wal_offset=text).status == 200
    assert apply(http, name, "SHIP", expected_wal_offset=text).code == "CONFLICT"
    page = http.ask("POST", "/v0/machines/wal/read", {"from_offset": text, "limit": 1}).json
    assert page["entries"][0]["offset_text"] == text


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v0/instances", {"machine": "m", "surprise": 1}, "BAD_REQUEST"),
        ("POST", "/v0/instances", {"machine": "nobody"}, "MACHINE_NOT_FOUND"),
        ("POST", "/v0/instances", {"machine": "../x"}, "BAD_REQUEST"),
        ("GET", "/v0/instances/nobody", None, "INSTANCE_NOT_FOUND"),
        ("DELETE", "/v0/instances/nobody", None, "INSTANCE_NOT_FOUND"),
        ("POST", "/v0/instances/nobody/events", {"event": "X"}, "INSTANCE_NOT_FOUND"),
        ("GET", "/v0/instances/nobody/history", None, "INSTANCE_NOT_FOUND"),
        ("GET", "/v0/instances?limit=x", None, "BAD_REQUEST"),
        ("GET", "/v0/machines/m/versions/0", None, "BAD_REQUEST"),
        ("GET", "/v0/machines/nobody/versions/latest", None, "MACHINE_NOT_FOUND"),
        ("PUT", "/v0/machines/m/versions/latest", {"definition": {}}, "BAD_REQUEST"),
        ("PUT", "/v0/machines/m/versions/1", {"definition": 5}, "BAD_REQUEST"),
        ("POST", "/v0/instances/batch", {"operations": []}, "BAD_REQUEST"),
        ("POST", "/v0/instances/batch", {"operations": [{"op": "PING"}]}, "BAD_REQUEST"),
        ("POST", "/v0/machines/wal/read", {"from_offset": -1}, "BAD_REQUEST"),
        ("GET", "/v0/machines/m/versions/1/drawing?format=png", None, "BAD_REQUEST"),
        ("GET", "/v0/instances/watch?from_offset=x", None, "BAD_REQUEST"),
    ],
)
def test_bad_requests_have_their_code_and_change_nothing(
    http: RawHttp, method: str, path: str, body: Any, code: str
) -> None:
    before = http.get("/v0/machines/wal/stats").json["current_offset"]
    assert http.ask(method, path, body).code == code
    assert http.get("/v0/machines/wal/stats").json["current_offset"] == before


def test_the_history_of_events_without_a_payload_is_sound_json(http: RawHttp, name: str) -> None:
    put(http, name)
    create(http, name, name, initial_ctx={"amount": 1})
    apply(http, name, "PAY")
    apply(http, name, "CANCEL", payload={})
    apply(http, name, "PAY", payload={"by": "ann"})
    answer = http.get(f"/v0/instances/{name}/history")
    entries = json.loads(answer.body)["entries"]
    found = [(entry["event"], entry.get("payload")) for entry in entries if entry.get("event")]
    assert found == [("PAY", None), ("CANCEL", {}), ("PAY", {"by": "ann"})]


def test_a_path_written_out_in_full_is_never_the_id_of_an_instance(http: RawHttp) -> None:
    refused = http.ask("DELETE", "/v0/instances/batch")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")


def test_an_idle_watch_tells_the_past_first_however_long_reading_it_takes(
    server: RunningServer, http: RawHttp, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(http, name)
    create(http, name, name, initial_ctx={"amount": 1})
    apply(http, name, "PAY")

    def slowly(plan: CatchUpPlan) -> Operation[CaughtUp]:
        server.app.delivery.streams.heartbeat(server.app.clock.monotonic_us() + 3_600_000_000)
        return (yield from catch_up_operation(plan))

    monkeypatch.setattr(f"{catch_up_operation.__module__}.catch_up_operation", slowly)
    with following(server, f"instance_id={name}&from_offset=0&idle_ms=1") as watch:
        assert next_event(watch, "transition")[1]["event"] == "PAY"


def test_heartbeats_do_not_keep_an_idle_watch_open(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = server.app.delivery.streams

    def later(now_us: int) -> None:
        monkeypatch.setattr(streams, "now_us", lambda: now_us)
        streams.heartbeat(now_us)
        monkeypatch.undo()

    with following(server, "idle_ms=20000") as watch:
        next_event(watch, "begin")
        now_us = streams.now_us()
        server.inside(lambda: later(now_us + 16_000_000))
        server.inside(lambda: later(now_us + 21_000_000))
        next_event(watch, "idle")
        assert not watch.rest()


def test_a_drawing_is_safe_to_open_in_a_browser(http: RawHttp, name: str) -> None:
    put(http, name)
    create(http, name, name)
    path = f"/v0/machines/{name}/versions/latest/drawing"
    drawn = http.get(f"{path}?instance={name}")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert "default-src 'none'" in drawn.headers["content-security-policy"]
    assert b'class="state current"' in drawn.body
    text = http.get(f"{path}?format=mermaid")
    assert text.body.startswith(b"---\ntitle:")


def test_nobody_waits_while_a_large_machine_is_drawn(
    http: RawHttp, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: list[bool] = []

    def drawn(picture: Picture) -> str:
        loops.append(asyncio._get_running_loop() is not None)
        return svg(picture)

    monkeypatch.setattr(drawing_svg, "svg", drawn)
    put(http, name)
    assert http.get(f"/v0/machines/{name}/versions/1/drawing").status == 200
    assert loops == [False], "the loop that serves everybody does not draw"


def test_a_stream_begins_with_history_and_goes_on_behind_the_last_id(
    server: RunningServer, http: RawHttp, name: str
) -> None:
    put(http, name)
    made = create(http, name, name, initial_ctx={"amount": 1}).json
    apply(http, name, "PAY")
    with following(server, f"machines={name}&from_offset={made['wal_offset']}") as stream:
        seen, first = next_event(stream, "transition")
        assert (first["event"], seen) == ("PAY", first["wal_offset_text"])
        apply(http, name, "CANCEL")
        _, second = next_event(stream, "transition")
        assert (second["event"], second["ctx"]) == ("CANCEL", {"amount": 1})
    apply(http, name, "PAY")
    with following(server, f"machines={name}", **{"last-event-id": seen}) as stream:
        assert [next_event(stream, "transition")[1]["event"] for _ in range(2)] == ["CANCEL", "PAY"]


def test_a_stream_without_events_still_says_where_it_began(
    server: RunningServer, http: RawHttp, name: str
) -> None:
    put(http, name)
    create(http, name, name, initial_ctx={"amount": 1})
    with following(server, f"machines={name}") as stream:
        begin, _ = next_event(stream, "begin")
    apply(http, name, "PAY")
    with following(server, f"machines={name}", **{"last-event-id": begin}) as stream:
        assert next_event(stream, "transition")[1]["event"] == "PAY"


def test_an_instance_deletes_itself_when_its_time_is_up(http: RawHttp, name: str) -> None:
    put(http, name)
    create(http, name, name, ttl_ms=1)
    while http.get(f"/v0/instances/{name}").status == 200:
        pass
    assert http.get(f"/v0/instances/{name}").code == "INSTANCE_NOT_FOUND"


def test_keys_open_what_their_scopes_and_prefixes_say(tmp_path: Path) -> None:
    keys = (f"{READER}:read", f"{TENANT}:read+write+delete:mine", ADMIN)
    with running(tmp_path / "data", settings(api_keys=keys)) as server:
        with server.talk(key=ADMIN) as admin:
            put(admin, "theirs")
            create(admin, "theirs", "t-1", initial_ctx={"amount": 1})
        with server.talk(key=READER) as reader:
            assert reader.get("/v0/instances/t-1").status == 200
            assert put(reader, "mine").status == 403
            assert apply(reader, "t-1", "PAY").status == 403
            assert reader.ask("POST", "/v0/machines/compact", {}).status == 403
            assert reader.ask("POST", "/v0/machines/wal/read", {}).status == 403
        with server.talk(key=TENANT) as tenant:
            assert put(tenant, "mine").status == 201
            assert create(tenant, "mine", "m-1").status == 201
            assert [each["machine"] for each in tenant.get("/v0/machines").json["items"]] == [
                "mine"
            ]
            assert put(tenant, "theirs", 2).status == 403
            assert create(tenant, "theirs", "t-2").status == 403
            assert tenant.get("/v0/instances?machine=mine").json["total"] == 1
            assert tenant.get("/v0/instances").status == 403
            assert tenant.get("/v0/instances?machine=theirs").status == 403
            assert tenant.get("/v0/instances/watch").status == 403
            for path in ("", "/history"):
                assert tenant.get(f"/v0/instances/t-1{path}").code == "INSTANCE_NOT_FOUND"
            assert apply(tenant, "t-1", "PAY").code == "INSTANCE_NOT_FOUND"
            assert tenant.ask("DELETE", "/v0/instances/t-1").code == "INSTANCE_NOT_FOUND"
            operations = [{"op": "DELETE_INSTANCE", "params": {"instance_id": "t-1"}}]
            batch = tenant.ask("POST", "/v0/instances/batch", {"operations": operations})
            assert batch.code == "INSTANCE_NOT_FOUND"
        with server.talk() as nobody:
            assert nobody.get("/v0/instances/t-1").status == 401
