"""Many frames at once: the fixed fields of a stretch of log as numpy columns.

Only the lengths are walked one by one, since each frame tells where the next begins. The headers
are then gathered in one step, and checked as columns. Bytes that are not frames give the error
that reading them one by one gives, because then they are read one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError, InvariantError
from headwater.format.checksum import checksum64
from headwater.format.frame import (
    CHECKSUM_BYTES,
    FRAME,
    FRAME_BYTES_MIN,
    FRAME_LEN_MIN,
    LENGTH_BYTES,
    FrameFlag,
    decode_frame,
    known_types,
)

Column: TypeAlias = "NDArray[Any]"

_LENGTH_AT: Final = struct.Struct("<I").unpack_from
_UNKNOWN_FLAGS: Final = int(0xFF & ~sum(FrameFlag))


class FrameTable(msgspec.Struct, frozen=True):
    """One row per frame, in the order of the bytes. Offsets are into the buffer that was read."""

    offset: Column
    size: Column
    type: Column
    flags: Column
    topic_id: Column
    seq: Column
    ts: Column
    node_len: Column
    tag_len: Column
    data_len: Column
    first_rows: Column
    """Row at which each stretch begins, and the number of rows at the end."""

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def node_at(self) -> Column:
        return self.offset + FRAME.size

    @property
    def tag_at(self) -> Column:
        return self.node_at + self.node_len

    @property
    def data_at(self) -> Column:
        return self.tag_at + self.tag_len


def read_table(
    buffer: memoryview, stretches: Iterable[tuple[int, int]], *, verify: bool = False
) -> FrameTable:
    """The frames in these (start, end) stretches, each of which they fill exactly.

    `verify` checks every frame's checksum too; leave it out for bytes whose group hash was just
    checked. Anything wrong is a FormatError with the offset of the first frame that is.
    """
    wanted = list(stretches)
    for start, end in wanted:
        if not 0 <= start <= end <= len(buffer):
            raise FormatError(f"no stretch of {len(buffer)} bytes ends at {end}", start)
    offsets, first_rows = _walk(buffer, wanted)
    if offsets is None:
        raise _first_error(buffer, wanted, verify)
    table = _gather(buffer, offsets, first_rows)
    if not _sound(table) or (verify and not _checksums_match(buffer, table)):
        raise _first_error(buffer, wanted, verify)
    return table


def _walk(buffer: memoryview, stretches: list[tuple[int, int]]) -> tuple[Column | None, list[int]]:
    """Where each frame begins; None when the lengths do not lead to the end of each stretch."""
    offsets: list[int] = []
    append, length_at, overhead, shortest = (
        offsets.append, _LENGTH_AT, LENGTH_BYTES, FRAME_LEN_MIN
    )  # fmt: skip
    first_rows = [0]
    for at, end in stretches:
        last = end - FRAME_BYTES_MIN
        while at <= last:
            append(at)
            (length,) = length_at(buffer, at)
            if length < shortest:
                return None, first_rows
            at += overhead + length
        if at != end:
            return None, first_rows
        first_rows.append(len(offsets))
    return numpy.array(offsets, dtype=numpy.int64), first_rows


def _gather(buffer: memoryview, offsets: Column, first_rows: list[int]) -> FrameTable:
    if len(offsets):
        # A header could begin at any byte: an array of overlapping headers, one per byte, of
        # which only the wanted ones are read.
        everywhere: Column = numpy.ndarray(
            (len(buffer) - FRAME.size + 1,), dtype=FRAME.dtype, buffer=buffer, strides=(1,)
        )
        heads = everywhere[offsets]
    else:
        heads = numpy.empty(0, dtype=FRAME.dtype)
    return FrameTable(
        offset=offsets,
        size=heads["frame_len"].astype(numpy.int64) + LENGTH_BYTES,
        type=numpy.ascontiguousarray(heads["type"]),
        flags=numpy.ascontiguousarray(heads["flags"]),
        topic_id=numpy.ascontiguousarray(heads["topic_id"]),
        seq=numpy.ascontiguousarray(heads["seq"]),
        ts=numpy.ascontiguousarray(heads["ts"]),
        node_len=heads["node_len"].astype(numpy.int64),
        tag_len=heads["tag_len"].astype(numpy.int64),
        data_len=heads["data_len"].astype(numpy.int64),
        first_rows=numpy.array(first_rows, dtype=numpy.int64),
    )


def _sound(table: FrameTable) -> bool:
    parts = table.node_len + table.tag_len + table.data_len + FRAME_BYTES_MIN
    return bool(
        (parts == table.size).all()
        and known_types()[table.type].all()
        and not (table.flags & _UNKNOWN_FLAGS).any()
    )


def _checksums_match(buffer: memoryview, table: FrameTable) -> bool:
    if not len(table):
        return True
    ends = table.offset + table.size - CHECKSUM_BYTES
    everywhere: Column = numpy.ndarray(
        (len(buffer) - CHECKSUM_BYTES + 1,), dtype="<u8", buffer=buffer, strides=(1,)
    )
    starts = (table.offset + LENGTH_BYTES).tolist()
    ends_found = [
        checksum64(buffer[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)
    ]
    return bool((everywhere[ends] == numpy.array(ends_found, dtype=numpy.uint64)).all())


def _first_error(
    buffer: memoryview, stretches: list[tuple[int, int]], verify: bool
) -> FormatError | InvariantError:
    for at, end in stretches:
        try:
            while at < end:
                at += decode_frame(buffer, at, end, verify=verify).size
        except FormatError as error:
            return error
    return InvariantError("two readers of one format disagree about a frame")
