"""Segment frames: a WAL record without its type and topic, and one state byte behind it.

The state byte is outside `frame_len` and outside the checksum because it is the one byte that
changes after a segment is sealed: deleting a record flips it in place. Its two values differ in
five bits, so no single flipped bit deletes a record or brings one back (I8).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import CHECKSUM_BYTES, FrameFlag, split_data
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
LENGTH_BYTES: Final = 4
_AFTER_LENGTH: Final = struct.Struct("<" + SEGMENT_FRAME.packer.format.lstrip("<")[1:])
_LENGTH: Final = struct.Struct("<I")
_CHECKSUM: Final = struct.Struct("<Q")
_KNOWN_FLAGS: Final = sum(FrameFlag)
_KNOWN_STATES: Final = frozenset(map(int, FrameState))

SEGMENT_FRAME_LEN_MIN: Final = _AFTER_LENGTH.size + CHECKSUM_BYTES
"""33: what `frame_len` says of a frame with empty node, tag and data."""
SEGMENT_FRAME_BYTES_MIN: Final = LENGTH_BYTES + SEGMENT_FRAME_LEN_MIN + STATE_BYTES
"""38: the smallest whole frame."""


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


def encode_segment_frame(
    seq: int,
    ts: int,
    *,
    flags: int = 0,
    node: bytes = b"",
    tag: bytes = b"",
    data: bytes = b"",
    state: FrameState = FrameState.LIVE,
) -> bytes:
    """One frame; `data` holds the meta too when the flags say so, as in a WAL frame."""
    head = _AFTER_LENGTH.pack(flags, seq, ts, len(node), len(tag), len(data))
    body = b"".join((head, node, tag, data))
    return b"".join(
        (
            _LENGTH.pack(len(body) + CHECKSUM_BYTES),
            body,
            _CHECKSUM.pack(checksum64(body)),
            bytes((state,)),
        )
    )


def segment_frame_size(buffer: memoryview, offset: int, end: int) -> int:
    """The whole size of the frame at `offset`, or FormatError when it cannot be one."""
    if offset < 0 or end > len(buffer) or end - offset < SEGMENT_FRAME_BYTES_MIN:
        raise FormatError("no room for a frame", offset)
    length = int(_LENGTH.unpack_from(buffer, offset)[0])
    if length < SEGMENT_FRAME_LEN_MIN:
        raise FormatError(f"frame_len {length} is too small", offset)
    if length > end - offset - LENGTH_BYTES - STATE_BYTES:
        raise FormatError(f"frame_len {length} runs past the end", offset)
    return length + LENGTH_BYTES + STATE_BYTES


def decode_segment_frame(
    buffer: memoryview, offset: int, end: int, *, verify: bool = True
) -> SegmentRecord:
    """Read and verify one frame: lengths, checksum, flags, state, in this order.

    `verify=False` leaves out the checksum, for bytes that were just checked in bulk.
    """
    size = segment_frame_size(buffer, offset, end)
    border = offset + size - STATE_BYTES - CHECKSUM_BYTES
    if verify:
        expected = int(_CHECKSUM.unpack_from(buffer, border)[0])
        if checksum64(buffer[offset + LENGTH_BYTES : border]) != expected:
            raise FormatError("checksum does not match", offset)
    flags, seq, ts, node_len, tag_len, data_len = _AFTER_LENGTH.unpack_from(
        buffer, offset + LENGTH_BYTES
    )
    if SEGMENT_FRAME_BYTES_MIN + node_len + tag_len + data_len != size:
        raise FormatError("node, tag and data do not add up to frame_len", offset)
    if flags & ~_KNOWN_FLAGS:
        raise FormatError(f"frame flags {flags:#04x} are not known", offset)
    state = buffer[offset + size - STATE_BYTES]
    if state not in _KNOWN_STATES:
        raise FormatError(f"state {state:#04x} is neither live nor deleted", offset)
    at = offset + SEGMENT_FRAME.size
    tag_at = at + node_len
    data_at = tag_at + tag_len
    data, meta = split_data(flags, bytes(buffer[data_at:border]), offset)
    return SegmentRecord(
        flags,
        seq,
        ts,
        bytes(buffer[at:tag_at]),
        bytes(buffer[tag_at:data_at]),
        data,
        meta,
        FrameState(state),
        offset,
        size,
    )
