"""Held against each other: the frames of a `.data` file and the entries of its `.idx`.

Both functions look at many records at once and are safe on hostile bytes: every length is checked
against what is really there before anything is sliced.
"""

from __future__ import annotations

from typing import Final

import numpy
from numpy.typing import NDArray

from headwater.core.errors import FormatError
from headwater.format.frame import CHECKSUM_BYTES, FrameFlag
from headwater.format.segment.entry import (
    INDEX_DTYPE,
    Entries,
    IndexFlag,
    index_flags,
    seal_checks,
)
from headwater.format.segment.frame import (
    LENGTH_BYTES,
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    STATE_BYTES,
    FrameState,
    decode_segment_frame,
)
from headwater.format.segment.run import Integers, at_each_byte, hash_ranges, heads_at

_RECORD_FLAGS: Final = numpy.uint8(sum(FrameFlag))


def verify_frames(
    buffer: bytes | bytearray | memoryview, entries: Entries, first_seq: int, base: int = 0
) -> NDArray[numpy.int64]:
    """Positions whose frame has another checksum, seq, ts, length, flags or state than its entry.

    `base` is the offset in the file of the first byte of `buffer`.
    """
    view = memoryview(buffer)
    offsets = entries["offset"].astype(numpy.int64) - base
    sizes = entries["len"].astype(numpy.int64)
    good = (offsets >= 0) & (sizes >= SEGMENT_FRAME_BYTES_MIN) & (offsets + sizes <= len(view))
    places = numpy.flatnonzero(good)
    seqs = numpy.uint64(first_seq) + places.astype(numpy.uint64)
    places = places[_headers_match(view, entries[places], offsets[places], seqs)]
    starts = offsets[places]
    borders = starts + sizes[places] - STATE_BYTES - CHECKSUM_BYTES
    hashes = hash_ranges(view, starts + LENGTH_BYTES, borders)
    good[:] = False
    good[places[hashes == at_each_byte(view, "<u8")[borders]]] = True
    return numpy.flatnonzero(~good)


def _headers_match(
    view: memoryview, entries: Entries, starts: Integers, seqs: NDArray[numpy.uint64]
) -> NDArray[numpy.bool_]:
    sizes = entries["len"].astype(numpy.int64)
    flags = index_flags(entries)
    heads = heads_at(view, SEGMENT_FRAME, starts)
    lengths = heads["data_len"] + heads["node_len"].astype(numpy.int64) + heads["tag_len"]
    states = numpy.where(flags & IndexFlag.DELETED, FrameState.DELETED, FrameState.LIVE)
    match: NDArray[numpy.bool_] = heads["frame_len"] == sizes - LENGTH_BYTES - STATE_BYTES
    match &= lengths + SEGMENT_FRAME_BYTES_MIN == sizes
    match &= heads["seq"] == seqs
    match &= heads["ts"] == entries["ts"]
    match &= heads["flags"] == flags & _RECORD_FLAGS
    match &= at_each_byte(view, "<u1")[starts + sizes - STATE_BYTES] == states
    return match


def rebuild_entries(
    buffer: bytes | bytearray | memoryview, first_seq: int, start: int = 0
) -> tuple[Entries, FormatError | None]:
    """Entries for the frames from byte `start` on, and why the walk ended before the last byte.

    `first_seq` is the seq of the frame at `start`. A dead record's entry says DELETED; that it was
    lost and not deleted is known to the old index alone.
    """
    view = memoryview(buffer)
    rows: list[tuple[int, int, int, int]] = []
    ended: FormatError | None = None
    at = start
    while at < len(view):
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
    entries = numpy.array(rows, INDEX_DTYPE)
    seal_checks(entries, first_seq)
    return entries, ended
