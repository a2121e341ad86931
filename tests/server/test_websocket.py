"""GET /v0/ws, spoken to with the client of the `websockets` library."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import RawHttp
from tests.server.running_server import (
    RunningServer,
    eventually,
    loop_held,
    running,
    settings,
    submissions,
)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.raw = connection

    def say(self, op: str, **fields: Any) -> None:
        self.raw.send(json.dumps({"op": op, **fields}))

    def hear(self) -> Any:
        return json.loads(self.raw.recv(timeout=20))

    def until(self, op: str) -> Any:
        while True:
            message = self.hear()
            if message["op"] == op:
                return message

    def records(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += self.until("record")["records"]
        return found

    def closed(self) -> int:
        """The code the server closes with."""
        with suppress(ConnectionClosed):
            while True:
                self.raw.recv(timeout=20)
        code = self.raw.close_code
        assert code is not None
        return code


@contextmanager
def open_socket(server: RunningServer, **options: Any) -> Iterator[Socket]:
    with connect(f"ws://127.0.0.1:{server.port}/v0/ws", max_size=2**24, **options) as raw:
        yield Socket(raw)


@pytest.fixture
def ws(server: RunningServer) -> Iterator[Socket]:
    with open_socket(server) as found:
        yield found


def test_publications_of_one_turn_are_one_submission_with_the_writes_over_http(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    """Each is answered for itself: new topics, keys, and what is refused among them."""
    names = [f"{topic}-{n}" for n in range(4)]
    assert http.put(names[0]).status == 201
    with ExitStack() as ends:
        sockets = [ends.enter_context(open_socket(server)) for _ in range(12)]
        for ws in sockets:
            ws.say("ping")
            assert ws.until("pong")
        before = submissions(server)
        with loop_held(server):
            for n, ws in enumerate(sockets):
                for at in range(3):
                    ws.say("publish", topic=names[n % 4], records=[{"data": [n, at]}] * 2,
                           request_id=at)  # fmt: skip
            sockets[0].say("publish", topic=names[0], records=[], request_id="bad")
            sockets[0].say("publish", topic=names[0], records=[{"data": 0}], expect_head_seq=0,
                           request_id="late")  # fmt: skip
            http.send(http.request("POST", f"/v0/topics/{names[0]}", {"records": [{"data": "h"}]}))
        refused = {sockets[0].hear()["request_id"] for _ in range(2)}
        acks = [[ws.until("ack") for _ in range(3)] for ws in sockets]
        assert submissions(server) - before <= 6, "of more than thirty writes"
        assert refused == {"bad", "late"}
        assert http.answer().status == 200
    for n, of_one in enumerate(acks):
        assert [ack["request_id"] for ack in of_one] == [0, 1, 2]
        seqs = [seq for ack in of_one for seq in ack["seqs"]]
        assert seqs == sorted(seqs)
        found = {r["$seq"]: r["data"] for r in http.diff(names[n % 4]).json["records"]}
        assert [found[seq] for seq in seqs] == [[n, at] for at in range(3) for _ in range(2)]


def test_a_failed_sync_is_told_to_every_publication_of_its_turn(tmp_path: Path) -> None:
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, ExitStack() as ends:
        sockets = [ends.enter_context(open_socket(server)) for _ in range(8)]
        for ws in sockets:
            ws.say("publish", topic="t", records=[{"data": "before"}])
            assert ws.until("ack")
        disk.is_broken = True
        with loop_held(server):
            for ws in sockets:
                ws.say("publish", topic="t", records=[{"data": 1}], request_id="r")
        told = [ws.until("error") for ws in sockets]
        assert {(each["code"], each["request_id"]) for each in told} == {("storage_failed", "r")}


def test_a_subscription_gives_what_is_there_and_then_what_comes(
    http: RawHttp, ws: Socket, topic: str
) -> None:
    http.write(topic, "a", "b")
    ws.say("subscribe", topic=topic, request_id="s1")
    assert ws.hear() == {
        "op": "subscribed", "topic": topic, "from_seq": 0, "head_seq": 2,
        "earliest_seq": 1, "request_id": "s1",
    }  # fmt: skip
    batch = ws.hear()
    assert [r["data"] for r in batch.pop("records")] == ["a", "b"]
    assert batch == {"op": "record", "topic": topic, "from_seq": 0, "to_seq": 2, "head_seq": 2}
    assert ws.hear() == {"op": "caught_up", "topic": topic, "seq": 2}
    http.write(topic, "c")
    assert ws.hear()["records"][0]["data"] == "c"


def test_several_topics_are_subscribed_at_once_or_none(
    http: RawHttp, ws: Socket, topic: str
) -> None:
    one, two = f"{topic}.1", f"{topic}.2"
    http.write(one, "a", "b")
    http.write(two, "c", "d")
    wrongs: list[dict[str, Any]] = [
        {"topics": {one: {}, f"{topic}.none": {}}},
        {"topics": {}},
        {},
        {"topic": one, "topics": {two: {}}},
        {"topics": {one: {}}, "from_seq": 1},
    ]
    for wrong in wrongs:
        ws.say("subscribe", request_id=1, **wrong)
        assert ws.hear()["op"] == "error", wrong
    ws.say("subscribe", topics={one: {"from_seq": 1}, two: {"tail": True}}, request_id=2)
    first, second = ws.hear(), ws.hear()
    assert (first["op"], first["topic"], first["from_seq"]) == ("subscribed", one, 1)
    assert (second["op"], second["topic"], second["from_seq"]) == ("subscribed", two, 2)
    assert ws.until("record")["records"][0]["data"] == "b"
    http.write(two, "e")
    assert ws.until("record")["records"][0]["data"] == "e"


def test_fields_of_others_are_ignored_in_messages(ws: Socket, topic: str) -> None:
    ws.say("publish", topic=topic, records=[{"data": {"x_in": 1}, "x_mine": 2}], x_trace="t")
    acked = ws.hear()
    assert (acked["op"], acked["request_id"]) == ("ack", None), "always there"
    ws.say("subscribe", topic=topic, x_trace="t")
    assert ws.until("record")["records"][0]["data"] == {"x_in": 1}


def test_a_publication_is_acked_when_it_is_safe(http: RawHttp, ws: Socket, topic: str) -> None:
    ws.say("publish", topic=topic, records=[{"data": 1}, {"data": 2}], request_id=7)
    acked = ws.hear()
    assert acked.pop("performance")["server_total_ms"] >= 0
    assert acked == {
        "op": "ack", "topic": topic, "seqs": [1, 2], "first_seq": 1, "last_seq": 2,
        "head_seq": 2, "count": 2,
        "created": True, "deduped": False, "request_id": 7,
    }  # fmt: skip
    ws.say("publish", topic=topic, records=[{"data": 3}], idempotency_key="k")
    assert ws.hear()["deduped"] is False
    ws.say("publish", topic=topic, records=[{"data": 3}], idempotency_key="k")
    assert ws.hear()["deduped"] is True
    ws.say("publish", topic=topic, records=[{"data": 4}], expect_head_seq=1, request_id="x")
    error = ws.hear()
    assert (error["op"], error["code"], error["request_id"]) == ("error", "head_conflict", "x")
    assert [r["data"] for r in http.diff(topic).json["records"]] == [1, 2, 3]


def test_payloads_published_here_are_kept_byte_for_byte(
    http: RawHttp, ws: Socket, topic: str
) -> None:
    payload = '{ "ü" :[1.0,  1e400],"a":1,"a":2 }'
    ws.raw.send(f'{{"op":"publish","topic":"{topic}","records":[{{"data":{payload}}}]}}')
    assert ws.hear()["op"] == "ack"
    assert f'"data":{payload}}}'.encode() in http.diff(topic).body
    ws.say("subscribe", topic=topic)
    ws.hear()
    assert f'"data":{payload}}}' in ws.raw.recv(timeout=20, decode=True)


def test_a_ping_is_answered_with_its_id(ws: Socket) -> None:
    ws.say("ping", request_id=1)
    answer = ws.hear()
    assert (answer["op"], answer["request_id"]) == ("pong", 1)


def test_unsubscribing_ends_the_records_and_only_once(
    http: RawHttp, ws: Socket, topic: str
) -> None:
    http.put(topic)
    ws.say("subscribe", topic=topic)
    ws.until("caught_up")
    ws.say("unsubscribe", topic=topic, request_id="u")
    assert ws.hear() == {"op": "unsubscribed", "topic": topic, "request_id": "u"}
    http.write(topic, 1)
    ws.say("unsubscribe", topic=topic)
    assert ws.hear()["code"] == "invalid_request"
    ws.say("ping")
    assert ws.hear()["op"] == "pong"


def test_subscribing_again_moves_the_cursor(http: RawHttp, ws: Socket, topic: str) -> None:
    http.write(topic, *range(5))
    ws.say("subscribe", topic=topic, from_seq=3)
    assert [r["$seq"] for r in ws.records(2)] == [4, 5]
    ws.say("subscribe", topic=topic, from_seq=1, limit=2)
    assert [r["$seq"] for r in ws.records(4)] == [2, 3, 4, 5]
    ws.say("subscribe", topic=topic, tail=True)
    ws.until("caught_up")
    http.write(topic, "new")
    assert [r["$seq"] for r in ws.records(1)] == [6]


def test_fields_and_filters_work_as_in_a_read(http: RawHttp, ws: Socket, topic: str) -> None:
    http.write_records(
        topic, {"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}, {"data": 3, "node": "me"}
    )
    ws.say("subscribe", topic=topic, match="a*", include_tags=True, include_data=False)
    (only,) = ws.records(1)
    assert (only["$tag"], "data" in only) == ("a", False)
    ws.say("subscribe", topic=topic, node=["me"])
    assert [r["data"] for r in ws.records(2)] == [1, 2]


def test_losses_and_drops_are_told(http: RawHttp, ws: Socket, topic: str) -> None:
    http.put(topic, cap_records=1)
    http.write(topic, 1, 2, 3)
    ws.say("subscribe", topic=topic)
    lost = ws.until("tombstone")
    assert (lost["topic"], lost["gap_from"], lost["gap_to"]) == (topic, 1, 2)
    http.ask("DELETE", f"/v0/topics/{topic}")
    assert ws.until("topic_deleted") == {"op": "topic_deleted", "topic": topic}
    ws.say("unsubscribe", topic=topic)
    assert ws.hear()["op"] == "error"


@pytest.mark.parametrize(
    "message",
    [
        "", "{", "[]", "1", '{"op":"dance"}', '{"op":"subscribe"}', '{"topic":"a"}',
        '{"op":"subscribe","topic":"a","extra":1}', '{"op":"subscribe","topic":1}',
        '{"op":"publish","topic":"a"}', '{"op":"publish","topic":"a","records":[]}',
        '{"op":"publish","topic":"../x","records":[{"data":1}]}',
        '{"op":"publish","topic":"a","records":[{"data":1,"tag":"' + "t" * 300 + '"}]}',
        '{"op":"subscribe","topic":"a","match":"*x*"}', '{"op":"ping","request_id":{}}',
        '{"op":"publish","topic":"a","records":[{"data":' + "[" * 100_000,
    ],
)  # fmt: skip
def test_a_message_that_is_not_clear_gets_an_error_and_nothing_ends(
    http: RawHttp, ws: Socket, message: str
) -> None:
    http.put("a")
    ws.raw.send(message)
    answer = ws.hear()
    assert (answer["op"], answer["code"]) == ("error", "invalid_request")
    ws.say("ping")
    assert ws.hear()["op"] == "pong"


def test_a_topic_that_is_not_there_cannot_be_subscribed_to(ws: Socket) -> None:
    ws.say("subscribe", topic="nothing.here", request_id=1)
    answer = ws.hear()
    assert (answer["op"], answer["code"], answer["request_id"]) == ("error", "topic_not_found", 1)


# -- the protocol itself


def test_text_that_is_not_utf_8_ends_the_connection_and_writes_nothing(
    http: RawHttp, ws: Socket, topic: str
) -> None:
    body = b'{"op":"publish","topic":"%b","records":[{"data":"\xff"}]}' % topic.encode()
    ws.raw.send(body, text=True)
    assert ws.closed() == 1007
    assert http.get(f"/v0/topics/{topic}").status == 404


def test_binary_messages_are_read_as_json_too(ws: Socket) -> None:
    ws.raw.send(b'{"op":"ping"}')
    assert ws.hear()["op"] == "pong"
    ws.raw.send(['{"op":', '"pi', 'ng"}'])
    assert ws.hear()["op"] == "pong"


def test_a_message_over_the_limit_is_refused(server: RunningServer) -> None:
    with open_socket(server) as ws:
        ws.raw.send("x" * (16 * 1024 * 1024 + 1))
        assert ws.closed() == 1009
    with open_socket(server) as ws:
        ws.raw.send("x" * 1024 * 1024 for _ in range(17))
        assert ws.closed() == 1009


def test_many_tiny_fragments_cost_as_much_as_they_hold(server: RunningServer) -> None:
    with raw_socket(server) as plain:
        plain.sendall(b"\x01\x81abcd\x00" + b"\x00\x81abcd\x00" * 300_000)
        assert b"\x03\xf1" in ending(plain), "closed with 1009"


@contextmanager
def raw_socket(server: RunningServer, extra: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
        plain.sendall(
            b"GET /v0/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n%b\r\n" % (KEY.encode(), extra)
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += plain.recv(1)
        assert b" 101 " in answer
        assert b"permessage-deflate" not in answer.lower(), "nothing can be a bomb"
        yield plain


def ending(plain: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    try:
        while data := plain.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_compression_is_not_offered_so_nothing_can_expand(server: RunningServer) -> None:
    with raw_socket(server, b"Sec-WebSocket-Extensions: permessage-deflate\r\n") as plain:
        plain.sendall(b"\xc1\x81abcd\x00")  # a compressed frame all the same
        assert b"\x03\xea" in ending(plain), "closed with 1002"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x01x", b"\x03\xea"),  # not masked
        (b"\x83\x80abcd", b"\x03\xea"),  # an opcode nobody knows
        (b"\x80\x80abcd", b"\x03\xea"),  # a continuation of nothing
        (b"\x89\xfe\x01\x00abcd" + b"x" * 256, b"\x03\xea"),  # a ping of 256 bytes
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xffabcd", b"\x03\xf1"),  # 2^63 bytes
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffabcd", b"\x03"),
        (b"\x88\x82abcd\x62\x8b", b"\x03\xe9"),  # goodbye with 1001
    ],
    ids=range(7),
)
def test_frames_that_break_the_rules_close_the_connection(
    server: RunningServer, frame: bytes, code: bytes
) -> None:
    with raw_socket(server) as plain:
        plain.sendall(frame)
        assert code in ending(plain)


def test_data_behind_the_handshake_is_not_lost(server: RunningServer, http: RawHttp) -> None:
    with server.talk() as plain:
        head = plain.request(
            "GET",
            "/v0/ws",
            headers={
                "upgrade": "websocket", "connection": "Upgrade",
                "sec-websocket-version": "13", "sec-websocket-key": KEY,
            },
        )  # fmt: skip
        message = b'{"op":"ping"}'
        plain.send(head + bytes([0x81, 0x80 | len(message), 0, 0, 0, 0]) + message)
        assert plain.head()[0] == 101
        assert b'"pong"' in plain.take(20)


def test_a_plain_get_is_told_to_upgrade(http: RawHttp) -> None:
    answer = http.get("/v0/ws")
    assert (answer.status, answer.headers["upgrade"]) == (426, "websocket")
    assert answer.code == "upgrade_required"
    assert http.get("/v0/health").status == 200


def test_only_one_path_speaks_websocket(server: RunningServer) -> None:
    for path in ("/v0/health", "/v0/topics/a", "/nothing"):
        with server.talk() as plain:
            headers = {"upgrade": "websocket", "connection": "Upgrade"}
            assert plain.ask("GET", path, headers=headers).status == 404


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "7"},
        {"sec-websocket-key": "short", "sec-websocket-version": "13"},
        {"sec-websocket-version": "13", "x-long": "x" * 20_000},
    ],
    ids=["no key", "an old version", "a bad key", "a long line"],
)
def test_a_bad_handshake_is_refused_as_any_other_request(
    server: RunningServer, more: dict[str, str]
) -> None:
    with server.talk() as plain:
        headers = {"upgrade": "websocket", "connection": "Upgrade", **more}
        answer = plain.ask("GET", "/v0/ws", headers=headers)
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert answer.headers["sec-websocket-version"] == "13"
        assert plain.is_closed()
    eventually(lambda: server.app.access.quotas.streams == len(server.app.delivery.streams._open))


def test_an_offer_of_another_protocol_is_answered_as_a_request(http: RawHttp) -> None:
    headers = {"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings", "http2-settings": "AAM"}
    two = http.request("GET", "/v0/health", headers=headers) * 2
    body = http.request("POST", "/v0/topics/h2c", {"records": [{"data": 1}]}, headers)
    http.send(two + body + http.request("GET", "/v0/health"))
    assert [http.answer().status for _ in range(4)] == [200, 200, 201, 200]


# -- slow and leaving clients


@pytest.mark.claims(360, 361)
def test_a_client_that_does_not_read_holds_only_a_bounded_queue(tmp_path: Path) -> None:
    small = settings(websocket_queue_messages=1)
    with running(tmp_path / "data", small) as server, server.talk() as http:
        for _ in range(40):
            http.write("t", *["x" * 10_000] * 30)
        with raw_socket(server) as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            message = b'{"op":"subscribe","topic":"t"}'
            plain.sendall(bytes([0x81, 0x80 | len(message), 0, 0, 0, 0]) + message)
            found = plain.recv(100)
            (stream,) = server.app.delivery.streams._open
            transport = stream._connection.transport  # type: ignore[attr-defined]
            assert transport.get_write_buffer_size() < 1024 * 1024
            size = len(found)
            while size < 12_000_000:
                size += len(plain.recv(1024 * 1024))


def test_a_client_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.talk() as http:
        http.write("t", 1)
        for _ in range(10):
            with open_socket(server) as ws:
                ws.say("subscribe", topic="t")
                ws.records(1)
        eventually(lambda: not server.app.access.quotas.streams)
        assert not server.app.delivery._followers
        assert not server.app.delivery.streams._open


def test_a_server_that_stops_says_goodbye(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, open_socket(server) as ws:
        ws.say("ping")
        ws.hear()
        server.stop()
        assert ws.closed() == 1001


def test_pages_of_other_sites_are_refused_without_keys(server: RunningServer) -> None:
    here = f"http://127.0.0.1:{server.port}"
    with open_socket(server, origin=here) as ws:
        ws.say("ping")
        assert ws.hear()["op"] == "pong"
    for origin in ("http://evil.example", "null"):
        with server.talk() as plain:
            headers = {"origin": origin, "upgrade": "websocket", "connection": "Upgrade"}
            assert plain.ask("GET", "/v0/ws", headers=headers).code == "forbidden"
            assert plain.is_closed()
        with server.talk() as plain:
            answer = plain.ask("PUT", "/v0/topics/evil", {}, {"origin": origin})
            assert answer.code == "forbidden"
