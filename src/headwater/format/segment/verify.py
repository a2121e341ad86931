"""Held against each other: the frames of a `.data` file and the entries of its `.idx`.

Both functions check many records at once and are safe on hostile bytes: every length is checked
against what is really there before anything is sliced.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.format.frame import CHECKSUM_BYTES, LENGTH_BYTES, FrameFlag
from headwater.format.segment.frame import (
    INDEX_ENTRY,
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    STATE_BYTES,
    Entries,
    FrameState,
    IndexFlag,
    decode_segment_frame,
    index_flags,
    seal_checks,
)
from headwater.format.segment.run import Integers, at_each_byte, hash_ranges, heads_at
from headwater.native import compiled

_native: Final = compiled("entries")
_RECORD_FLAGS: Final = int(sum(FrameFlag))
_DELETED_FLAG: Final = int(IndexFlag.DELETED)
_DELETED_STATE: Final = int(FrameState.DELETED)


class FrameFault(IntEnum):
    """Why a frame is not what its entry says."""

    NONE = 0
    OUTSIDE = 1
    LENGTH = 2
    SEQ = 3
    TS = 4
    FLAGS = 5
    CHECKSUM = 6
    STATE = 7
    """The rest of the frame is sound: a delete whose one byte was torn, or damage to that byte."""
    DELETED = 8
    """Deleted in the data, live in the index: a delete that was not finished or just happened."""
    NOT_DELETED = 9
    """Live in the data, deleted in the index: a delete that is not finished."""


FAULT_MEANING: Final[dict[FrameFault, str]] = {
    FrameFault.NONE: "sound",
    FrameFault.OUTSIDE: "the frame is not in the file",
    FrameFault.LENGTH: "the lengths in the frame do not add up to its entry",
    FrameFault.SEQ: "the frame has another seq",
    FrameFault.TS: "the frame has another time than its entry",
    FrameFault.FLAGS: "the frame has other flags than its entry",
    FrameFault.CHECKSUM: "checksum does not match",
    FrameFault.STATE: "the state byte is neither live nor deleted",
    FrameFault.DELETED: "deleted in the data, live in the index",
    FrameFault.NOT_DELETED: "live in the data, deleted in the index",
}


def frame_faults(
    buffer: bytes | bytearray | memoryview,
    entries: Entries,
    first_seq: int,
    base: int = 0,
    *,
    checksums: bool = True,
    heads: NDArray[Any] | None = None,
) -> NDArray[numpy.uint8]:
    """The `FrameFault` of each entry's frame; without `checksums`, as far as the headers tell.

    `base` is the offset in the file of the first byte of `buffer`.
    `heads` are the fixed parts of all frames, for those who have them already.
    """
    view = memoryview(buffer)
    count = len(entries)
    faults = numpy.zeros(count, numpy.uint8)
    if _native is not None:
        whole = numpy.ascontiguousarray(entries)
        _native.frame_faults(view, whole, first_seq, base, checksums, faults)
        return faults
    offsets = entries["offset"].astype(numpy.int64) - base
    sizes = entries["len"].astype(numpy.int64)
    rows = numpy.arange(count)
    outside = (offsets < 0) | (sizes < SEGMENT_FRAME_BYTES_MIN) | (offsets + sizes > len(view))
    if outside.any():
        faults[outside] = FrameFault.OUTSIDE
        rows = numpy.flatnonzero(~outside)
        entries, offsets, sizes = entries[rows], offsets[rows], sizes[rows]
        heads = None
    seqs = numpy.uint64(first_seq) + rows.astype(numpy.uint64)
    if heads is None:
        heads = heads_at(view, SEGMENT_FRAME, offsets)
    header_faults = _header_faults(view, heads, entries, offsets, sizes, seqs)
    if header_faults is not None:
        faults[rows] = header_faults
        hashed = (header_faults == FrameFault.NONE) | (header_faults >= FrameFault.STATE)
        rows, offsets, sizes = rows[hashed], offsets[hashed], sizes[hashed]
    if not checksums:
        return faults
    borders = offsets + (sizes - STATE_BYTES - CHECKSUM_BYTES)
    hashes = hash_ranges(view, offsets + LENGTH_BYTES, borders)
    wrong = hashes != at_each_byte(view, "<u8")[borders]
    if wrong.any():
        faults[rows[wrong]] = FrameFault.CHECKSUM
    return faults


def _header_faults(
    view: memoryview,
    heads: NDArray[Any],
    entries: Entries,
    starts: Integers,
    sizes: Integers,
    seqs: NDArray[numpy.uint64],
) -> NDArray[numpy.uint8] | None:
    """The first fault of each in the order of the enum, or None when there is none at all."""
    flags = index_flags(entries)
    lengths = heads["data_len"] + heads["node_len"].astype(numpy.int64) + heads["tag_len"]
    states = at_each_byte(view, "<u1")[starts + (sizes - STATE_BYTES)]
    is_dead = (flags & _DELETED_FLAG) != 0
    wrong_length = heads["frame_len"] != sizes - (LENGTH_BYTES + STATE_BYTES)
    wrong_length |= lengths != sizes - SEGMENT_FRAME_BYTES_MIN
    wrong_seq = heads["seq"] != seqs
    wrong_ts = heads["ts"] != entries["ts"]
    wrong_flags = heads["flags"] != flags & _RECORD_FLAGS
    wrong_state = states != is_dead * _DELETED_STATE
    if not (wrong_length | wrong_seq | wrong_ts | wrong_flags | wrong_state).any():
        return None
    # Later lines win, so the order of the enum is followed backwards.
    faults = numpy.zeros(len(entries), numpy.uint8)
    faults[is_dead & (states == FrameState.LIVE)] = FrameFault.NOT_DELETED
    faults[~is_dead & (states == FrameState.DELETED)] = FrameFault.DELETED
    faults[(states != FrameState.LIVE) & (states != FrameState.DELETED)] = FrameFault.STATE
    faults[wrong_flags] = FrameFault.FLAGS
    faults[wrong_ts] = FrameFault.TS
    faults[wrong_seq] = FrameFault.SEQ
    faults[wrong_length] = FrameFault.LENGTH
    return faults


def rebuild_entries(
    buffer: bytes | bytearray | memoryview,
    first_seq: int,
    start: int = 0,
    count: int | None = None,
) -> tuple[Entries, FormatError | None]:
    """Entries for the frames from byte `start` on, and why the walk ended early if it did.

    `first_seq` is the seq of the frame at `start`; without a `count` the walk goes to the last
    byte. A dead record's entry says DELETED; that it was lost and not deleted is known to the old
    index alone.
    """
    view = memoryview(buffer)
    rows: list[tuple[int, int, int, int]] = []
    ended: FormatError | None = None
    at = start
    while at < len(view) if count is None else len(rows) < count:
        try:
            record = decode_segment_frame(view, at, len(view))
            if record.seq != first_seq + len(rows):
                raise FormatError(f"seq {record.seq} is not {first_seq + len(rows)}", at)
        except FormatError as error:
            ended = error
            break
        gone = IndexFlag.DELETED if record.state is FrameState.DELETED else 0
        rows.append((at, record.size, record.ts, record.flags | gone))
        at += record.size
    entries = numpy.array(rows, INDEX_ENTRY.dtype)
    seal_checks(entries, first_seq)
    return entries, ended
