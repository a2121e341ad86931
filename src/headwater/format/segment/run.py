"""A gapless run of WAL records as segment bytes, many at a time: the hot part of a checkpoint.

The bytes from `seq` to the end of the payload are the same in both formats. A segment frame is
therefore cut out of the WAL frame with the nine bytes before `seq` as room for its own length and
flags, and the checksum and state written over what is already there:

    WAL      len  type flags topic_id           | seq ts lengths node tag data | xxh3
    segment             (state of the one before) len flags | the same         | xxh3 state

So one join copies everything, numpy fills in the rest column by column, and the only work that
is done record by record is slicing and hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import CHECKSUM_BYTES, FRAME, FRAME_BYTES_MIN, LENGTH_BYTES, FrameType
from headwater.format.layout import Layout
from headwater.format.segment.frame import (
    INDEX_ENTRY,
    MEMORY_FLAGS,
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    SEGMENT_FRAME_LEN_MIN,
    STATE_BYTES,
    Entries,
    FrameState,
    IndexFlag,
    index_flags,
    seal_checks,
)
from headwater.native import compiled

Integers: TypeAlias = "NDArray[numpy.int64]"

_native: Final = compiled("frames")
_columns: Final = compiled("columns")
SEGMENT_BYTES_MAX: Final = 2**32 - 1
"""An entry's offset has 32 bits."""

# How much of a WAL frame comes before what the two formats share, less what is put there instead.
_SKIPPED: Final = FRAME.offset_of("seq") - SEGMENT_FRAME.offset_of("seq") - STATE_BYTES
_SHRINKAGE: Final = FRAME_BYTES_MIN - SEGMENT_FRAME_BYTES_MIN
_DEAD_FRAME: Final = bytes(SEGMENT_FRAME_BYTES_MIN)
# The garbage collector counts memoryviews: more of them alive at once and it starts to run.
_COPY_AT_ONCE: Final = 512
# No other thread runs inside one call of numpy; a writer that waits for its turn must get it soon.
_HASH_AT_ONCE: Final = 512
_ALIKE_MIN: Final = 256
"""With so many records of each length on average, they are hashed length by length."""
_ALIKE_BYTES_MAX: Final = 4 * 2**20
_COPY_BYTES_MAX: Final = 1_000
"""Frames up to about this size are cheaper to copy than to check in place."""
_NOT_DEAD_FLAGS: Final = 0xFF & ~int(IndexFlag.DELETED | IndexFlag.LOST)


class WalSlice(msgspec.Struct, frozen=True):
    """WAL bytes and where the wanted Append frames begin in them, in seq order.

    For a dead record the offset is not read; its frame need not be there.
    """

    buffer: bytes | bytearray | memoryview
    offsets: Integers


class _Columns(msgspec.Struct, frozen=True):
    """What is known of each record before the bytes are put together."""

    sizes: Integers
    flags: NDArray[numpy.uint8]
    ts: NDArray[numpy.uint64]


def at_each_byte(buffer: Any, kind: str | numpy.dtype[Any]) -> NDArray[Any]:
    """What of this kind begins at each byte of the buffer; index it with byte offsets."""
    kind = numpy.dtype(kind)
    return numpy.ndarray((max(len(buffer) - kind.itemsize + 1, 0),), kind, buffer, 0, (1,))


def heads_at(buffer: Any, layout: Layout, offsets: Integers) -> NDArray[Any]:
    """The fixed parts that begin at these offsets."""
    if _columns is not None:
        heads = numpy.empty(len(offsets), layout.dtype)
        _columns.gather_heads(
            buffer, numpy.ascontiguousarray(offsets, numpy.int64), layout.size, heads
        )
        return heads
    # Gathered as plain bytes and named afterwards: numpy copies a record field by field.
    return at_each_byte(buffer, f"V{layout.size}")[offsets].view(layout.dtype)


