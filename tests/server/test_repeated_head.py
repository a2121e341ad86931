"""The same head is read once; whatever differs is read anew."""

from __future__ import annotations

import httptools
import pytest

from headwater.server.http.request_head import Head, KnownHeads, parsed_head


def remembered(data: bytes, known: KnownHeads | None = None) -> KnownHeads:
    """What is known after a connection was sent these bytes, read by the real parser."""

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
    known = KnownHeads() if known is None else known
    known.remember(data, len(reader.body), head)
    return known


def begins(known: KnownHeads, data: bytes) -> Head | None:
    """The head, when these bytes are taken for one request with a head that is known."""
    return known.find(data)


def request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /v0/topics/a HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_a_request_with_the_same_head_and_another_body_is_the_same_head() -> None:
    known = remembered(request(b"12345"))
    head = begins(known, request(b"abcde"))
    assert head is not None
    assert (head.method, head.path, head.keep_alive) == (b"POST", b"/v0/topics/a", True)


def test_a_body_that_looks_like_another_request_is_still_only_a_body() -> None:
    inner = b"GET / HTTP/1.1\r\nhost: y\r\n\r\n"
    known = remembered(request(b"x" * len(inner)))
    found = known.find(request(inner))
    assert found is not None
    assert request(inner)[-found.body_bytes :] == inner


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
    assert len(known) == 1
    assert begins(known, other) is None


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
    assert len(remembered(data)) == 0


def test_heads_of_many_lengths_are_known_at_once() -> None:
    known = KnownHeads()
    for length in range(100):
        remembered(request(b"x" * length), known)
    for length in range(100):
        head = begins(known, request(b"y" * length))
        assert head is not None
        assert head.headers[b"content-length"] == b"%d" % length


def test_no_more_heads_are_kept_than_are_worth_it() -> None:
    known = KnownHeads(known_max=100)
    for turn in range(1_000):
        data = request(b"12345", b"turn: %d" % turn)
        remembered(data, known)
        assert begins(known, data) is not None
        assert len(known) <= 2 * 100


def test_a_head_that_comes_again_stays_known_among_many_that_do_not() -> None:
    known = KnownHeads(known_max=100)
    again = request(b"12345", b"often: yes")
    head = begins(remembered(again, known), again)
    assert head is not None
    for turn in range(1_000):
        remembered(request(b"12345", b"turn: %d" % turn), known)
        if not turn % 50:
            assert begins(known, again) is head
    once = request(b"12345", b"turn: 0")
    assert begins(known, once) is None
