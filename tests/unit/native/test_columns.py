"""Parts of frames are gathered by compiled code as the pure twins gather them."""

from __future__ import annotations

import os
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.segment import SEGMENT_FRAME, run
from headwater.native import PURE_VARIABLE, compiled, missing
from headwater.wire import frame_rows

pytestmark = pytest.mark.skipif(
    "columns" in missing() and (not os.environ.get("CI") or bool(os.environ.get(PURE_VARIABLE))),
    reason="not compiled here, or not wanted",
)


@given(st.binary(min_size=SEGMENT_FRAME.size, max_size=200), st.data())
def test_heads_are_gathered_alike(data: bytes, given_more: st.DataObject) -> None:
    last = len(data) - SEGMENT_FRAME.size
    offsets = numpy.array(given_more.draw(st.lists(st.integers(0, last), max_size=40)), numpy.int64)
    found = run.heads_at(data, SEGMENT_FRAME, offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_columns", None)
        assert found.tolist() == run.heads_at(data, SEGMENT_FRAME, offsets).tolist()


@pytest.mark.parametrize("offset", [-1, 11, 2**62])
def test_a_head_that_is_not_in_the_buffer_is_refused(offset: int) -> None:
    with pytest.raises(IndexError):
        run.heads_at(bytes(SEGMENT_FRAME.size + 10), SEGMENT_FRAME, numpy.array([offset]))


@given(
    st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode)),
    st.lists(st.tuples(st.integers(0), st.integers(0), st.booleans()), min_size=1, max_size=50),
    st.booleans(),
)
def test_parts_are_gathered_alike_as_bytes_and_as_text(
    data: bytes, cuts: list[tuple[int, int, bool]], all_have: bool
) -> None:
    places = sorted(sorted((a % (len(data) + 1), b % (len(data) + 1))) for a, b, _ in cuts)
    # As they lie in frames: one behind the other.
    ends = numpy.array([end for _, end in places], numpy.int64)
    starts = numpy.minimum(numpy.array([start for start, _ in places], numpy.int64), ends)
    starts[1:] = numpy.maximum(starts[1:], numpy.maximum.accumulate(ends)[:-1])
    ends = numpy.maximum(starts, ends)
    has = None if all_have else numpy.array([flag for *_, flag in cuts])
    found = frame_rows.copy_parts(memoryview(data), starts, ends, has)
    pure = frame_rows.spans(memoryview(data), starts, ends, has)
    assert found.column.to_pylist() == pure.to_pylist()
    found.column.validate(full=True)
    if found.is_ascii:
        text: Any = found.column.view(pyarrow.string())
        text.validate(full=True)
        assert text.to_pylist() == frame_rows.as_text(pure).to_pylist()
    kept = [each for each in pure.to_pylist() if each is not None]
    assert found.is_ascii == all(each.isascii() for each in kept)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 11), (11, 12)])
def test_a_part_outside_of_the_bytes_is_refused(start: int, end: int) -> None:
    starts, ends = numpy.array([start]), numpy.array([end])
    with pytest.raises(ValueError, match="no bytes"):
        frame_rows.copy_parts(memoryview(bytes(10)), starts, ends, None)


def test_more_bytes_than_borders_can_tell_of_are_left_to_the_twin() -> None:
    native = compiled("columns")
    assert native is not None
    whole = numpy.zeros(2**20, numpy.uint8)
    starts = numpy.zeros(2_100, numpy.int64)
    borders = numpy.empty(2_101, numpy.int32)
    assert native.gather_parts(whole, starts, starts + len(whole), None, borders) is None
