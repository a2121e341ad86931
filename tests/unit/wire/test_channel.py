"""Frames between gateway and sequencer: whole, in pieces, and damaged."""

from __future__ import annotations

import random

import pytest

from headwater.wire.channel import (
    CHANNEL_FRAME,
    CHANNEL_VERSION,
    HELLO,
    PAYLOAD_BYTES_MIN,
    BytePort,
    ChannelError,
    ChannelFrame,
    ChannelKind,
    ChannelReader,
    frame_header,
    head_payload,
    hello,
    open_payload,
    read_head,
    read_hello,
    read_open,
)

ROUNDS = 2_000


def framed(kind: int, stream: int, payload: bytes, flags: int = 0) -> bytes:
    return frame_header(kind, stream, len(payload), flags) + payload


SOME = [
    ChannelFrame(ChannelKind.HELLO, 0, 0, hello(3, 4_711)),
    ChannelFrame(ChannelKind.HEAD, 1, 0, head_payload(7, b"GET", b"/v0/topics", [(b"a", b"b")])),
    ChannelFrame(ChannelKind.REQUEST, 0, 9, bytes(20) + b"body"),
    ChannelFrame(ChannelKind.DATA, 0, 2**63, b"x" * 300),
    ChannelFrame(ChannelKind.GONE, 0, 9, b""),
]


def test_frames_come_out_as_they_went_in_whatever_the_pieces() -> None:
    data = b"".join(framed(f.kind, f.stream, f.payload, f.flags) for f in SOME)
    chance = random.Random(1)
    for _ in range(200):
        reader, seen, at = ChannelReader(), [], 0
        while at < len(data):
            step = chance.choice((1, 3, 16, 40, len(data)))
            seen += reader.feed(data[at : at + step])
            at += step
        assert seen == SOME


def test_a_large_frame_is_joined_once_it_is_whole() -> None:
    payload = random.Random(2).randbytes(1_000_000)
    data, reader = framed(ChannelKind.ANSWER, 1, payload), ChannelReader()
    seen = [
        frame for at in range(0, len(data), 65_536) for frame in reader.feed(data[at:][:65_536])
    ]
    assert [frame.payload for frame in seen] == [payload]


@pytest.mark.parametrize("kind", [0, len(ChannelKind) + 1, 65_535])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(ChannelError, match="no kind"):
        ChannelReader().feed(framed(kind, 1, b""))


@pytest.mark.parametrize("kind", PAYLOAD_BYTES_MIN)
def test_a_payload_shorter_than_its_table_is_refused(kind: ChannelKind) -> None:
    with pytest.raises(ChannelError, match="cannot have"):
        ChannelReader().feed(frame_header(kind, 1, PAYLOAD_BYTES_MIN[kind] - 1))


def test_a_length_beyond_the_limit_is_refused_before_anything_is_kept_for_it() -> None:
    with pytest.raises(ChannelError, match="cannot have"):
        ChannelReader().feed(frame_header(ChannelKind.DATA, 1, 2**32 - 1))


def test_every_kind_has_a_number_below_the_next() -> None:
    assert [int(kind) for kind in ChannelKind] == list(range(1, len(ChannelKind) + 1))
    assert CHANNEL_FRAME.size == 16


def test_the_hello_of_another_version_is_refused() -> None:
    assert read_hello(hello(2, 77)) == (2, 77)
    other = HELLO.packer.pack(int.from_bytes(b"HWCH", "big"), CHANNEL_VERSION + 1, 2, 77)
    with pytest.raises(ChannelError, match="version"):
        read_hello(other)


def test_heads_and_addresses_come_back_as_they_were() -> None:
    headers = {b"host": b"a:1", b"x-empty": b"", b"x-long": b"v" * 70_000}
    payload = head_payload(9, b"POST", b"/v0/topics/a?b=c", headers.items())
    assert read_head(payload) == (9, b"POST", b"/v0/topics/a?b=c", headers)
    own, peer = ("::1", 9092), ("10.0.0.7", 65_535)
    assert read_open(open_payload(BytePort.RCPX, own, peer)) == (BytePort.RCPX, own, peer)


def test_damaged_payloads_are_refused_or_read_and_never_anything_else() -> None:
    chance = random.Random(3)
    good = [
        (read_head, head_payload(1, b"GET", b"/a", [(b"name", b"value"), (b"b", b"c")])),
        (read_open, open_payload(BytePort.KAFKA, ("127.0.0.1", 1), ("127.0.0.1", 2))),
    ]
    refused = 0
    for _ in range(ROUNDS):
        read, payload = chance.choice(good)
        size_min = PAYLOAD_BYTES_MIN[ChannelKind.HEAD if read is read_head else ChannelKind.OPEN]
        damaged = bytearray(payload)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.3:
            del damaged[chance.randrange(size_min, len(damaged)) :]
        try:
            read(bytes(damaged))
        except ChannelError:
            refused += 1
    assert refused > ROUNDS // 4


def test_random_bytes_are_refused_or_wait_and_never_break_the_reader() -> None:
    chance = random.Random(4)
    refused = 0
    for _ in range(ROUNDS):
        data = bytearray(b"".join(framed(f.kind, f.stream, f.payload, f.flags) for f in SOME))
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            frames = ChannelReader().feed(bytes(data))
        except ChannelError:
            refused += 1
        else:
            assert sum(len(f.payload) + CHANNEL_FRAME.size for f in frames) <= len(data)
    assert refused > ROUNDS // 10
