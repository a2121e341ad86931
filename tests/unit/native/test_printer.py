"""Frames printed by compiled code are, byte for byte, what the pure twin prints of them."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.appends import encode_appends
from headwater.format.frame import FRAME, FrameFlag
from headwater.format.layout import Layout
from headwater.format.segment import SEGMENT_FRAME, WalSlice, encode_run
from headwater.native import PURE_VARIABLE, missing
from headwater.wire import frames
from headwater.wire.frames import NOTHING_MORE, More, Projection, render_frames, render_objects

pytestmark = pytest.mark.skipif(
    "printer" in missing() and (not os.environ.get("CI") or bool(os.environ.get(PURE_VARIABLE))),
    reason="not compiled here, or not wanted",
)

FIRST_SEQ = 998
WORDS = st.one_of(st.text(max_size=8).map(lambda text: text.encode("utf-8", "replace")),
                  st.binary(max_size=6))  # fmt: skip
METAS = st.one_of(st.none(), st.binary(max_size=9))
ROWS = st.tuples(
    st.integers(0, 15), st.integers(0, 2**64 - 1), WORDS, WORDS, st.binary(max_size=70), METAS
)
PROJECTIONS = [
    Projection(tags, meta, data)
    for tags in (False, True)
    for meta in (False, True)
    for data in (False, True)
]
MORES = [
    NOTHING_MORE,
    More(b',"lease":1', {}),
    More(b',"lease":1', {FIRST_SEQ: b',"lease":22', FIRST_SEQ + 2: b"", 5: b"not among them"}),
]


def frames_of(rows: list[Any], *, in_segment: bool) -> tuple[memoryview, Any]:
    times, flags, nodes, tags, datas = [], [], [], [], []
    for flag, time, node, tag, data, meta in rows:
        own = flag & ~int(FrameFlag.HAS_META)
        if meta is not None:
            own |= int(FrameFlag.HAS_META)
            data += meta + len(meta).to_bytes(4, "little")
        times.append(time)
        flags.append(own)
        nodes.append(node)
        tags.append(tag)
        datas.append(data)
    made = encode_appends(7, FIRST_SEQ, times, flags, nodes, tags, datas)
    offsets = numpy.array(made.offsets, numpy.int64)
    if not in_segment:
        return memoryview(made.buffer), offsets
    data, entries = encode_run([WalSlice(made.buffer, offsets)], FIRST_SEQ)
    return memoryview(data), entries["offset"].astype(numpy.int64)


def print_frames(*arguments: Any) -> bytes | None:
    assert frames._native is not None
    found: bytes | None = frames._native.print_frames(*arguments)
    return found


def both(function: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """What the compiled code gives and what the twin gives, or which error each raises."""
    found = []
    for native in (frames._native, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "_native", native)
            try:
                found.append(function(*arguments, **options))
            except (FormatError, IndexError) as error:
                found.append(type(error))
    return found[0], found[1]


@pytest.mark.parametrize("in_segment", [False, True])
@given(
    st.lists(ROWS, min_size=1, max_size=12),
    st.sampled_from(PROJECTIONS),
    st.sampled_from(MORES),
)
def test_records_of_every_kind_are_printed_alike(
    in_segment: bool, rows: list[Any], projection: Projection, more: More
) -> None:
    buffer, offsets = frames_of(rows, in_segment=in_segment)
    options = {"in_segment": in_segment, "projection": projection, "more": more}
    compiled, pure = both(render_frames, buffer, offsets, **options)
    assert compiled == pure
    compiled, pure = both(render_objects, buffer, offsets, **options)
    assert compiled == pure


@pytest.mark.parametrize("in_segment", [False, True])
@pytest.mark.parametrize("more", MORES)
def test_a_page_is_printed_alike(in_segment: bool, more: More) -> None:
    rows = [(0, 1_700_000_000_000 + n // 3, b"", b"", b"%d" % n, None) for n in range(500)]
    buffer, offsets = frames_of(rows, in_segment=in_segment)
    compiled, pure = both(
        render_frames, buffer, offsets, in_segment=in_segment, projection=Projection(), more=more
    )
    assert compiled == pure


@given(st.lists(st.integers(0, 255), max_size=12), st.integers(0, 255))
def test_words_are_quoted_alike_whatever_bytes_they_have(word: list[int], every: int) -> None:
    rows = [(3, 5, bytes(word), bytes([every]) * (every % 5), b"1", None)]
    buffer, offsets = frames_of(rows, in_segment=True)
    compiled, pure = both(
        render_frames, buffer, offsets, in_segment=True, projection=Projection(tags=True)
    )
    assert compiled == pure


def test_every_character_there_is_is_quoted_alike() -> None:
    characters = [*range(0xD800), *range(0xE000, 0x11_0000)]
    pieces = [characters[at : at + 10_000] for at in range(0, len(characters), 10_000)]
    rows = [(1, 5, b"", "".join(map(chr, piece)).encode(), b"1", None) for piece in pieces]
    buffer, offsets = frames_of(rows, in_segment=True)
    projection = Projection(tags=True)
    compiled, pure = both(render_objects, buffer, offsets, in_segment=True, projection=projection)
    assert compiled == pure
    assert frames._printed(buffer, offsets, True, projection, NOTHING_MORE) is not None


def lies_in(buffer: bytes, layout: Layout, offset: int) -> bool:
    """All of what the frame's head tells of is in the buffer."""
    if offset + layout.size > len(buffer):
        return False
    head = layout.unpack(buffer, offset)
    parts = head["node_len"] + head["tag_len"] + head["data_len"]
    return bool(offset + layout.size + parts <= len(buffer))


