"""RCPX bytes: frames and lines in any pieces, refused when they cannot be, never more than asked
for kept."""

from __future__ import annotations

import contextlib
import itertools
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rstmdb import Frame
from rstmdb.errors import ProtocolError

from headwater.wire import rcpx
from headwater.wire.rcpx import (
    HEADER,
    PAYLOAD_BYTES_MAX,
    MessageReader,
    RcpxFlag,
    RcpxProtocolError,
    WireMode,
    frame,
    message,
)

PATIENT = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
CODES = ("BAD_REQUEST", "UNSUPPORTED_PROTOCOL")
OBJECTS = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20), max_size=4)


def read_all(reader: MessageReader, pieces: list[bytes]) -> list[bytes]:
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (one := reader.next_message()) is not None:
            found.append(one)
    return found


def code_or_messages(reader: MessageReader, pieces: list[bytes]) -> str | list[bytes]:
    try:
        return read_all(reader, pieces)
    except RcpxProtocolError as error:
        return error.code


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(at)]


@PATIENT
@given(
    st.lists(OBJECTS, min_size=1, max_size=5),
    st.sampled_from(list(WireMode)),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_messages_come_whole_from_any_pieces(
    objects: list[dict[str, object]], mode: WireMode, places: list[int]
) -> None:
    payloads = [b'{"x":' + json.dumps(each).encode() + b"}" for each in objects]
    stream = b"".join(message(payload, mode) for payload in payloads)
    assert read_all(MessageReader(), cut(stream, places)) == payloads


def read_as_connections_do(reader: MessageReader, pieces: list[bytes]) -> str | list[bytes]:
    """What is a whole frame by itself is not fed."""
    found: list[bytes] = []
    try:
        for piece in pieces:
            only = reader.only_message(piece)
            found += read_all(reader, [piece]) if only is None else [only]
    except RcpxProtocolError as error:
        return error.code
    return found


@PATIENT
@given(
    st.lists(OBJECTS, min_size=1, max_size=5),
    st.sampled_from(list(WireMode)),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_a_frame_that_comes_alone_is_read_without_a_buffer_and_in_its_turn(
    objects: list[dict[str, object]], mode: WireMode, places: list[int]
) -> None:
    messages = [message(b'{"x":' + json.dumps(each).encode() + b"}", mode) for each in objects]
    stream = cut(b"".join(messages), places)
    for pieces in (messages, stream, [*stream[:1], *stream[1:], *messages]):
        wanted = read_all(MessageReader(), pieces)
        assert read_as_connections_do(MessageReader(), pieces) == wanted


@pytest.mark.parametrize("at", range(24))
def test_a_frame_with_a_changed_byte_is_the_same_alone_as_it_is_fed(at: int) -> None:
    good, bad = frame(b'{"op":1}'), bytearray(frame(b'{"op":2}'))
    bad[at] ^= 0x15
    pieces = [good, bytes(bad), good]
    for limit in (PAYLOAD_BYTES_MAX, 7, 8):
        wanted = code_or_messages(MessageReader(limit), pieces)
        assert read_as_connections_do(MessageReader(limit), pieces) == wanted


def test_a_frame_that_comes_alone_has_the_same_limit() -> None:
    pieces = [frame(b'{"op":1}'), frame(b'{"op":22}')]
    assert read_as_connections_do(MessageReader(9), pieces) == [b'{"op":1}', b'{"op":22}']
    assert read_as_connections_do(MessageReader(8), pieces) == "BAD_REQUEST"


def test_a_header_has_eighteen_bytes_of_the_contract() -> None:
    assert HEADER.size == 18
    made = frame(b"{}")
    assert made[:10] == b"RCPX" + bytes((0, 1, 0, 1, 0, 0))
    assert made[10:14] == bytes((0, 0, 0, 2))
    assert made[18:] == b"{}"


def test_the_published_client_reads_frames_made_here_and_the_other_way_round() -> None:
    theirs, rest = Frame.decode(frame(b'{"a":1}') + b"RC")
    assert theirs is not None
    assert (theirs.payload, rest) == (b'{"a":1}', b"RC")
    extended = Frame(b'{"b":2}', header_extension=b"later").encode()
    unchecked = Frame(b'{"c":3}', use_crc=False).encode()
    assert read_all(MessageReader(), [extended + unchecked]) == [b'{"b":2}', b'{"c":3}']
    with pytest.raises(ProtocolError):
        Frame.decode(frame(b'{"a":1}')[:-1] + b"?")


@pytest.mark.parametrize("at", range(18))
def test_a_changed_header_byte_is_refused_or_waited_for(at: int) -> None:
    payload = b'{"a":1}'
    good = bytearray(frame(payload))
    good[at] ^= 0x41
    # A longer length waits for its bytes; flags that are not known are passed over; a frame
    # without the flag of its checksum is one without a checksum.
    assert code_or_messages(MessageReader(), [bytes(good)]) in (*CODES, [], [payload])


def test_a_payload_that_does_not_fit_its_crc_is_refused() -> None:
    reader = MessageReader()
    reader.feed(frame(b'{"a":1}').replace(b"1}", b"2}"))
    with pytest.raises(RcpxProtocolError, match="CRC"):
        reader.next_message()


def test_a_length_over_the_limit_is_refused_before_its_bytes_come() -> None:
    header = bytearray(frame(b"{}")[:18])
    header[10:14] = (PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big")
    reader = MessageReader()
    reader.feed(bytes(header))
    with pytest.raises(RcpxProtocolError, match="at most 16777216"):
        reader.next_message()


def test_a_line_without_end_is_refused_at_the_limit() -> None:
    reader = MessageReader(payload_bytes_max=100)
    reader.feed(b"{" + b" " * 99)
    assert reader.next_message() is None
    reader.feed(b"  ")
    with pytest.raises(RcpxProtocolError, match="at most 100"):
        reader.next_message()


def test_another_protocol_is_told_so_at_its_first_byte() -> None:
    for first in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"\x00\x00\x00\x10"):
        reader = MessageReader()
        reader.feed(first)
        with pytest.raises(RcpxProtocolError) as refused:
            reader.next_message()
        assert refused.value.code == "UNSUPPORTED_PROTOCOL"


@PATIENT
@given(st.binary(max_size=300), st.integers(0, 2**32))
def test_random_bytes_never_do_more_than_raise_the_one_error(data: bytes, seed: int) -> None:
    start = random.Random(seed).choice((b"", b"RCPX", b"RCPX\0\1\0\1", b"{"))
    reader = MessageReader(payload_bytes_max=4_096)
    found = code_or_messages(reader, cut(start + data, [3, 20, 21]))
    if isinstance(found, str):
        assert found in CODES
        return
    for payload in found:
        with contextlib.suppress(rcpx.EnvelopeError):
            rcpx.read_request(payload)


def test_empty_lines_and_carriage_returns_are_passed_over() -> None:
    reader = MessageReader()
    assert read_all(reader, [b'\r\n\n{"a":1}\r\n\r\n', b'{"b":2}\n']) == [b'{"a":1}', b'{"b":2}']
    assert reader.mode is WireMode.LINES
    assert not reader.is_within


def test_a_request_that_cannot_be_read_still_says_whose_it_was() -> None:
    with pytest.raises(rcpx.EnvelopeError) as refused:
        rcpx.read_request(b'{"id":"7","op":3}')
    assert refused.value.request_id == b'"7"'
    with pytest.raises(rcpx.EnvelopeError) as unknown:
        rcpx.read_request(b"[1]")
    assert unknown.value.request_id == b'""'
    with pytest.raises(rcpx.EnvelopeError, match="type request"):
        rcpx.read_request(b'{"id":"7","op":"PING","type":"response"}')


def test_envelopes_are_json_as_the_contract_has_them() -> None:
    good = json.loads(rcpx.ok(b'"1"', b'{"x":1}', b"2026", 5))
    assert good == {
        "type": "response",
        "id": "1",
        "status": "ok",
        "result": {"x": 1},
        "meta": {"server_time": "2026", "wal_offset": 5},
    }
    bad = json.loads(rcpx.failed(b'"1"', "CONFLICT", "no", retryable=False, details={"a": 1}))
    assert bad["error"] == {
        "code": "CONFLICT",
        "message": "no",
        "retryable": False,
        "details": {"a": 1},
    }
    pushed = json.loads(rcpx.event(b'"s"', b'{"instance_id":"i"}'))
    assert pushed == {"type": "event", "subscription_id": "s", "instance_id": "i"}


def test_a_frame_of_a_stream_says_so_in_its_flags() -> None:
    made = frame(b"{}", RcpxFlag.CRC | RcpxFlag.STREAM)
    assert made[6:8] == bytes((0, 5))
    assert read_all(MessageReader(), [made]) == [b"{}"]
