"""The commit mark: first frame of every group write, and what makes the log self-checking.

A group is whole or absent: the mark tells how many bytes and frames follow and their hash. Marks
form a chain, each hashing the one before over file borders, so a group that is missing, repeated
or moved is noticed. And a mark is a witness: `durable_offset` says how much of this file was on
stable storage when it was written. Damage before a witnessed offset is corruption; damage after
every witness is an unfinished write (I5).
"""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import (
    FRAME,
    FRAME_BYTES_MIN,
    LENGTH_BYTES,
    FrameType,
    UnknownFrameError,
    decode_frame,
    encode_frame,
)
from headwater.format.layout import Field, Layout

FORMAT_VERSION: Final = 1

COMMIT_MARK: Final = Layout(
    "commit mark",
    (
        Field("version", "u16", f"format version of the group, {FORMAT_VERSION}"),
        Field("kind", "u16", "bit 0 written when idle, bit 1 written by a clean stop"),
        Field("frame_count", "u32", "frames of this group after the mark"),
        Field("body_bytes", "u64", "bytes of those frames"),
        Field("body_hash", "u64", "XXH3-64 over those bytes"),
        Field("run", "u64", "which opening of the log wrote this; grows by one each time"),
        Field("log_id", "u64", "drawn at random when the shard was made; same in all marks"),
        Field("file_frame", "u64", "the number in this file's name"),
        Field("file_bytes", "u64", "the length this file was given before its first use"),
        Field("frame", "u64", "number of the mark itself among all frames of the shard, from 1"),
        Field("offset", "u64", "where in the file the mark itself stands"),
        Field("durable_offset", "u64", "bytes of this file known to be on stable storage before"),
        Field("chain", "u64", "XXH3-64 over the whole frame of the previous mark; 0 for the first"),
    ),
)

MARK_BYTES: Final = FRAME_BYTES_MIN + COMMIT_MARK.size
_BODY_BYTES: Final = COMMIT_MARK.size
# Head and body are both packed little-endian, so one packer makes the whole frame.
_WHOLE_PACK: Final = struct.Struct(
    FRAME.packer.format + COMMIT_MARK.packer.format.removeprefix("<")
).pack
_CHECKSUM_PACK: Final = struct.Struct("<Q").pack


class MarkKind(IntFlag):
    GROUP = 0
    IDLE = 1
    CLEAN_STOP = 2


class CommitMark(NamedTuple):
    """Field order is the layout's; a test holds the two together."""

    version: int
    kind: int
    frame_count: int
    body_bytes: int
    body_hash: int
    run: int
    log_id: int
    file_frame: int
    file_bytes: int
    frame: int
    offset: int
    durable_offset: int
    chain: int

    @property
    def body_at(self) -> int:
        return self.offset + MARK_BYTES

    @property
    def end(self) -> int:
        """Where the next mark stands, if there is one."""
        return self.body_at + self.body_bytes


def pack_mark(ts: int, *values: int) -> bytes:
    """The frame of a mark from its fields in the layout's order: what every commit calls."""
    frame = _WHOLE_PACK(
        MARK_BYTES - LENGTH_BYTES, FrameType.COMMIT_MARK, 0, 0, 0, ts, 0, 0, _BODY_BYTES, *values
    )
    return frame + _CHECKSUM_PACK(checksum64(frame[LENGTH_BYTES:]))


def chain_of(mark_frame: bytes | memoryview) -> int:
    """What the next mark's `chain` must be, given the whole frame of this one."""
    return checksum64(mark_frame)


def decode_mark(buffer: memoryview, offset: int, end: int) -> CommitMark:
    """Read the mark at `offset`, checksum and all. A newer version is an UnknownFrameError."""
    frame = decode_frame(buffer, offset, end)
    if frame.type is not FrameType.COMMIT_MARK:
        raise FormatError(f"expected a commit mark, found {frame.type.name}", offset)
    if len(frame.data) < 2:
        raise FormatError("commit mark is too short", offset)
    version = int.from_bytes(frame.data[:2], "little")
    if version != FORMAT_VERSION:
        raise UnknownFrameError(
            f"written in format version {version}, this software knows {FORMAT_VERSION}", offset
        )
    if len(frame.data) != COMMIT_MARK.size:
        raise FormatError("commit mark has the wrong size", offset)
    return CommitMark(*COMMIT_MARK.packer.unpack(frame.data))


def mark_prefix() -> bytes:
    """The bytes every mark begins with: what a search after damage looks for."""
    return encode_frame(FrameType.COMMIT_MARK, 0, data=bytes(COMMIT_MARK.size))[
        : FRAME.offset_of("ts")
    ]


def find_mark(buffer: memoryview, start: int, log_id: int | None) -> CommitMark | None:
    """The next believable mark at or after `start`: checksum good, standing where it says, and
    of this log. `log_id` is random, so no stored payload can be dressed up as a mark."""
    prefix = mark_prefix()
    data = buffer.obj if isinstance(buffer.obj, bytes) and len(buffer) == len(buffer.obj) else None
    haystack = data if data is not None else bytes(buffer)
    at = haystack.find(prefix, start)
    while at >= 0:
        try:
            mark = decode_mark(buffer, at, len(buffer))
        except FormatError:
            mark = None
        if mark is not None and mark.offset == at and log_id in (None, mark.log_id):
            return mark
        at = haystack.find(prefix, at + 1)
    return None
