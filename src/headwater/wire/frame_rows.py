"""Frames as Arrow columns: headers read in one step, payloads cut out of the file's bytes.

No Python work per record. Where it is compiled, the wanted parts are copied together in one pass
(`native/columns.pyx`). Else a string column is built over the mapped file itself, with offsets that
point at every wanted part and at what lies between, and `take` copies the wanted ones together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow
import pyarrow.compute

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.core.units import US_PER_MS
from headwater.format.frame import FRAME, FrameFlag
from headwater.format.layout import Layout
from headwater.format.segment import SEGMENT_FRAME
from headwater.format.segment.run import at_each_byte, heads_at
from headwater.native import compiled
from headwater.wire.frames import BufferSlices

_native: Final = compiled("columns")
Integers: TypeAlias = "NDArray[numpy.int64]"
Mask: TypeAlias = "NDArray[numpy.bool_]"
Column = Any
"""An Arrow array."""

SPAN_BYTES_MAX: Final = 2**31 - 1
"""Arrow's strings have offsets of 32 bits: a batch is cut so that they reach."""
_TAG: Final = int(FrameFlag.HAS_TAG)
_NODE: Final = int(FrameFlag.HAS_NODE)
_META: Final = int(FrameFlag.HAS_META)
_FLAGS: Final = {"node": _NODE, "tag": _TAG, "meta": _META}
_META_LENGTH_BYTES: Final = 4
_TIMESTAMP: Final = pyarrow.timestamp("us", tz="UTC")


class BinaryColumn(NamedTuple):
    """A column of bytes; where they are known to be ASCII, they need no second check."""

    column: Column
    is_ascii: bool


class RecordColumns(Protocol):
    """Records as columns, whatever they were read from. A column is made when asked for."""

    def __len__(self) -> int: ...

    @property
    def seqs(self) -> Integers: ...

    @property
    def ts_us(self) -> Integers: ...

    def text(self, name: str) -> Column:
        """`node`, `tag`, `data` or `meta` as strings; bytes that are not UTF-8 are replaced."""

    def binary(self, name: str) -> Column:
        """The same as the bytes they are."""

    def kept(self, mask: Mask) -> RecordColumns:
        """Only the rows the mask says."""


@dataclass(slots=True)
class FrameRows:
    """Frames that were checked, in one buffer of at most `SPAN_BYTES_MAX`, in order of offset."""

    buffer: memoryview
    offsets: Integers
    layout: Layout
    heads: NDArray[Any]
    _made: dict[str, BinaryColumn] = field(default_factory=dict)

    @classmethod
    def of_segment(cls, buffer: memoryview, offsets: Integers) -> FrameRows:
        return cls(buffer, offsets, SEGMENT_FRAME, heads_at(buffer, SEGMENT_FRAME, offsets))

    @classmethod
    def of_log(cls, buffer: memoryview, offsets: Integers) -> FrameRows:
        return cls(buffer, offsets, FRAME, heads_at(buffer, FRAME, offsets))

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def seqs(self) -> Integers:
        found: Integers = self.heads["seq"].astype(numpy.int64)
        return found

    @property
    def ts_us(self) -> Integers:
        found: Integers = self.heads["ts"].astype(numpy.int64) * US_PER_MS
        return found

    def kept(self, mask: Mask) -> FrameRows:
        return FrameRows(self.buffer, self.offsets[mask], self.layout, self.heads[mask])

    def text(self, name: str) -> Column:
        column, is_ascii = self._column(name)
        return column.view(pyarrow.string()) if is_ascii else as_text(column)

    def binary(self, name: str) -> Column:
        return self._column(name).column

    def _column(self, name: str) -> BinaryColumn:
        if name not in self._made:
            flag = _FLAGS.get(name)
            if flag is not None and not (self.heads["flags"] & flag).any():
                self._made[name] = BinaryColumn(pyarrow.nulls(len(self), pyarrow.binary()), True)
            else:
                self._made[name] = copy_parts(self.buffer, *self._bounds(name))
        return self._made[name]

    def _bounds(self, name: str) -> tuple[Integers, Integers, Mask | None]:
        """Where a part begins and ends in each frame, and which frames have it (None: all)."""
        heads = self.heads
        flags = heads["flags"]
        node_at = self.offsets + self.layout.size
        tag_at = node_at + heads["node_len"]
        if name == "node":
            return node_at, tag_at, flags & _NODE != 0
        data_at = tag_at + heads["tag_len"]
        if name == "tag":
            return tag_at, data_at, flags & _TAG != 0
        data_end = data_at + heads["data_len"]
        has_meta: Mask = flags & _META != 0
        if not has_meta.any():
            return (data_at, data_end, None) if name == "data" else (data_end, data_end, has_meta)
        meta_end = numpy.where(has_meta, data_end - _META_LENGTH_BYTES, data_end)
        lengths = numpy.zeros(len(self), numpy.int64)
        lengths[has_meta] = at_each_byte(self.buffer, "<u4")[meta_end[has_meta]]
        meta_at = meta_end - lengths
        if (meta_at < data_at).any():
            wrong = int((meta_at < data_at).argmax())
            raise FormatError("meta is longer than the data it is part of", int(node_at[wrong]))
        return (data_at, meta_at, None) if name == "data" else (meta_at, meta_end, has_meta)


