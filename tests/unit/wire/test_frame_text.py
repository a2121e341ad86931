"""Pages put together in columns are, byte for byte, what their records are one by one."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.partition import FrameRun
from headwater.engine.topics.reader import ReadFilter, decode_run
from headwater.format.appends import encode_appends
from headwater.format.segment import SEGMENT_FRAME, WalSlice, encode_run
from headwater.format.segment.run import heads_at
from headwater.wire.frames import SLICES_MIN, Projection, join_plain, render_frames, render_record

PROJECTION = Projection()
NOW = 1_700_000_000_000


def page(first_seq: int, times: list[int], lengths: list[int], *, in_segment: bool) -> FrameRun:
    count = len(lengths)
    datas = [b'"%c"' % (97 + n % 26) + b" " * more for n, more in enumerate(lengths)]
    none = [b""] * count
    made = encode_appends(7, first_seq, times, [0] * count, none, none, datas)
    offsets = numpy.array(made.offsets, numpy.int64)
    if not in_segment:
        return FrameRun(made.buffer, offsets, in_segment=False)
    data, entries = encode_run([WalSlice(made.buffer, offsets)], first_seq)
    return FrameRun(memoryview(data), entries["offset"].astype(numpy.int64), in_segment=True)


def one_by_one(run: FrameRun) -> bytes:
    records: list = []  # type: ignore[type-arg]
    decode_run(run, ReadFilter(), records)
    return b",".join(render_record(record, PROJECTION) for record in records)


def at_once(run: FrameRun) -> bytes:
    return render_frames(run.buffer, run.offsets, in_segment=run.in_segment, projection=PROJECTION)


def in_columns(run: FrameRun) -> bytes | None:
    heads = heads_at(run.buffer, SEGMENT_FRAME, run.offsets)
    return join_plain(run.buffer, heads, run.offsets + SEGMENT_FRAME.size)


@pytest.mark.parametrize("in_segment", [False, True])
@given(
    first_seq=st.one_of(st.integers(1, 10**15), st.sampled_from([1, 99_990, 999_936, 9_999_999])),
    lengths=st.one_of(
        st.lists(st.integers(0, 90), min_size=SLICES_MIN, max_size=SLICES_MIN + 40),
        st.integers(0, 300).map(lambda one: [one] * (SLICES_MIN + 7)),
    ),
    spread_ms=st.sampled_from([0, 1, 9_999, 10**9]),
    seed=st.randoms(use_true_random=False),
)
def test_a_page_in_columns_is_its_records_one_by_one(
    in_segment: bool, first_seq: int, lengths: list[int], spread_ms: int, seed: object
) -> None:
    times = sorted(NOW + seed.randint(0, spread_ms) for _ in lengths)  # type: ignore[attr-defined]
    run = page(first_seq, times, lengths, in_segment=in_segment)
    assert at_once(run) == one_by_one(run)
    holes = run._replace(offsets=run.offsets[[n % 5 != 2 for n in range(len(lengths))]])
    assert at_once(holes) == one_by_one(holes)


@pytest.mark.parametrize(
    "lengths",
    [[3] * 500, [n % 7 for n in range(500)], [0] * 499 + [5]],
    ids=["of one length", "of many", "the last is the longest"],
)
def test_usual_pages_are_made_in_columns(lengths: list[int]) -> None:
    run = page(9_900, [NOW + n for n in range(500)], lengths, in_segment=True)
    assert in_columns(run) is None, "seqs of four and of five digits"
    run = page(10_000, [NOW + n // 3 for n in range(500)], lengths, in_segment=True)
    assert in_columns(run) == one_by_one(run)


def test_few_or_very_unlike_records_are_printed_one_by_one() -> None:
    assert in_columns(page(1_000, [NOW] * 20, [5] * 20, in_segment=True)) is None
    unlike = page(1_000, [NOW] * 100, [*[5] * 99, 90_000], in_segment=True)
    assert in_columns(unlike) is None
    assert at_once(unlike) == one_by_one(unlike)
