"""The two files of a segment, record by record: frames of `.data`, entries of `.idx`.

A frame is a WAL record without its type and topic, and one state byte behind it. The state byte is
outside `frame_len` and outside the checksum because it is the one byte that changes after a segment
is sealed: deleting a record flips it in place. Its two values differ in five bits, so no single
flipped bit deletes a record or brings one back (I8).

An index entry is 20 bytes for each seq, on disk and in memory alike. Entry i is about seq
first_seq + i. The seed pads an entry with three bytes; here they hold a check value over the entry
and its seq, so that a flipped bit in an index is noticed and not followed (I6). The check is a
weighted sum modulo a prime: the weights are not divisible by it, so every change of a single bit
changes the sum, with certainty and not only with high odds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any, Final, TypeAlias

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.format.frame import FrameFlag, FrameForm, split_data
from headwater.format.layout import Field, Layout
from headwater.native import compiled

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


class SegmentRecord(msgspec.Struct, frozen=True):
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


INDEX_ENTRY: Final = Layout(
    "index entry",
    (
        Field("offset", "u32", "where the frame begins in the .data file"),
        Field("len", "u32", "bytes of the whole frame, length field and state byte included"),
        Field("ts", "u64", "commit time, milliseconds since 1970"),
        Field(
            "flags_check",
            "u32",
            "low byte: index flags; upper three bytes: check over the entry and its seq",
        ),
    ),
)

_native: Final = compiled("frames")
_native_entries: Final = compiled("entries")
ENTRY_BYTES: Final = INDEX_ENTRY.size
"""20: entry of a seq is at (seq - first_seq) x 20."""

Entries: TypeAlias = "NDArray[numpy.void]"
"""An array of `INDEX_ENTRY.dtype`."""


class IndexFlag(IntFlag):
    HAS_TAG = 1
    HAS_NODE = 2
    DURABLE = 4
    HAS_META = 8
    IN_WAL = 0x10
    """In memory only: the record is not yet in a segment."""
    LOST = 0x20
    """The seq was given out but its record did not survive; reading it gives a tombstone."""
    DAMAGED = 0x40
    """In memory only: neither the entry nor the frame could be read; it is never served."""
    DELETED = 0x80


MEMORY_FLAGS: Final = int(IndexFlag.IN_WAL | IndexFlag.DAMAGED)
"""Never written to a file."""

_FLAGS_MASK: Final = 0xFF
_CHECK_SHIFT: Final = 8
_LOW: Final = 0xFFFF_FFFF
_HALF: Final = 32

# Odd digits of well known constants, below the prime; each product stays under 2^56 and the sum
# of all of them under 2^59, so nothing overflows before the one division.
CHECK_PRIME: Final = 16_777_213
_WEIGHT_OFFSET: Final = 0x9E3779
_WEIGHT_LEN: Final = 0x6A09E7
_WEIGHT_TS_LOW: Final = 0xBB67AF
_WEIGHT_TS_HIGH: Final = 0x3C6EF3
_WEIGHT_FLAGS: Final = 0xA54FF5
SEQ_WEIGHT: Final = 0x510E53
_WEIGHT_SEQ_HIGH: Final = 0x9B0569
_START: Final = 0x1F83D9


def pack_entries(
    lengths: Sequence[int], ts: int | Sequence[int], flags: Sequence[int]
) -> bytes | memoryview:
    """Entries of records that are in no segment yet, at one moment or with a time each."""
    count = len(lengths)
    if _native is not None and type(lengths) is list and type(flags) is list:
        times = [ts] * count if isinstance(ts, int) else list(ts)
        packed: bytes = _native.index_entries(lengths, times, flags)
        return packed
    entries = numpy.zeros(count, INDEX_ENTRY.dtype)
    entries["len"] = lengths
    entries["ts"] = ts
    entries["flags_check"] = flags
    return entries.view(numpy.uint8).data


def index_flags(entries: Entries) -> NDArray[numpy.uint8]:
    return (entries["flags_check"] & _FLAGS_MASK).astype(numpy.uint8)


def seal_checks(entries: Entries, first_seq: int, salt: int = 0) -> None:
    """Write the check of every entry, in place; offset, len, ts and flags must be final.

    `salt` says whose segment it is, see `identity`; 0 for one that does not know.
    """
    flags = entries["flags_check"] & _FLAGS_MASK
    entries["flags_check"] = flags | _salted(entries, flags, first_seq, salt) << _CHECK_SHIFT


def bad_entries(entries: Entries, first_seq: int, salt: int = 0) -> NDArray[numpy.int64]:
    """Positions of entries that are not what was written for this segment."""
    flags = entries["flags_check"] & _FLAGS_MASK
    wrong = entries["flags_check"] >> _CHECK_SHIFT != _salted(entries, flags, first_seq, salt)
    wrong |= entries["len"] < SEGMENT_FRAME_BYTES_MIN
    return numpy.flatnonzero(wrong)


def check_shifts(entries: Entries, first_seq: int) -> NDArray[numpy.int64]:
    """By how much each check is off from one without a salt, modulo the prime."""
    flags = entries["flags_check"] & _FLAGS_MASK
    checks = (entries["flags_check"] >> _CHECK_SHIFT).astype(numpy.int64)
    shifts: NDArray[numpy.int64] = (checks - _checks(entries, flags, first_seq)) % CHECK_PRIME
    return shifts


def _salted(
    entries: Entries, flags: NDArray[Any], first_seq: int, salt: int
) -> NDArray[numpy.uint32]:
    checks = _checks(entries, flags, first_seq)
    if salt:
        checks = (checks + numpy.uint32(salt)) % numpy.uint32(CHECK_PRIME)
    return checks


def _checks(entries: Entries, flags: NDArray[Any], first_seq: int) -> NDArray[numpy.uint32]:
    if _native_entries is not None:
        checks = numpy.empty(len(entries), numpy.uint32)
        _native_entries.entry_checks(numpy.ascontiguousarray(entries), first_seq, checks)
        return checks
    ts = entries["ts"]
    seq = numpy.uint64(first_seq) + numpy.arange(len(entries), dtype=numpy.uint64)
    total: NDArray[numpy.uint64] = entries["offset"].astype(numpy.uint64) * _WEIGHT_OFFSET
    total += entries["len"].astype(numpy.uint64) * _WEIGHT_LEN
    total += (ts & _LOW) * _WEIGHT_TS_LOW
    total += (ts >> _HALF) * _WEIGHT_TS_HIGH
    total += flags.astype(numpy.uint64) * _WEIGHT_FLAGS
    total += (seq & _LOW) * SEQ_WEIGHT
    total += (seq >> _HALF) * _WEIGHT_SEQ_HIGH
    total += _START
    return (total % CHECK_PRIME).astype(numpy.uint32)
