"""Columns cut out of a buffer: the bytes of every span, however long it is and wherever it lies."""

from __future__ import annotations

from itertools import accumulate

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.frame_rows import spans

BUFFER = memoryview(bytes(range(256)) * 40)


def cut(gaps: list[int], lengths: list[int], has: list[bool] | None) -> None:
    """Spans that rise, each some bytes behind the one before, must come out as they lie."""
    ends = list(accumulate(gap + length for gap, length in zip(gaps, lengths, strict=True)))
    starts = [end - length for end, length in zip(ends, lengths, strict=True)]
    mask = None if has is None else numpy.array(has, numpy.bool_)
    found = spans(BUFFER, numpy.array(starts, numpy.int64), numpy.array(ends, numpy.int64), mask)
    found.validate(full=True)
    asked = has or [True] * len(starts)
    assert found.to_pylist() == [
        bytes(BUFFER[start:end]) if wanted else None
        for start, end, wanted in zip(starts, ends, asked, strict=True)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 100])
@pytest.mark.parametrize("length", [0, 1, 5, 60])
@pytest.mark.parametrize("uneven", [False, True])
def test_spans_of_one_length_are_cut_out_whole(count: int, length: int, uneven: bool) -> None:
    cut([7 + (uneven and at % 3) for at in range(count)], [length] * count, None)
    cut([7] * count, [length] * count, [at % 2 == 0 for at in range(count)])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 90), st.booleans()), max_size=60))
def test_spans_of_any_length_are_cut_out_whole(rows: list[tuple[int, int, bool]]) -> None:
    gaps, lengths = [gap for gap, _, _ in rows], [length for _, length, _ in rows]
    cut(gaps, lengths, None)
    cut(gaps, lengths, [has for _, _, has in rows])


def test_a_span_that_ends_with_the_buffer_is_cut_out_whole() -> None:
    cut([len(BUFFER) - 30, 0], [10, 20], None)
    cut([len(BUFFER) - 20, 0], [10, 10], None)
