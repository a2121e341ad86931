"""Segment frames: a WAL record without its type and topic, and one state byte behind it.

The state byte is outside `frame_len` and outside the checksum because it is the one byte that
changes after a segment is sealed: deleting a record flips it in place. Its two values differ in
five bits, so no single flipped bit deletes a record or brings one back (I8).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from headwater.core.errors import FormatError
from headwater.format.frame import FrameFlag, FrameForm, split_data
from headwater.format.layout import Field, Layout

SEGMENT_FRAME: Final = Layout(
    "segment frame",
    (
        Field("frame_len", "u32", "bytes of this frame, not counting this field and the state"),
        Field("flags", "u8", "bit 0 has_tag, bit 1 has_node, bit 2 durable, bit 3 has_meta"),
        Field("seq", "u64", "the record's seq"),
        Field("ts", "u64", "commit time, milliseconds since 1970"),
        Field("node_len", "u16", "bytes of node"),
        Field("tag_len", "u16", "bytes of tag"),
        Field("data_len", "u32", "bytes of data and meta together"),
    ),
    tail=(
        ("node_len", "node", "who wrote it, UTF-8"),
        ("tag_len", "tag", "what it is about, UTF-8"),
        (
            "data_len",
            "data",
            "the payload as it was sent; with has_meta: data, then meta, then u32 bytes of meta",
        ),
        ("8", "xxh3", "XXH3-64, seed 0, over everything from `flags` up to here"),
        ("1", "state", "0x00 live, 0xD5 deleted; flipped in place"),
    ),
)


class FrameState(IntEnum):
    LIVE = 0x00
    DELETED = 0xD5


STATE_BYTES: Final = 1
_FORM: Final = FrameForm(SEGMENT_FRAME, STATE_BYTES)
_KNOWN_FLAGS: Final = sum(FrameFlag)
_KNOWN_STATES: Final = frozenset(map(int, FrameState))

SEGMENT_FRAME_LEN_MIN: Final = _FORM.len_min
"""33."""
SEGMENT_FRAME_BYTES_MIN: Final = _FORM.bytes_min
"""38."""
segment_frame_size: Final = _FORM.size_at


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A decoded frame. `offset` and `size` say where it lay in the buffer it came from."""

    flags: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    meta: bytes | None
    state: FrameState
    offset: int
    size: int


def decode_segment_frame(
    buffer: memoryview, offset: int, end: int, *, verify: bool = True
) -> SegmentRecord:
    """Read and verify one frame: lengths, checksum, flags, state, in this order.

    `verify=False` leaves out the checksum, for bytes that were just checked in bulk.
    """
    size, (flags, seq, ts), node, tag, joined = _FORM.parts_at(buffer, offset, end, verify=verify)
    if flags & ~_KNOWN_FLAGS:
        raise FormatError(f"frame flags {flags:#04x} are not known", offset)
    state = buffer[offset + size - STATE_BYTES]
    if state not in _KNOWN_STATES:
        raise FormatError(f"state {state:#04x} is neither live nor deleted", offset)
    data, meta = split_data(flags, joined, offset)
    return SegmentRecord(flags, seq, ts, node, tag, data, meta, FrameState(state), offset, size)
