"""Stored frames as JSON: payloads stay the bytes they are, and nothing is parsed. A projection says
which fields a reader wants; what a record does not have is left out.

Where it is compiled, all records are printed in one pass (`native/printer.pyx`). What follows here
is the twin, which reads heads as columns. Printing through Arrow was tried: it is as fast for a
thousand records and eighty times slower for one, which is what a live stream gets.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.core.records import Record
from headwater.format.frame import FRAME, FrameFlag
from headwater.format.layout import Layout
from headwater.format.segment import SEGMENT_FRAME
from headwater.format.segment.run import at_each_byte, heads_at
from headwater.native import compiled

Bytes: TypeAlias = "NDArray[numpy.uint8]"

SLICES_MIN: Final = 64
"""Fewer are copied one by one in the time in which columns are made."""
SPREAD_MAX: Final = 3
"""How many times as long as the others the longest may be, or too much is copied."""
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
Integers: TypeAlias = "NDArray[numpy.int64]"

_DIGITS: Final = 4
_TEN_THOUSAND: Final = 10**_DIGITS
_SEQ: Final = b'},{"$seq":'
_TS: Final = b',"$ts":'
_DATA: Final = b',"data":'
_CLOSE: Final = ord("}")
_COMMA_AFTER: Final = len(b"},")


class BufferSlices:
    """Slices of a buffer, by their offsets, which rise, and their lengths."""

    def __init__(self, source: bytes | memoryview, at: Integers, lengths: Integers) -> None:
        self._source = source
        self._at = at
        self._lengths = lengths
        self.longest = int(lengths.max())
        self.total = int(lengths.sum())
        alike = self.longest * len(at)
        self.are_worth_it = len(at) >= SLICES_MIN and 0 < alike <= SPREAD_MAX * self.total
        self._are_of_one_length = alike == self.total

    def copy_to(self, target: Bytes, to: Integers, before: NDArray[Any] | None = None) -> None:
        """Copy them to these offsets of a target that has room for the longest behind its end, with
        a row of `before` in front of each, and nothing else between them."""
        even = self._are_of_one_length
        form = f"V{self.longest}"
        if even and _are_even(self._at):
            _every(target, form, to)[:] = _every(self._source, form, self._at)
        else:
            self._copy_uneven(target, to, form)
        if before is not None:
            to = to - before.itemsize
            if even:
                _every(target, before.dtype, to)[:] = before
            else:
                at_each_byte(target, before.dtype)[to] = before

    def together(self) -> Bytes | None:
        """One behind the other in memory of their own, when they are of one length; None else."""
        if not self._are_of_one_length or not self.longest:
            return None
        form = f"V{self.longest}"
        if len(self._at) > 1 and _are_even(self._at):
            copied = _every(self._source, form, self._at).copy()
        else:
            copied = at_each_byte(self._source, form)[self._at]
        return copied.view(numpy.uint8)

    def _copy_uneven(self, target: Bytes, to: Integers, form: str) -> None:
        """As many bytes are copied of each as the longest has. What that is too much is overwritten
        by the slices behind it, and by what stands in front of those."""
        source, at, lengths = self._source, self._at, self._lengths
        inside = int(at.searchsorted(len(source) - self.longest, "right"))
        if inside:
            at_each_byte(target, form)[to[:inside]] = at_each_byte(source, form)[at[:inside]]
        for row in range(inside, len(at)):  # so near the end that there are no more bytes
            start, end = int(to[row]), int(to[row] + lengths[row])
            target[start:end] = numpy.frombuffer(source, numpy.uint8, end - start, int(at[row]))


def _are_even(offsets: Integers) -> bool:
    """All at one distance, as are slices of one length that lie one behind the other."""
    return bool((offsets[1:] - offsets[:-1] == offsets[1] - offsets[0]).all())


def _every(buffer: Any, form: Any, offsets: Integers) -> NDArray[Any]:
    """What is at offsets that are even. Copied three times as fast as from anywhere."""
    step = int(offsets[1]) - int(offsets[0])
    return numpy.ndarray((len(offsets),), form, buffer, int(offsets[0]), (step,))


class Projection(msgspec.Struct, frozen=True):
    tags: bool = False
    meta: bool = True
    data: bool = True


DEFAULT_PROJECTION: Final = Projection()


def render_record(record: Record, projection: Projection = DEFAULT_PROJECTION) -> bytes:
    """One record as a JSON object."""
    parts = [b'{"$seq":%d,"$ts":%d' % (record.seq, record.ts)]
    if record.node is not None:
        parts += (b',"$node":', _text(record.node))
    if projection.tags and record.tag is not None:
        parts += (b',"$tag":', _text(record.tag))
    if projection.data:
        parts += (b',"data":', record.data_json)
    if projection.meta and record.meta_json is not None:
        parts += (b',"meta":', record.meta_json)
    parts.append(b"}")
    return b"".join(parts)


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


def join_plain(
    buffer: bytes | memoryview, heads: NDArray[Any], data_at: Integers, more: bytes = b""
) -> bytes | None:
    """Records that hold data and nothing else, which is most of them, put together in columns:
    those with these heads and their data at these offsets, as objects with commas between. Nothing
    is done for each record: where numbers have as many digits, what stands before each is of one
    width, so it is made once, the digits that differ are put in from a table, and all of it is laid
    between the data.

    `heads` are in the order of their seqs and `data_at` rises. `more` is added to each of them, as
    fields with a comma before. None when another way is better.
    """
    lengths = heads["data_len"].astype(numpy.int64)
    data = BufferSlices(buffer, data_at, lengths)
    if not data.are_worth_it:
        return None
    seqs, times = heads["seq"].astype(numpy.int64), heads["ts"].astype(numpy.int64)
    seq, ts = _Range(int(seqs[0]), int(seqs[-1])), _Range(int(times.min()), int(times.max()))
    if not seq.is_even or not ts.is_even:
        return None
    seq_end = len(_SEQ) + len(str(seq.low))
    ts_end = seq_end + len(_TS) + len(str(ts.low))
    before = b"".join((_SEQ, b"%d" % seq.low, _TS, b"%d" % ts.low, more, _DATA))
    count, width = len(heads), len(before)
    rows = numpy.frombuffer(bytearray(before * count), f"V{width}")
    _print(rows, seq_end, seq, seqs)
    _print(rows, ts_end, ts, times)
    data_to = numpy.arange(width, (count + 1) * width, width)
    data_to[1:] += lengths[:-1].cumsum()
    end = count * width + data.total
    text = numpy.empty(end + data.longest, numpy.uint8)
    data.copy_to(text, data_to, rows)
    text[end] = _CLOSE
    return text[_COMMA_AFTER : end + 1].tobytes()


class _Range(NamedTuple):
    low: int
    high: int

    @property
    def is_even(self) -> bool:
        """Every number in it has as many digits."""
        return self.low >= 0 and len(str(self.low)) == len(str(self.high))


@cache
def _numbers() -> NDArray[numpy.void]:
    """The text of every number that has so many digits."""
    text = b"".join(b"%04d" % number for number in range(_TEN_THOUSAND))
    return numpy.frombuffer(text, f"V{_DIGITS}")


def _print(rows: NDArray[Any], end: int, known: _Range, values: Integers) -> None:
    """Write numbers into the rows, so that they end there. Every row has the lowest of them
    already: only the digits that differ are written, and there are few."""
    low, high = known
    while low != high:
        digits = min(_DIGITS, len(str(low)))
        rest = values // _TEN_THOUSAND
        digits_of = _numbers()[values - rest * _TEN_THOUSAND]
        last = numpy.ndarray((len(rows),), f"V{digits}", digits_of, _DIGITS - digits, (_DIGITS,))
        at = end - digits
        numpy.ndarray((len(rows),), last.dtype, rows, at, (rows.itemsize,))[:] = last
        values, low, high, end = rest, low // _TEN_THOUSAND, high // _TEN_THOUSAND, at
