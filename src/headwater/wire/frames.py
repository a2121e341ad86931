"""Stored frames as JSON: payloads stay the bytes they are, and nothing is parsed.

Where it is compiled, all records are printed in one pass (`native/printer.pyx`). What follows here
is the twin, which reads heads as columns. Printing through Arrow was tried: it is as fast for a
thousand records and eighty times slower for one, which is what a live stream gets.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.format.frame import FRAME, FrameFlag
from headwater.format.layout import Layout
from headwater.format.segment import SEGMENT_FRAME
from headwater.format.segment.run import heads_at
from headwater.native import compiled
from headwater.wire.buffer_slices import SLICES_MIN
from headwater.wire.frame_text import join_plain
from headwater.wire.render import Projection

Offsets: TypeAlias = "NDArray[numpy.int64]"

_native: Final = compiled("printer")
_LAYOUTS: Final[dict[bool, Layout]] = {True: SEGMENT_FRAME, False: FRAME}
# The same fields stand in both frames, at other offsets: flags, (topic,) seq, ts, lengths.
_FORMS: Final = {
    True: (struct.Struct("<BQQHHI"), SEGMENT_FRAME.offset_of("flags")),
    False: (struct.Struct("<B8xQQHHI"), FRAME.offset_of("flags")),
}
_OFFSETS: Final = {
    in_segment: (layout.offset_of("flags"), layout.offset_of("seq"), layout.size)
    for in_segment, layout in _LAYOUTS.items()
}
_TAG: Final = int(FrameFlag.HAS_TAG)
_NODE: Final = int(FrameFlag.HAS_NODE)
_META: Final = int(FrameFlag.HAS_META)
_META_LENGTH_BYTES: Final = 4
_FIELDS: Final = ("flags", "seq", "ts", "node_len", "tag_len", "data_len")
_WINDOW_BYTES_A_FRAME: Final = 4_096
_text = msgspec.json.Encoder().encode


class More(NamedTuple):
    """Fields that are added to records: as JSON, each with a comma before."""

    common: bytes
    special: dict[int, bytes]
    """In place of the common fields, for some seqs."""

    def of(self, seqs: list[int]) -> list[bytes]:
        if not self.special:
            return [self.common] * len(seqs)
        return [self.special.get(seq, self.common) for seq in seqs]


NOTHING_MORE: Final = More(b"", {})


def render_frames(
    buffer: bytes | memoryview,
    offsets: Offsets,
    *,
    in_segment: bool,
    projection: Projection,
    more: More = NOTHING_MORE,
) -> bytes:
    """The frames at these offsets, checked before, as JSON objects with commas between."""
    printed = _printed(buffer, offsets, in_segment, projection, more)
    if printed is not None:
        return printed
    if projection.data and len(offsets) >= SLICES_MIN and not more.special:
        layout = _LAYOUTS[in_segment]
        heads = heads_at(buffer, layout, offsets)
        if not (heads["flags"] & _shown_flags(projection)).any():
            data_at = offsets + layout.size + heads["node_len"] + heads["tag_len"]
            joined = join_plain(buffer, heads, data_at, more.common)
            if joined is not None:
                return joined
    return b",".join(
        _render_objects(buffer, offsets, in_segment=in_segment, projection=projection, more=more)
    )


def render_objects(
    buffer: bytes | memoryview,
    offsets: Offsets,
    *,
    in_segment: bool,
    projection: Projection,
    more: More = NOTHING_MORE,
) -> list[bytes]:
    """The same, each by itself."""
    ends = numpy.empty(len(offsets), numpy.int64)
    printed = _printed(buffer, offsets, in_segment, projection, more, ends)
    if printed is not None:
        borders = ends.tolist()
        starts = [0, *[end + 1 for end in borders]]
        return [printed[start:end] for start, end in zip(starts, borders, strict=False)]
    return _render_objects(buffer, offsets, in_segment=in_segment, projection=projection, more=more)


def _printed(
    buffer: bytes | memoryview,
    offsets: Offsets,
    in_segment: bool,
    projection: Projection,
    more: More,
    ends: Offsets | None = None,
) -> bytes | None:
    """What the compiled code prints, and where each object ends; None where it leaves it to us."""
    if _native is None:
        return None
    printed: bytes | None = _native.print_frames(
        buffer,
        numpy.ascontiguousarray(offsets, numpy.int64),
        *_OFFSETS[in_segment],
        projection.tags,
        projection.meta,
        projection.data,
        more.common,
        more.special,
        ends,
    )
    return printed


def _render_objects(
    buffer: bytes | memoryview,
    offsets: Offsets,
    *,
    in_segment: bool,
    projection: Projection,
    more: More,
) -> list[bytes]:
    if not len(offsets):
        return []
    layout = _LAYOUTS[in_segment]
    whole, offsets = _window(buffer, offsets, layout)
    if len(offsets) < SLICES_MIN and projection.data:
        few = _render_few(whole, offsets.tolist(), in_segment, _shown_flags(projection), more)
        if few is not None:
            return few
    heads = heads_at(whole, layout, offsets)
    node_at = offsets + layout.size
    if (heads["flags"] & _shown_flags(projection)).any() or not projection.data:
        return _render_all(whole, heads, node_at, projection, more)
    data_at = node_at + heads["node_len"] + heads["tag_len"]
    columns = heads["seq"], heads["ts"], data_at, data_at + heads["data_len"]
    rows = [each.tolist() for each in columns]
    if more is not NOTHING_MORE:
        return [
            b'{"$seq":%d,"$ts":%d%b,"data":%b}' % (seq, ts, extra, whole[start:end])  # type: ignore[str-format]
            for seq, ts, start, end, extra in zip(*rows, more.of(rows[0]), strict=True)
        ]
    return [
        b'{"$seq":%d,"$ts":%d,"data":%b}' % (seq, ts, whole[start:end])  # type: ignore[str-format]
        for seq, ts, start, end in zip(*rows, strict=True)
    ]


def _render_few(
    whole: bytes | memoryview, offsets: list[int], in_segment: bool, shown: int, more: More
) -> list[bytes] | None:
    """Heads read one by one, while columns cost more to begin with than they save. None when there
    is a record with more fields to show."""
    form, form_at = _FORMS[in_segment]
    unpack, size = form.unpack_from, _LAYOUTS[in_segment].size
    special = more.special
    objects = []
    for offset in offsets:
        flags, seq, ts, node_len, tag_len, data_len = unpack(whole, offset + form_at)
        if flags & shown:
            return None
        at = offset + size + node_len + tag_len
        extra = special.get(seq, more.common) if special else more.common
        row = seq, ts, extra, whole[at : at + data_len]
        objects.append(b'{"$seq":%d,"$ts":%d%b,"data":%b}' % row)  # type: ignore[str-format]
    return objects


def _shown_flags(projection: Projection) -> int:
    """Flags of records with a node, a tag or meta to show."""
    return _NODE | _META | (_TAG if projection.tags else 0)


def _window(
    buffer: bytes | memoryview, offsets: Offsets, layout: Layout
) -> tuple[bytes | memoryview, Offsets]:
    """The frames as bytes of their own, where they lie close enough together.

    Slices of bytes cost half of what slices of a view do.
    """
    low, last = int(offsets[0]), int(offsets[-1])
    if isinstance(buffer, bytes) or last - low > _WINDOW_BYTES_A_FRAME * len(offsets):
        return buffer, offsets
    head = layout.unpack(buffer, last)
    size = layout.size + head["node_len"] + head["tag_len"] + head["data_len"]
    return bytes(buffer[low : last + size]), offsets - low


def _render_all(
    whole: bytes | memoryview,
    heads: NDArray[Any],
    node_at: Offsets,
    projection: Projection,
    more: More,
) -> list[bytes]:
    """Records of which some have a node, a tag or meta to show."""
    words: dict[bytes, bytes] = {}
    objects = []
    columns = [heads[name].tolist() for name in _FIELDS]
    extras = more.of(heads["seq"].tolist())
    for at, flags, seq, ts, node_len, tag_len, data_len, extra in zip(
        node_at.tolist(), *columns, extras, strict=True
    ):
        tag_at = at + node_len
        data_at = tag_at + tag_len
        data_end = data_at + data_len
        parts: list[bytes | memoryview] = [b'{"$seq":%d,"$ts":%d%b' % (seq, ts, extra)]
        if flags & _NODE:
            parts += (b',"$node":', _word(words, bytes(whole[at:tag_at])))
        if flags & _TAG and projection.tags:
            parts += (b',"$tag":', _word(words, bytes(whole[tag_at:data_at])))
        meta_end = data_end
        if flags & _META:
            meta_end -= _META_LENGTH_BYTES
            data_end = meta_end - int.from_bytes(whole[meta_end:data_end], "little")
            if data_end < data_at:
                raise FormatError("meta is longer than the data it is part of", at)
        if projection.data:
            parts += (b',"data":', whole[data_at:data_end])
        if flags & _META and projection.meta:
            parts += (b',"meta":', whole[data_end:meta_end])
        parts.append(b"}")
        objects.append(b"".join(parts))
    return objects


def _word(words: dict[bytes, bytes], word: bytes) -> bytes:
    """A node or tag as JSON. There are few of them, each many times."""
    text = words.get(word)
    if text is None:
        text = words[word] = _text(word.decode("utf-8", "replace"))
    return text
