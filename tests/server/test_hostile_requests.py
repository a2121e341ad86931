"""Bytes that no honest client sends: refused with 4xx, the connection ended, the server unmoved."""

from __future__ import annotations

import gzip
import json
import socket
import struct

import pytest

from headwater.server.http.connection import HttpConnection
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, eventually

HELLO = b"GET /v0/health HTTP/1.1\r\nHost: x\r\n\r\n"
SMUGGLED = b"DELETE /v0/topics/victim HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v0/topics/victim/diff HTTP/1.1\r\nHost: x\r\n"

SMUGGLING = {
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
    "two equal lengths": POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": POST + b"Content-Length: 0, 0\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a signed length": POST + b"Content-Length: +0\r\n\r\n",
    "a length in hex": POST + b"Content-Length: 0x0\r\n\r\n",
    "a length with letters": POST + b"Content-Length: 0abc\r\n\r\n",
    "an empty length": POST + b"Content-Length: \r\n\r\n",
    "a length over 64 bits": POST + b"Content-Length: 18446744073709551616\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 44\r\n\r\n",
    "a tab before the colon": POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked and then more": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n",
    "chunked with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"POST /v0/topics/victim/diff HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
    "a bare carriage return": POST + b"X: a\rTransfer-Encoding: chunked\r\n\r\n",
    "a zero byte in a header": POST + b"X: a\x00b\r\n\r\n",
    "a zero byte in a name": POST + b"X\x00: a\r\n\r\n",
    "a header without a colon": POST + b"nonsense\r\n\r\n",
    "a header without a name": POST + b": x\r\n\r\n",
    "a chunk of negative size": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk of hex with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    "a chunk over 64 bits": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx",
    "a chunk with a wrong end": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n",
    "a chunk size without digits": POST + b"Transfer-Encoding: chunked\r\n\r\n;a=b\r\n\r\n",
    "a chunk with bare line feeds": POST + b"Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
    "no host": b"GET /v0/health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v0/health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a version nobody speaks": b"GET /v0/health HTTP/3.7\r\nHost: x\r\n\r\n",
    "an old version": b"GET /v0/health\r\n\r\n",
    "no version": b"GET /v0/health HTTP\r\nHost: x\r\n\r\n",
    "an unknown method": b"STEAL /v0/health HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method in small letters": b"get /v0/health HTTP/1.1\r\nHost: x\r\n\r\n",
    "a proxy's method": b"CONNECT victim:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a space in the path": b"GET /v0/ health HTTP/1.1\r\nHost: x\r\n\r\n",
    "a preface of HTTP/3": b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n",
    "a hello of TLS": bytes.fromhex("160301012a010001260303") + bytes(range(200)),
    "random bytes": bytes(range(255, 0, -1)),
    "zeros": bytes(1_000),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_ambiguous_or_broken_requests_are_refused_and_nothing_behind_them_is_run(
    server: RunningServer, http: RawHttp, name: str
) -> None:
    http.put("victim")
    with server.talk() as hostile:
        hostile.send(SMUGGLING[name] + SMUGGLED)
        try:
            answer = hostile.answer()
            assert 400 <= answer.status < 500, answer
            assert answer.headers["connection"] == "close"
            assert answer.code in ("invalid_request", "method_not_allowed", "payload_too_large")
            assert hostile.rest() == b"", "only one answer"
        except ConnectionError:
            pytest.fail("closed without a word")
    assert http.get("/v0/topics/victim").status == 200, "smuggled"


def test_what_is_merely_unusual_is_taken(http: RawHttp) -> None:
    http.put("usual")
    diff = b"POST /v0/topics/usual/diff HTTP/1.1\r\nHost: x\r\n"
    unusual = [
        diff + b"Transfer-Encoding: Chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
        diff + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
        diff + b"Content-Length: 02\r\nX-Empty:\r\n\r\n{}",
        b"\r\n\r\n" + HELLO,
        b"GET http://x/v0/health?a=b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v0/health HTTP/1.1\r\nhOsT:x\r\nX: \xff\xfe\r\n\r\n",
    ]
    for request in unusual:
        http.send(request)
        assert http.answer().status == 200, request
    http.send(b"GET /v0/health HTTP/1.0\r\n\r\n")
    assert http.answer().headers["connection"] == "close"
    assert http.is_closed()


def test_a_trailer_does_not_become_a_header(server: RunningServer, http: RawHttp) -> None:
    http.put("trailer")
    http.send(
        b"POST /v0/topics/trailer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'18\r\n{"records":[{"data":1}]}\r\n0\r\nIdempotency-Key: k\r\n\r\n'
    )
    assert http.answer().json["deduped"] is False
    headers = {"idempotency-key": "k"}
    again = http.ask("POST", "/v0/topics/trailer", {"records": [{"data": 1}]}, headers)
    assert again.json["deduped"] is False


def test_every_request_arrives_whole_however_its_bytes_are_cut(http: RawHttp) -> None:
    body = {"records": [{"data": "é" * 10}]}
    request = http.request("POST", "/v0/topics/cut", body)
    for size in (1, 2, 7, 50):
        for at in range(0, len(request), size):
            http.send(request[at : at + size])
        assert http.answer().json["count"] == 1


def test_a_thousand_requests_at_once_are_answered_in_order(http: RawHttp) -> None:
    http.put("pipeline", durability="disk")
    requests = []
    for number in range(1_000):
        if number % 10 == 7:
            requests.append(http.request("GET", f"/v0/nothing/{number}"))
        elif number % 10 == 9:
            requests.append(http.request("POST", "/v0/topics/pipeline/diff", {"limit": 1}))
        elif number % 100 == 5:
            requests.append(http.request("PUT", f"/v0/topics/pipeline.{number}", {}))
        else:
            requests.append(
                http.request("POST", "/v0/topics/pipeline", {"records": [{"data": number}]})
            )
    http.send(b"".join(requests))
    seqs = []
    for number in range(1_000):
        answer = http.answer()
        if number % 10 == 7:
            assert answer.code == "not_found", number
        elif number % 10 == 9:
            assert answer.json["records"][0]["data"] == 0
        elif number % 100 == 5:
            assert answer.json["topic"] == f"pipeline.{number}"
        else:
            seqs.append(answer.json["first_seq"])
    assert seqs == list(range(1, len(seqs) + 1))


def test_any_number_of_requests_can_stand_behind_a_slow_one(http: RawHttp) -> None:
    http.put("slow")
    wait = http.request("POST", "/v0/topics/slow/diff", {"wait_ms": 200})
    http.send(wait + http.request("GET", "/v0/health") * 3_000)
    assert http.answer().json["caught_up"] is True
    for _ in range(3_000):
        assert http.answer().status == 200


@pytest.mark.one_process
def test_answers_that_nobody_reads_hold_back_the_requests_behind_them(
    server: RunningServer, http: RawHttp
) -> None:
    for _ in range(8):
        http.write("large", "x" * 1_000_000)
    with server.talk() as lazy:
        request = lazy.request("POST", "/v0/topics/large/diff", {"max_batch_bytes": 8_000_000})
        before = server.app.backend.engine.core.counters.reads
        lazy.send(request * 500)
        with server.talk() as other:
            other.get("/v0/health")
        connections = server.app.http.connections
        (held,) = [c for c in connections if isinstance(c, HttpConnection) and c._held]
        assert held.transport.get_write_buffer_size() < 20_000_000
        assert server.app.backend.engine.core.counters.reads - before < 20
        for _ in range(20):
            assert len(lazy.answer().body) > 7_000_000


# -- sizes


def test_a_head_that_is_too_large_is_refused_before_it_ends(server: RunningServer) -> None:
    for head in (
        b"GET /" + b"a" * 600_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 600_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a" * 600_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 100_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: a\r\n" % n for n in range(101)),
    ):
        with server.talk() as hostile:
            hostile.send(head)
            answer = hostile.answer()
            assert (answer.status, answer.code) == (431, "headers_too_large")
            assert hostile.is_closed()


