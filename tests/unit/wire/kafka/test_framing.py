"""Requests cut out of a stream: whole, byte by byte, several at once; and sizes nobody sends."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from headwater.wire.kafka.apis import ApiKey, ProtocolError
from headwater.wire.kafka.codec import request_frame
from headwater.wire.kafka.framing import OTHER_REQUEST_BYTES_MAX, FrameReader

LIMIT = 100 * 1024 * 1024
FRAMES = [
    request_frame(ApiKey.METADATA, 9, 1, "me", {"topics": [{"name": "x" * size}]})
    for size in (0, 5, 300, 32_000)
]
BODIES = [frame[4:] for frame in FRAMES]


def feed_in_pieces(reader: FrameReader, stream: bytes, piece_bytes: int) -> list[memoryview]:
    found = []
    for at in range(0, len(stream), piece_bytes):
        found += reader.feed(stream[at : at + piece_bytes])
    return found


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 8, 9, 64, 1_000, 100_000])
def test_requests_come_out_whole_however_they_are_cut(piece_bytes: int) -> None:
    stream = b"".join(FRAMES)
    reader = FrameReader(LIMIT)
    found = feed_in_pieces(reader, stream, piece_bytes)
    assert [bytes(each) for each in found] == BODIES
    assert reader.pending_bytes == 0


def test_requests_come_out_whole_when_cut_by_chance() -> None:
    chance = random.Random(7)
    stream = b"".join(FRAMES * 3)
    for _ in range(200):
        reader, at, found = FrameReader(LIMIT), 0, []
        while at < len(stream):
            end = at + chance.choice((1, 3, 5, 11, 400, 20_000, 60_000))
            found += reader.feed(stream[at:end])
            at = end
        assert [bytes(each) for each in found] == BODIES * 3


def test_a_request_in_one_piece_is_not_copied() -> None:
    piece = FRAMES[3] + FRAMES[1]
    first, second = FrameReader(LIMIT).feed(piece)
    assert first.obj is piece
    assert second.obj is piece


def test_a_request_stays_what_it_was_when_more_bytes_come() -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(FRAMES[2][:50]) == []
    (first,) = reader.feed(FRAMES[2][50:] + FRAMES[3][:20])
    reader.feed(FRAMES[3][20:])
    assert bytes(first) == BODIES[2]
    with pytest.raises(TypeError):
        first[0] = 1


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, LIMIT + 1, 2**31 - 1])
@pytest.mark.parametrize("piece_bytes", [1, 3, 4])
def test_a_size_nobody_sends_is_refused_before_anything_is_kept(
    size: int, piece_bytes: int
) -> None:
    reader = FrameReader(LIMIT)
    stream = size.to_bytes(4, "big", signed=True)  # nothing else has come yet
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=str(size)):
            feed_in_pieces(reader, stream, piece_bytes)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_long_request_takes_memory_as_it_comes_and_not_as_it_says() -> None:
    reader = FrameReader(LIMIT)
    tracemalloc.start()
    try:
        reader.feed(LIMIT.to_bytes(4, "big") + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_only_produce_requests_may_be_long() -> None:
    start = (OTHER_REQUEST_BYTES_MAX + 1).to_bytes(4, "big")
    assert FrameReader(LIMIT).feed(start + int(ApiKey.PRODUCE).to_bytes(2, "big") + bytes(9)) == []
    with pytest.raises(ProtocolError, match="kind 3"):
        FrameReader(LIMIT).feed(start + int(ApiKey.METADATA).to_bytes(2, "big") + bytes(9))


@pytest.mark.parametrize(
    ("opening", "what"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /v0/topics HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ],
)
def test_other_protocols_are_called_by_their_names(opening: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        FrameReader(LIMIT).feed(opening)
