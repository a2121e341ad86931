"""Clients that do not read, do not write, or come in crowds: they cost nobody but themselves."""

from __future__ import annotations

import json
import resource
import selectors
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import Events, RawHttp
from tests.server.running_server import RunningServer, eventually, running, settings
from tests.server.watches import open_watch, watching

PAYLOAD = "x" * 20_000
RECORDS = 200
READERS = 100


def slow_stream(server: RunningServer, wid: str) -> Events:
    """A stream whose client takes in little by itself."""
    connection = RawHttp.__new__(RawHttp)
    connection._key, connection._received = None, b""
    connection.socket = socket.socket()
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.socket.settimeout(20)
    connection.socket.connect(("127.0.0.1", server.port))
    return Events(connection, wid)


def waiting_bytes(server: RunningServer) -> int:
    """The most that is held for any client."""
    connections = list(server.app.http.connections)
    return max(each.transport.get_write_buffer_size() for each in connections)


@pytest.mark.one_process
@pytest.mark.claims(357, 366)
def test_one_client_that_stops_reading_delays_none_of_a_hundred_and_loses_nothing(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    slow = slow_stream(server, open_watch(http, {topic: {}}))
    slow.until("caught-up")
    with ExitStack() as stack:
        readers = [
            stack.enter_context(watching(server, {topic: {}}, include_data=number % 5 == 0))
            for number in range(READERS)
        ]
        for number in range(RECORDS):
            http.write(topic, [number, PAYLOAD])
        for reader in readers:
            assert [r["$seq"] for r in reader.records(RECORDS)] == list(range(1, RECORDS + 1))
        assert server.inside(lambda: waiting_bytes(server)) < 1024 * 1024
        assert http.write(topic, "last").json["performance"]["server_total_ms"] < 5_000
        for reader in readers:
            assert reader.records(1)[0]["$seq"] == RECORDS + 1
    found = slow.records(RECORDS + 1)
    assert [r["$seq"] for r in found] == list(range(1, RECORDS + 2))
    assert found[7]["data"] == [7, PAYLOAD]
    slow.connection.close()


@pytest.mark.claims(359)
def test_a_client_that_lags_behind_the_cap_is_told_what_it_missed(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, cap_records=10)
    slow = slow_stream(server, open_watch(http, {topic: {}}))
    slow.until("caught-up")
    for number in range(RECORDS * 2):
        http.write(topic, [number, PAYLOAD])
    seen = 0
    missed = 0
    while seen < RECORDS * 2:
        event = slow.next()
        if event.kind == "tombstone":
            assert event.data["gap_from"] == seen + 1
            missed += event.data["gap_to"] - seen
            seen = event.data["gap_to"]
        elif event.kind == "record":
            for record in event.data["records"]:
                assert record["$seq"] == seen + 1
                seen += 1
    assert missed > 0, "it did not lag; the test shows nothing"
    slow.connection.close()


def test_a_drop_is_told_to_a_client_that_was_not_reading(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    slow = slow_stream(server, open_watch(http, {topic: {}}))
    for number in range(RECORDS):
        http.write(topic, [number, PAYLOAD])
    http.ask("DELETE", f"/v0/topics/{topic}")
    http.write(topic, "another topic of this name")
    assert slow.until("topic-deleted")[-1].data == {"topic": topic}
    slow.connection.close()


# -- clients that do not write


def test_five_hundred_dribbling_clients_are_cut_off_and_nobody_else_notices(
    tmp_path: Path,
) -> None:
    quick = settings(deadlines={"headers_s": 1.0, "body_s": 1.0, "idle_s": 1.5})
    beginnings = [
        b"",
        b"G",
        b"GET /v0/health HTTP/1.1\r\nHost: x\r\nX: ",
        b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n",
        b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
    ]
    with running(tmp_path / "data", quick) as server, selectors.DefaultSelector() as selector:
        sockets = []
        for number in range(500):
            dribbler = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            sockets.append(dribbler)
            dribbler.sendall(beginnings[number % len(beginnings)])
            selector.register(dribbler, selectors.EVENT_READ)
        began = time.monotonic()
        worst_ms = 0.0
        answers = set()
        left = set(sockets)
        while left:
            assert time.monotonic() - began < 15, f"{len(left)} were not cut off"
            for key, _ in selector.select(timeout=0.05):
                assert isinstance(key.fileobj, socket.socket)
                answers.add(key.fileobj.recv(4096)[:12])
                selector.unregister(key.fileobj)
                left.discard(key.fileobj)
            with server.talk() as http:
                before = time.monotonic()
                assert http.write("t", 1).status < 300
                worst_ms = max(worst_ms, (time.monotonic() - before) * 1_000)
            for dribbler in left:
                try:
                    dribbler.send(b"a")
                except OSError:
                    continue  # cut off this moment; the selector sees it next
        for dribbler in sockets:
            dribbler.close()
        assert answers <= {b"HTTP/1.1 408", b"HTTP/1.1 400", b""}, answers
        assert b"HTTP/1.1 408" in answers
        assert worst_ms < 3_000


def test_an_idle_connection_is_closed_and_one_that_is_waited_for_is_not(tmp_path: Path) -> None:
    quick = settings(deadlines={"headers_s": 0.5, "idle_s": 0.5})
    with running(tmp_path / "data", quick) as server, server.talk() as waiting:
        with server.talk() as idle:
            idle.put("t")
            waiting.send(waiting.request("POST", "/v0/topics/t/diff", {"wait_ms": 2_500}))
            assert idle.is_closed()
        assert waiting.answer().json["caught_up"] is True


def test_a_client_that_never_takes_its_answer_is_cut_off(tmp_path: Path) -> None:
    quick = settings(deadlines={"idle_s": 1.0})
    with running(tmp_path / "data", quick) as server, server.talk() as http:
        http.write("t", *[PAYLOAD] * 400)
        with server.talk() as lazy:
            lazy.send(lazy.request("POST", "/v0/topics/t/diff", {"max_batch_bytes": 2**23}) * 8)
            http.close()
            eventually(lambda: server.connections_open)
            eventually(lambda: not server.connections_open)


# -- crowds


def test_connections_over_the_limit_are_turned_away_and_the_others_served(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings(limits={"connections": 20})) as server:
        with ExitStack() as stack:
            inside = [stack.enter_context(server.talk()) for _ in range(20)]
            for connection in inside:
                assert connection.get("/v0/health").status == 200
            for _ in range(50):
                with server.talk() as outside:
                    assert outside.is_closed()
            for connection in inside:
                assert connection.write("t", 1).status < 300
        eventually(lambda: not server.connections_open)
        with server.talk() as later:
            assert later.get("/v0/health").status == 200


def test_descriptors_are_left_for_the_log_whoever_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (100, 1_000))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))
    with running(tmp_path / "data") as server:
        assert asked == [(1_000, 1_000)]
        assert server.app.ports.room.connections_max == 500