@pytest.mark.parametrize("in_segment", [False, True])
def test_damaged_frames_are_never_read_beyond_their_buffer(in_segment: bool) -> None:
    layout = SEGMENT_FRAME if in_segment else FRAME
    rows = [(3, 1_700_000_000_000, b"node", b"tag", b'"data"', b"{}")] * 6
    buffer, offsets = frames_of(rows, in_segment=in_segment)
    dice = random.Random(20_261_117)
    for _ in range(3_000):
        wrong = bytearray(buffer)
        for _ in range(dice.randint(1, 4)):
            at = dice.choice(offsets.tolist()) + dice.randrange(layout.size + 20)
            wrong[at % len(wrong)] = dice.choice((0, 1, 0x7F, 0xFF, dice.randrange(256)))
        cut = bytes(wrong[: dice.randint(0, len(wrong))])  # of its own: what is behind is not ours
        places = [layout.offset_of("flags"), layout.offset_of("seq"), layout.size]
        printed = print_frames(cut, offsets, *places, True, True, True, b"", {}, None)
        if not all(lies_in(cut, layout, offset) for offset in offsets.tolist()):
            assert printed is None


@pytest.mark.parametrize("offset", [-1, -(2**62), 2**62, 1_000])
def test_an_offset_outside_of_the_buffer_is_left_to_the_twin(offset: int) -> None:
    buffer, _ = frames_of([(0, 1, b"", b"", b"1", None)], in_segment=True)
    places = [SEGMENT_FRAME.offset_of("flags"), SEGMENT_FRAME.offset_of("seq"), SEGMENT_FRAME.size]
    offsets = numpy.array([offset], numpy.int64)
    printed = print_frames(buffer, offsets, *places, True, True, True, b"", {}, None)
    assert printed is None


@pytest.mark.parametrize("meta_len", [3, 5, 2**32 - 1])
def test_meta_that_is_longer_than_its_data_is_refused_and_not_printed(meta_len: int) -> None:
    data = b"{}" + meta_len.to_bytes(4, "little")
    made = encode_appends(7, 1, [5], [int(FrameFlag.HAS_META)], [b""], [b""], [data])
    offsets = numpy.array(made.offsets, numpy.int64)
    compiled, pure = both(
        render_frames, made.buffer, offsets, in_segment=False, projection=Projection()
    )
    assert compiled is pure is FormatError