def copy_parts(
    buffer: memoryview, start: Integers, end: Integers, has: Mask | None
) -> BinaryColumn:
    """The bytes from each start to its end; null where `has` says so."""
    if _native is None:
        return BinaryColumn(spans(buffer, start, end, has), False)
    borders = numpy.empty(len(start) + 1, numpy.int32)
    flags = None if has is None or has.all() else has.view(numpy.uint8)
    given = (numpy.ascontiguousarray(each, numpy.int64) for each in (start, end))
    found = _native.gather_parts(buffer, *given, flags, borders)
    if found is None:
        return BinaryColumn(spans(buffer, start, end, has), False)
    values, is_ascii = found
    nulls = None if flags is None else pyarrow.py_buffer(numpy.packbits(flags, bitorder="little"))
    buffers = [nulls, pyarrow.py_buffer(borders), pyarrow.py_buffer(values)]
    column = pyarrow.BinaryArray.from_buffers(pyarrow.binary(), len(start), buffers)
    return BinaryColumn(column, is_ascii)


def spans(buffer: memoryview, start: Integers, end: Integers, has: Mask | None) -> Column:
    """The same, put together by Arrow."""
    count = len(start)
    if count and (has is None or has.all()):
        alike = BufferSlices(buffer, start, end - start)
        values = alike.together()
        if values is not None:
            return _of_one_length(values, count, alike.longest)
    borders = numpy.empty(2 * count + 1, numpy.int32)
    borders[0] = 0
    borders[1::2] = start
    borders[2::2] = end
    column = pyarrow.BinaryArray.from_buffers(
        pyarrow.binary(), 2 * count, [None, pyarrow.py_buffer(borders), pyarrow.py_buffer(buffer)]
    )
    indices = numpy.arange(1, 2 * count, 2, dtype=numpy.int32)
    mask = None if has is None or has.all() else ~has
    return column.take(pyarrow.array(indices, mask=mask))


def _of_one_length(values: NDArray[numpy.uint8], count: int, length: int) -> Column:
    """Half the time that `take` needs, or less; for several lengths `take` is the fastest."""
    borders = numpy.arange(0, count * length + 1, length, dtype=numpy.int32)
    buffers = [None, pyarrow.py_buffer(borders), pyarrow.py_buffer(values)]
    return pyarrow.BinaryArray.from_buffers(pyarrow.binary(), count, buffers)


def as_text(column: Column) -> Column:
    """Strings of bytes: as they are when they are UTF-8, with replacements where they are not."""
    try:
        return column.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        values = [None if each is None else each.decode("utf-8", "replace") for each in
                  column.to_pylist()]  # fmt: skip
        return pyarrow.array(values, pyarrow.string())


@lru_cache(maxsize=64)
def _repeated(text: str, count: int) -> Column:
    return pyarrow.repeat(pyarrow.scalar(text, pyarrow.string()), count)


def repeated(text: str, count: int) -> Column:
    """The same text in each row. Most batches of a topic have the same length."""
    return _repeated(text, count)


def timestamps(ts_us: Integers) -> Column:
    return pyarrow.Array.from_buffers(
        _TIMESTAMP, len(ts_us), [None, pyarrow.py_buffer(numpy.ascontiguousarray(ts_us))]
    )


def integers(values: Integers) -> Column:
    return pyarrow.array(numpy.ascontiguousarray(values, numpy.int64), pyarrow.int64())


def portions(offsets: Integers, sizes: Integers, rows_max: int, bytes_max: int) -> list[slice]:
    """Consecutive rows in portions of bounded count and span; a huge record is one alone."""
    if not len(offsets):
        return []
    ends = offsets + sizes
    if len(offsets) <= rows_max and int(ends[-1]) - int(offsets[0]) <= bytes_max:
        return [slice(0, len(offsets))]
    found: list[slice] = []
    at = 0
    while at < len(offsets):
        limit = int(offsets[at]) + bytes_max
        stop = max(int(numpy.searchsorted(ends, limit, "right")), at + 1)
        stop = min(stop, at + rows_max)
        found.append(slice(at, stop))
        at = stop
    return found