def hash_ranges(view: memoryview, starts: Integers, ends: Integers) -> NDArray[numpy.uint64]:
    """The checksum of every [start, end) of the view."""
    hashes = numpy.empty(len(starts), numpy.uint64)
    if _native is not None:
        _native.hash_ranges(view, *map(numpy.ascontiguousarray, (starts, ends)), hashes)
        return hashes
    order, borders = _by_length(ends - starts)
    if (len(borders) + 1) * _ALIKE_MIN > len(starts):
        for at in range(0, len(starts), _HASH_AT_ONCE):
            some = slice(at, at + _HASH_AT_ONCE)
            hashes[some] = _hash_some(view, starts[some], ends[some])
        return hashes
    for rows in numpy.split(order, borders):
        _hash_alike(view, starts, int(ends[rows[0]] - starts[rows[0]]), rows, hashes)
    return hashes


def _by_length(lengths: Integers) -> tuple[Integers, Integers]:
    """The rows in order of length, and where in that order the length changes."""
    order = numpy.argsort(lengths, kind="stable")
    return order, numpy.flatnonzero(numpy.diff(lengths[order])) + 1


def _hash_alike(
    view: memoryview, starts: Integers, length: int, rows: Integers, hashes: NDArray[numpy.uint64]
) -> None:
    """Ranges of one length: numpy cuts them out, many at a time, for less than slices cost."""
    cut = at_each_byte(view, f"V{length}")
    at_once = max(min(_HASH_AT_ONCE, _ALIKE_BYTES_MAX // length), 1)
    for at in range(0, len(rows), at_once):
        some = rows[at : at + at_once]
        checksums = map(checksum64, cut[starts[some]].tolist())
        hashes[some] = numpy.fromiter(checksums, numpy.uint64, len(some))


def _hash_some(view: memoryview, starts: Integers, ends: Integers) -> list[int]:
    low, high = int(starts.min()), int(ends.max())
    if high - low > _COPY_BYTES_MAX * len(starts):
        whole: bytes | memoryview = view
        low = 0
    else:
        whole = bytes(view[low:high])  # slices of bytes cost half of what slices of a view do
    ranges = zip((starts - low).tolist(), (ends - low).tolist(), strict=True)
    return [checksum64(whole[start:end]) for start, end in ranges]


def encode_run(
    slices: Sequence[WalSlice],
    first_seq: int,
    dead: NDArray[numpy.uint8] | None = None,
    dead_ts: NDArray[numpy.uint64] | None = None,
    *,
    verify: bool = True,
) -> tuple[bytearray, Entries]:
    """The records first_seq, first_seq + 1, ... of the slices as `.data` bytes and entries.

    `dead` has the index flags of each record that is dead (DELETED, with LOST or without) and 0
    for the live ones; `dead_ts` the times of the dead ones, in the same rows. Offsets count from
    the start of the bytes returned. `verify` checks each WAL checksum first, so that damaged bytes
    never get a new, sound one. FormatError when the run has a gap or a frame is not sound.
    """
    count = sum(len(part.offsets) for part in slices)
    is_dead = _dead_rows(dead, dead_ts, count)
    columns = _Columns(
        numpy.full(count, SEGMENT_FRAME_BYTES_MIN, numpy.int64),
        numpy.zeros(count, numpy.uint8) if dead is None else dead.astype(numpy.uint8),
        numpy.zeros(count, numpy.uint64) if dead_ts is None else dead_ts.astype(numpy.uint64),
    )
    data = bytearray()
    done = 0
    for part in slices:
        whom = slice(done, done + len(part.offsets))
        starts, ends = _check_slice(part, first_seq, whom, columns, is_dead, verify)
        _copy(data, memoryview(part.buffer), starts, ends, is_dead[whom])
        done = whom.stop
    # What was copied of each record begins with the room for the state of the one before it, so
    # the first byte is too many and the last one is missing.
    del data[:STATE_BYTES]
    data += bytes(STATE_BYTES if count else 0)
    return data, _finish(data, first_seq, columns, is_dead)


def _dead_rows(
    dead: NDArray[numpy.uint8] | None, dead_ts: NDArray[numpy.uint64] | None, count: int
) -> NDArray[numpy.bool_]:
    if dead is None:
        return numpy.zeros(count, numpy.bool_)
    if dead_ts is None or len(dead) != count or len(dead_ts) != count:
        raise FormatError(f"{count} records need as many dead flags and times")
    is_dead: NDArray[numpy.bool_] = dead != 0
    if numpy.any(dead[is_dead] & _NOT_DEAD_FLAGS) or not numpy.all(
        dead[is_dead] & IndexFlag.DELETED
    ):
        raise FormatError("a dead record is deleted or deleted and lost, nothing else")
    return is_dead


def _check_slice(
    part: WalSlice,
    first_seq: int,
    whom: slice,
    columns: _Columns,
    is_dead: NDArray[numpy.bool_],
    verify: bool,
) -> tuple[Integers, Integers]:
    """Check the frames of one slice, fill their columns, and say which bytes to copy of each."""
    live = numpy.flatnonzero(~is_dead[whom])
    view = memoryview(part.buffer)
    offsets = part.offsets[live].astype(numpy.int64)
    expected = numpy.uint64(first_seq + whom.start) + live.astype(numpy.uint64)
    heads = _heads(view, offsets, expected)
    sizes = heads["frame_len"].astype(numpy.int64) + LENGTH_BYTES
    ends = offsets + sizes
    if verify:
        borders = ends - CHECKSUM_BYTES
        checksums = hash_ranges(view, offsets + LENGTH_BYTES, borders)
        _refuse(checksums != at_each_byte(view, "<u8")[borders], offsets, "checksum does not match")
    rows = live + whom.start
    columns.sizes[rows] = sizes - _SHRINKAGE
    columns.flags[rows] = heads["flags"]
    columns.ts[rows] = heads["ts"]
    return offsets + _SKIPPED, ends


def _copy(
    data: bytearray,
    view: memoryview,
    starts: Integers,
    ends: Integers,
    is_dead: NDArray[numpy.bool_],
) -> None:
    """Append the live ranges to the data in order, and an empty frame for each dead record."""
    if _native is not None and not is_dead.any():
        before, size = len(data), int((ends - starts).sum())
        data += bytes(size)
        with memoryview(data)[before:] as target:
            _native.copy_ranges(view, starts, ends, target)
        return
    ranges = map(view.__getitem__, map(slice, starts.tolist(), ends.tolist()))
    if not is_dead.any():
        while taken := tuple(islice(ranges, _COPY_AT_ONCE)):
            data += b"".join(taken)
        return
    mixed = (_DEAD_FRAME if gone else next(ranges) for gone in is_dead.tolist())
    while some := tuple(islice(mixed, _COPY_AT_ONCE)):
        data += b"".join(some)


def _heads(view: memoryview, offsets: Integers, seqs: NDArray[numpy.uint64]) -> NDArray[Any]:
    """The fixed parts of the frames, compared with each other and with what is really there."""
    beyond = (offsets < 0) | (offsets > len(view) - FRAME_BYTES_MIN)
    _refuse(beyond, offsets, "no room for a frame")
    heads = heads_at(view, FRAME, offsets)
    sizes = heads["frame_len"].astype(numpy.int64) + LENGTH_BYTES
    _refuse(sizes < FRAME_BYTES_MIN, offsets, "frame_len is too small")
    _refuse(offsets + sizes > len(view), offsets, "frame_len runs past the end")
    _refuse(heads["type"] != FrameType.APPEND, offsets, "not a record")
    lengths = heads["data_len"] + heads["node_len"].astype(numpy.int64) + heads["tag_len"]
    wrong = lengths + FRAME_BYTES_MIN != sizes
    _refuse(wrong, offsets, "node, tag and data do not add up to frame_len")
    _refuse(heads["seq"] != seqs, offsets, "the run has a gap: another seq is here")
    return heads


def _refuse(wrong: NDArray[numpy.bool_], offsets: Integers, reason: str) -> None:
    if wrong.any():
        raise FormatError(reason, int(offsets[int(wrong.argmax())]))


def _finish(
    data: bytearray, first_seq: int, columns: _Columns, is_dead: NDArray[numpy.bool_]
) -> Entries:
    """Write lengths, flags, checksums and states into the joined bytes; return the entries."""
    if len(data) > SEGMENT_BYTES_MAX:
        raise FormatError(f"a run of {len(data)} bytes does not fit into a segment")
    entries = numpy.zeros(len(columns.sizes), INDEX_ENTRY.dtype)
    if not len(entries):
        return entries
    ends = numpy.cumsum(columns.sizes)
    starts = ends - columns.sizes
    at_each_byte(data, "<u4")[starts] = columns.sizes - LENGTH_BYTES - STATE_BYTES
    flags_at = starts + SEGMENT_FRAME.offset_of("flags")
    at_each_byte(data, "<u1")[flags_at] = numpy.where(is_dead, 0, columns.flags)
    _name_dead(data, starts, first_seq, columns.ts, is_dead)
    borders = ends - STATE_BYTES - CHECKSUM_BYTES
    hashes = hash_ranges(memoryview(data), starts + LENGTH_BYTES, borders)
    at_each_byte(data, "<u8")[borders] = hashes
    states = numpy.where(is_dead, FrameState.DELETED, FrameState.LIVE)
    at_each_byte(data, "<u1")[ends - STATE_BYTES] = states
    entries["offset"] = starts
    entries["len"] = columns.sizes
    entries["ts"] = columns.ts
    entries["flags_check"] = columns.flags
    seal_checks(entries, first_seq)
    return entries


def _name_dead(
    data: bytearray,
    starts: Integers,
    first_seq: int,
    ts: NDArray[numpy.uint64],
    is_dead: NDArray[numpy.bool_],
) -> None:
    """Write seq and ts into the empty frames of dead records."""
    rows = numpy.flatnonzero(is_dead)
    seqs = numpy.uint64(first_seq) + rows.astype(numpy.uint64)
    at_each_byte(data, "<u8")[starts[rows] + SEGMENT_FRAME.offset_of("seq")] = seqs
    at_each_byte(data, "<u8")[starts[rows] + SEGMENT_FRAME.offset_of("ts")] = ts[rows]


def compact_run(
    buffer: bytes | bytearray | memoryview, entries: Entries, first_seq: int, base: int = 0
) -> tuple[bytearray, Entries]:
    """The same records with the bytes of the dead ones gone: each becomes an empty frame.

    Live frames are copied as they are, sound or not, so that nothing is lost or made to look
    sound on the way. `base` is the offset in the file of the first byte of `buffer`.
    """
    view = memoryview(buffer)
    is_dead: NDArray[numpy.bool_] = (index_flags(entries) & IndexFlag.DELETED) != 0
    live = numpy.flatnonzero(~is_dead)
    offsets = entries["offset"][live].astype(numpy.int64) - base
    stops = offsets + entries["len"][live]
    _refuse((offsets < 0) | (stops > len(view)), offsets, "the frame is not in these bytes")
    data = bytearray()
    _copy(data, view, offsets, stops, is_dead)
    compacted = entries.copy()
    compacted["len"] = numpy.where(is_dead, SEGMENT_FRAME_BYTES_MIN, entries["len"])
    sizes = compacted["len"].astype(numpy.int64)
    ends = numpy.cumsum(sizes)
    starts = ends - sizes
    compacted["offset"] = starts
    kept = numpy.where(is_dead, int(IndexFlag.DELETED | IndexFlag.LOST), 0xFF & ~MEMORY_FLAGS)
    compacted["flags_check"] &= kept.astype(numpy.uint32)
    seal_checks(compacted, first_seq)
    _name_dead(data, starts, first_seq, entries["ts"], is_dead)
    gone_starts, gone_ends = starts[is_dead], ends[is_dead]
    at_each_byte(data, "<u4")[gone_starts] = SEGMENT_FRAME_LEN_MIN
    borders = gone_ends - STATE_BYTES - CHECKSUM_BYTES
    hashes = hash_ranges(memoryview(data), gone_starts + LENGTH_BYTES, borders)
    at_each_byte(data, "<u8")[borders] = hashes
    at_each_byte(data, "<u1")[gone_ends - STATE_BYTES] = FrameState.DELETED
    return data, compacted
