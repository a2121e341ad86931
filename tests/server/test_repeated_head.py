"""The same head is read once; whatever differs is read anew."""

from __future__ import annotations

import httptools
import pytest

from headwater.server.head import KnownHeads, RepeatedHead, parsed_head


def remembered(data: bytes, known: KnownHeads | None = None) -> RepeatedHead | None:
    """What a connection would remember of these bytes, read by the real parser."""

    class Reader:
        def __init__(self) -> None:
            self.headers: dict[bytes, bytes] = {}
            self.target = b""
            self.body = b""

        def on_url(self, url: bytes) -> None:
            self.target += url

        def on_header(self, name: bytes, value: bytes) -> None:
            self.headers[name.lower()] = value

        def on_body(self, body: bytes) -> None:
            self.body += body

    reader = Reader()
    parser = httptools.HttpRequestParser(reader)
    parser.feed_data(data)
    head = parsed_head(parser, reader.target, reader.headers)
    known = known or KnownHeads()
    known.remember(data, len(reader.body), head)
    return known.find(data)


def begins(known: RepeatedHead, data: bytes) -> bool:
    """True when a connection that knows this head takes these bytes for one request with it."""
    heads = KnownHeads()
    heads._known.append(known)
    return heads.find(data) is known


def request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /v0/topics/a HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_a_request_with_the_same_head_and_another_body_is_the_same_head() -> None:
    known = remembered(request(b"12345"))
    assert known is not None
    assert begins(known, request(b"abcde"))
    head = known.head
    assert (head.method, head.path, head.keep_alive) == (b"POST", b"/v0/topics/a", True)


def test_a_body_that_looks_like_another_request_is_still_only_a_body() -> None:
    inner = b"GET / HTTP/1.1\r\nhost: y\r\n\r\n"
    known = remembered(request(b"x" * len(inner)))
    assert known is not None
    assert begins(known, request(inner))
    assert request(inner)[len(known.data) :] == inner


@pytest.mark.parametrize(
    "other",
    [
        request(b"123456"),
        request(b"1234"),
        request(b"12345") + b"G",
        request(b"12345")[:-1],
        request(b"12345", b"x: y"),
        request(b"12345").replace(b"/a ", b"/b "),
        request(b"12345").replace(b"host: x", b"host: z"),
        b"",
    ],
)
def test_anything_that_is_not_wholly_the_same_goes_through_the_parser(other: bytes) -> None:
    known = remembered(request(b"12345"))
    assert known is not None
    assert not begins(known, other)


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        request(b"12345", b"expect: 100-continue"),
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        request(b"12345", b"x-long: " + b"x" * 4_096),
    ],
    ids=["chunked", "expect", "no length", "long"],
)
def test_heads_that_mean_more_than_a_length_or_are_long_are_never_remembered(data: bytes) -> None:
    assert remembered(data) is None


def test_a_client_that_takes_turns_between_four_requests_is_known_in_each() -> None:
    known = KnownHeads()
    turns = [request(b"12345", b"turn: %d" % turn) for turn in range(5)]
    for data in turns:
        remembered(data, known)
    assert [known.find(data) is not None for data in turns] == [False, True, True, True, True]
    for data in turns[1:]:
        found = known.find(data)
        assert found is not None
        assert found.head.headers[b"turn"] == data.partition(b"turn: ")[2][:1]