def test_writes_under_way_have_a_limit_for_each_key(tmp_path: Path) -> None:
    limited = settings(limits={"in_flight_per_key": 5})
    with running(tmp_path / "data", limited) as server, server.talk() as http:
        http.put("t")
        request = http.request("POST", "/v0/topics/t", {"records": [{"data": 1}]})
        http.send(request * 200)
        answers = [http.answer() for _ in range(200)]
        refused = [answer for answer in answers if answer.status == 429]
        assert refused
        assert refused[0].json["error"]["detail"]["limit"] == "in_flight_per_key"
        written = sum(answer.status == 200 for answer in answers)
        assert http.diff("t", limit=1_000).json["head_seq"] == written


def test_publications_under_way_count_for_the_limit_of_their_key(tmp_path: Path) -> None:
    limited = settings(limits={"in_flight_per_key": 2})
    disk = GatedDisk()
    with running(tmp_path / "data", limited, disk=disk) as server, server.talk() as http:
        http.put("t")
        disk.syncs.close()
        try:
            with connect(f"ws://127.0.0.1:{server.port}/v0/ws") as ws:
                publish = {"op": "publish", "topic": "t", "records": [{"data": 1}]}
                for number in range(3):
                    ws.send(json.dumps({**publish, "request_id": number}))
                refused = json.loads(ws.recv(20))
                assert (refused["op"], refused["code"]) == ("error", "throttled")
                assert refused["request_id"] == 2
                assert refused["detail"]["limit"] == "in_flight_per_key"
                disk.syncs.open()
                assert [json.loads(ws.recv(20))["op"] for _ in range(2)] == ["ack", "ack"]
                ws.send(json.dumps(publish))
                assert json.loads(ws.recv(20))["op"] == "ack", "there is room again"
        finally:
            disk.syncs.open()
