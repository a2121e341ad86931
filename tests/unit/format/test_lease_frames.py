"""Lease events as bytes: the same back, and nothing else accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.control_frames import (
    LEASE_KIND_MEANING,
    LeaseEvent,
    LeaseKind,
    decode_lease_event,
    encode_lease_event,
)
from headwater.format.frame import FrameType, UnknownFrameError, decode_frame, encode_frame

numbers = st.integers(0, 2**64 - 1)


def frame_of(data: bytes, node: bytes = b"") -> object:
    encoded = encode_frame(FrameType.LEASE, 7, ts=5, data=data, node=node)
    return decode_lease_event(decode_frame(memoryview(encoded), 0, len(encoded)))


@given(
    kind=st.sampled_from(LeaseKind),
    jobs=st.lists(st.tuples(numbers, numbers), max_size=20),
    node=st.text(max_size=20),
    lease_id=numbers,
    span_ms=numbers,
    connected=st.booleans(),
)
def test_a_lease_event_comes_back_as_it_was(
    kind: LeaseKind,
    jobs: list[tuple[int, int]],
    node: str,
    lease_id: int,
    span_ms: int,
    connected: bool,
) -> None:
    times = tuple(time for _, time in jobs) if kind is LeaseKind.APPOINTED else ()
    seqs = tuple(seq for seq, _ in jobs)
    event = LeaseEvent(kind, seqs, node, lease_id, span_ms, connected, times)
    encoded = encode_lease_event(3, event, ts=17)
    frame = decode_frame(memoryview(encoded), 0, len(encoded))
    assert (frame.type, frame.topic_id, frame.ts) == (FrameType.LEASE, 3, 17)
    assert decode_lease_event(frame) == event


def test_a_lease_event_that_is_cut_padded_or_absurd_is_refused() -> None:
    event = LeaseEvent(LeaseKind.CLAIMED, (1, 2), "one", 3, 4)
    encoded = encode_lease_event(3, event, ts=17)
    data = decode_frame(memoryview(encoded), 0, len(encoded)).data
    for size in range(len(data)):
        with pytest.raises(FormatError):
            frame_of(data[:size])
    for bad in (data + b"\0" * 8, data[:1] + b"\2" + data[2:], data[:4] + b"\xff" * 4 + data[8:]):
        with pytest.raises(FormatError):
            frame_of(bad)
    with pytest.raises(FormatError, match="UTF-8"):
        frame_of(data, node=b"\xff")
    with pytest.raises(UnknownFrameError, match="99"):
        frame_of(b"\x63" + data[1:])


def test_every_kind_of_lease_event_is_explained() -> None:
    assert set(LEASE_KIND_MEANING) == set(LeaseKind)