def test_an_endless_trailer_or_chunk_line_is_refused(server: RunningServer) -> None:
    start = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    for endless in (b"0\r\nX: " + b"a" * 300_000, b"2;" + b"a" * 300_000, b"0" * 300_000):
        with server.talk() as hostile:
            hostile.send(start)
            for at in range(0, len(endless), 50_000):
                hostile.send(endless[at : at + 50_000])
            assert 400 <= hostile.answer().status < 500


def test_a_body_over_the_limit_is_refused_before_it_is_sent(
    server: RunningServer, http: RawHttp
) -> None:
    with server.talk() as hostile:
        length = 64 * 1024 * 1024 + 1
        hostile.send(POST + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % length)
        answer = hostile.answer()
        assert (answer.status, answer.code) == (413, "payload_too_large")
        assert hostile.is_closed()


def test_the_refusal_can_be_read_by_a_client_that_goes_on_sending(server: RunningServer) -> None:
    with server.talk() as hostile:
        hostile.send(POST + b"Content-Length: 100000000\r\n\r\n" + b"x" * 3_000_000)
        assert hostile.answer().code == "payload_too_large"


def test_a_body_is_sent_after_the_word_to_go_on(http: RawHttp) -> None:
    body = b'{"records":[{"data":1}]}'
    head = http.request("POST", "/v0/topics/expect", body, {"expect": "100-continue"})
    http.send(head[: -len(body)])
    assert http.head() == (100, {})
    http.send(body)
    assert http.answer().status == 201


