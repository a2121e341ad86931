"""How the pieces of a topic are shared out among tasks: everything once, bounded, evenly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN
from headwater.spark.source.location import LostSplit, SegmentSplit, Split, portions
from headwater.store.segment import Segment


def segments(counts: list[int], record_bytes: int) -> list[Split]:
    """One behind the other, with records of one size."""
    made: list[Split] = []
    first = 1
    for count in counts:
        segment = Segment(first, count, count * record_bytes, sealed=True, created_ms=0)
        made.append(SegmentSplit(segment, first, first + count - 1))
        first += count
    return made


def rows(portion: list[Split]) -> int:
    return sum(split.last_seq - split.first_seq + 1 for split in portion)


def test_a_topic_a_little_too_long_for_a_task_is_halved_and_not_trimmed() -> None:
    result = [rows(portion) for portion in portions(segments([10_000] * 11, 250), 100_000, 2**40)]
    assert result == [55_000, 55_000]


def test_bounds_in_bytes_give_even_portions_without_a_crumb_at_the_end() -> None:
    result = [rows(each) for each in portions(segments([10_000] * 200, 248), 10**6, 64 * 2**20)]
    assert len(result) == 8
    assert max(result) - min(result) < 20


@given(
    counts=st.lists(st.integers(1, 400), min_size=1, max_size=8),
    record_bytes=st.integers(SEGMENT_FRAME_BYTES_MIN, 2_000),
    rows_max=st.integers(1, 500),
    bytes_max=st.integers(1, 200_000),
)
def test_portions_hold_every_seq_once_in_order_and_keep_their_bounds(
    counts: list[int], record_bytes: int, rows_max: int, bytes_max: int
) -> None:
    at = 1
    result = list(portions(segments(counts, record_bytes), rows_max, bytes_max))
    for portion in result:
        assert rows(portion) <= rows_max
        assert rows(portion) == 1 or rows(portion) * record_bytes <= bytes_max
        for split in portion:
            assert split.first_seq == at
            at = split.last_seq + 1
    assert at == sum(counts) + 1
    most = max(min(rows_max, bytes_max // record_bytes), 1)
    assert len(result) <= -(-sum(counts) // most) + 1


def test_a_loss_takes_no_room_and_is_never_cut() -> None:
    splits: list[Split] = [LostSplit(1, 1_000_000, "evicted")]
    behind = Segment(1_000_001, 100, 100_000, sealed=True, created_ms=0)
    splits.append(SegmentSplit(behind, 1_000_001, 1_000_100))
    result = list(portions(splits, 50, 2**40))
    assert result[0][0] == splits[0]
    assert [rows(portion[-1:]) for portion in result] == [50, 50]
