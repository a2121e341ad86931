"""Many stored frames as JSON at once: no Python work per record.

Payloads are cut out of the stored bytes as Arrow strings, the numbers are printed by Arrow, and one
join puts the objects together. The answer's bytes are the buffer of that join.
"""

from __future__ import annotations

from typing import Any, Final

import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from headwater.format.frame import FRAME, FrameFlag
from headwater.format.layout import Layout
from headwater.format.segment import SEGMENT_FRAME
from headwater.wire.render import Projection

Column = NDArray[Any]

_LAYOUTS: Final[dict[bool, Layout]] = {True: SEGMENT_FRAME, False: FRAME}
_TAG: Final = int(FrameFlag.HAS_TAG)
_NODE: Final = int(FrameFlag.HAS_NODE)
_META: Final = int(FrameFlag.HAS_META)
_LENGTH_BYTES: Final = 4
_UNSAFE: Final = r'["\\\x00-\x1f]'
_join = pyarrow.compute.binary_join_element_wise


def render_frames(
    buffer: bytes | memoryview, offsets: Column, *, in_segment: bool, projection: Projection
) -> memoryview | None:
    """The frames at these offsets as JSON objects with commas between, checked before.

    None when a node or tag needs escaping: such records are printed one by one.
    """
    if not len(offsets):
        return memoryview(b"")
    layout = _LAYOUTS[in_segment]
    heads = _heads(buffer, layout, offsets)
    flags = heads["flags"]
    node_at = offsets + layout.size
    tag_at = node_at + heads["node_len"]
    data_at = tag_at + heads["tag_len"]
    data_end = data_at + heads["data_len"]
    parts: list[Any] = ['{"$seq":', _text(heads["seq"]), ',"$ts":', _text(heads["ts"])]
    for name, flag, start, end in (
        ('"$node"', _NODE, node_at, tag_at),
        ('"$tag"', _TAG if projection.tags else 0, tag_at, data_at),
    ):
        has = flags & flag != 0
        if has.any():
            words = _spans(buffer, start, end)
            if _needs_escaping(words):
                return None
            parts += [_where(has, f',{name}:"'), words, _where(has, '"')]
    meta: list[Any] = []
    has_meta = flags & _META != 0
    if has_meta.any():
        meta_end = numpy.where(has_meta, data_end - _LENGTH_BYTES, data_end)
        lengths = numpy.zeros(len(offsets), numpy.int64)
        lengths[has_meta] = _u32_at(buffer, meta_end[has_meta])
        data_end = meta_end - lengths
        if projection.meta:
            meta = [_where(has_meta, ',"meta":'), _spans(buffer, data_end, meta_end)]
    if projection.data:
        parts += [',"data":', _spans(buffer, data_at, data_end)]
    joined = _join(*parts, *meta, "},", "")
    ends = numpy.frombuffer(joined.buffers()[1], numpy.int32)
    return memoryview(joined.buffers()[2])[: int(ends[len(offsets)]) - 1]


def _heads(buffer: bytes | memoryview, layout: Layout, offsets: Column) -> Column:
    everywhere = numpy.ndarray((len(buffer) - layout.size + 1,), f"V{layout.size}", buffer, 0, (1,))
    found: Column = everywhere[offsets].view(layout.dtype)
    return found


def _u32_at(buffer: bytes | memoryview, offsets: Column) -> Column:
    found: Column = numpy.ndarray((len(buffer) - 3,), "V4", buffer, 0, (1,))[offsets].view("<u4")
    return found


def _text(numbers: Column) -> Any:
    values = pyarrow.array(numbers.astype(numpy.int64))
    return pyarrow.compute.cast(values, pyarrow.string())


def _spans(buffer: bytes | memoryview, start: Column, end: Column) -> Any:
    """The bytes from each start to its end, as strings over the buffer."""
    borders = numpy.empty(2 * len(start) + 1, numpy.int32)
    borders[0] = 0
    borders[1::2] = start
    borders[2::2] = end
    pieces = pyarrow.StringArray.from_buffers(
        2 * len(start), pyarrow.py_buffer(borders), pyarrow.py_buffer(buffer)
    )
    return pieces.take(pyarrow.array(numpy.arange(1, 2 * len(start), 2)))


def _where(has: Column, text: str) -> Any:
    if has.all():
        return text
    return pyarrow.compute.if_else(pyarrow.array(has), text, "")


def _needs_escaping(words: Any) -> bool:
    found = pyarrow.compute.match_substring_regex(words, _UNSAFE)
    return bool(pyarrow.compute.any(found).as_py())