def test_chunks_over_the_limit_are_refused_while_they_come(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.talk() as hostile:
        hostile.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        try:
            for _ in range(70):
                hostile.send(chunk)
        except ConnectionError:
            pass
        assert hostile.answer().code == "payload_too_large"


def test_packed_bodies_are_taken_and_bombs_are_not(http: RawHttp) -> None:
    path = "/v0/topics/packed"
    headers = {"content-encoding": "gzip"}
    body = json.dumps({"records": [{"data": "x" * 900}] * 2_000}).encode()
    assert http.ask("POST", path, gzip.compress(body), headers).json["count"] == 2_000
    bomb = gzip.compress(b" " * 60_000_000)
    assert len(bomb) < 100_000
    refused = http.ask("POST", path, bomb, headers)
    assert (refused.status, refused.code) == (413, "payload_too_large")
    assert http.is_closed()


def test_packed_bodies_of_every_size_come_out_whole(http: RawHttp) -> None:
    for size in (0, 1, 1_000, 262_100, *range(262_118, 262_128), 524_288, 1_000_000):
        body = b'{"records":[{"data":"' + b"x" * size + b'"}]}'
        packed = gzip.compress(body)
        answer = http.ask("POST", "/v0/topics/sizes", packed, {"content-encoding": "gzip"})
        assert answer.status in (200, 201), (size, answer)


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", b"not gzip at all", 400),
        ("gzip", gzip.compress(b'{"records":[{"data":1}]}')[:-5], 400),
        ("gzip", gzip.compress(b'{"records":[{"data":1}]}') * 2, 400),
        ("gzip", gzip.compress(b"\xff"), 400),
        ("gzip", b"", 400),
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
        ("deflate", b"x", 415),
        ("identity", b'{"records":[{"data":1}]}', 201),
    ],
    ids=range(9),
)
def test_packing_that_cannot_be_undone_is_refused(
    http: RawHttp, topic: str, encoding: str, body: bytes, status: int
) -> None:
    answer = http.ask("POST", f"/v0/topics/{topic}", body, {"content-encoding": encoding})
    assert answer.status == status


def test_answers_are_packed_only_for_those_who_ask(http: RawHttp) -> None:
    http.write("unpacked", "x" * 5_000)
    path = "/v0/topics/unpacked/diff"
    for accept in ("gzip", "br, gzip;q=0.5", "*"):
        answer = http.ask("POST", path, {}, {"accept-encoding": accept})
        assert answer.headers["content-encoding"] == "gzip", accept
        assert json.loads(gzip.decompress(answer.body))["head_seq"] == 1
    for accept in ("", "br", "gzip;q=0", "gzip;q=0.0", "gzipped", "identity"):
        answer = http.ask("POST", path, {}, {"accept-encoding": accept})
        assert "content-encoding" not in answer.headers, accept
        assert answer.json["head_seq"] == 1


# -- peers that go away


def test_a_reset_in_the_middle_of_an_answer_hurts_nobody(
    server: RunningServer, http: RawHttp
) -> None:
    http.write("reset", *["x" * 100_000] * 50)
    for _ in range(20):
        hostile = server.talk()
        hostile.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hostile.send(hostile.request("POST", "/v0/topics/reset/diff", {}) * 3)
        hostile.socket.recv(10)
        hostile.close()
    eventually(lambda: server.connections_open == 1)
    assert http.get("/v0/health").status == 200


def test_a_client_that_stops_sending_still_gets_its_answers(server: RunningServer) -> None:
    with server.talk() as half:
        half.send(half.request("POST", "/v0/topics/half", {"records": [{"data": 1}]}) * 20)
        half.socket.shutdown(socket.SHUT_WR)
        for _ in range(20):
            assert half.answer().json["count"] == 1
        assert half.is_closed()


def test_a_connection_that_ends_in_the_middle_of_a_request_writes_nothing(
    server: RunningServer, http: RawHttp
) -> None:
    request = http.request("POST", "/v0/topics/cut.short", {"records": [{"data": 1}]})
    for size in (1, 30, len(request) - 1):
        with server.talk() as short:
            short.send(request[:size])
    eventually(lambda: server.connections_open == 1)
    assert http.get("/v0/topics/cut.short").status == 404
