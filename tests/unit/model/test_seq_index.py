"""The seq index at the size it is made for: memory, growth, dropping, views."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy
import pytest

from headwater.core.errors import InvariantError
from headwater.format.segment import INDEX_ENTRY
from headwater.model.index import SeqIndex
from headwater.model.slots import as_run

RECORDS = 300_000
BYTES_A_RECORD_MAX = 24


@pytest.mark.claims(219, 220)
def test_a_record_costs_at_most_24_bytes_at_any_length() -> None:
    index = SeqIndex()
    for _ in range(300):
        index.append_many([50] * 1_000, 0, [0] * 1_000)
        assert index.memory_bytes <= BYTES_A_RECORD_MAX * len(index) + 4_096
    for _ in range(1_000):
        index.append_one(50, 0, 0)
    assert index.memory_bytes <= BYTES_A_RECORD_MAX * len(index) + 4_096


@pytest.mark.claims(220)
def test_a_topic_at_its_cap_does_not_grow_however_much_is_written() -> None:
    index = SeqIndex()
    for step in range(400):
        index.append_many([50] * 1_000, 0, [0] * 1_000)
        index.drop_before(max(index.next_seq - 20_000, index.base_seq))
        assert index.memory_bytes <= BYTES_A_RECORD_MAX * 21_000 + 4_096, step
    assert len(index) == 20_000


def test_dropping_most_of_an_index_gives_the_memory_back() -> None:
    index = SeqIndex()
    index.append_many([50] * RECORDS, 0, [0] * RECORDS)
    assert index.drop_before(RECORDS - 9) == (RECORDS - 10, (RECORDS - 10) * 12)
    assert index.memory_bytes < 10_000
    assert (index.live_count, index.live_bytes) == (10, 120)


def test_an_empty_index_costs_next_to_nothing() -> None:
    index = SeqIndex()
    assert sys.getsizeof(index) + index.memory_bytes < 250


def test_somebody_who_still_looks_at_the_entries_does_not_stop_the_writer() -> None:
    index = SeqIndex()
    index.append_one(50, 1, 0)
    looking = index.peek(1, 2)
    index.append_one(60, 2, 0)
    still_looking = index.peek(1, 3)
    index.drop_before(2)
    assert looking["len"].tolist() == [50]
    assert still_looking["len"].tolist() == [50, 60]
    assert index.entries(2, 2)["len"].tolist() == [60]


def test_entries_given_out_are_copies() -> None:
    index = SeqIndex()
    index.append_many([50, 60], 1, [0, 0])
    given = index.entries(1, 2)
    given["len"] = 0
    assert index.take(numpy.array([2]))["len"].tolist() == [60]


def test_check_values_of_a_file_are_not_kept_in_memory() -> None:
    index = SeqIndex()
    entries = numpy.zeros(2, INDEX_ENTRY.dtype)
    entries["len"] = 50
    entries["flags_check"] = [0xABCDEF01, 0x12345680]
    index.append_entries(entries)
    assert index.entries(1, 2)["flags_check"].tolist() == [1, 0x80]
    assert (index.live_count, index.is_live(1), index.is_live(2), index.is_live(3)) == (
        1,
        True,
        False,
        False,
    )


def test_offsets_of_slots_dropped_meanwhile_are_skipped() -> None:
    index = SeqIndex()
    index.append_many([50] * 5, 1, [0x10] * 5)
    index.drop_before(3)
    index.set_offsets(1, numpy.array([0, 50, 100, 150]))
    assert index.entries(3, 5)["offset"].tolist() == [100, 150, 0]
    assert index.entries(3, 5)["flags_check"].tolist() == [0, 0, 0x10]
    index.set_offsets(1, numpy.array([7, 7]))
    assert index.entries(3, 5)["offset"].tolist() == [100, 150, 0]


@pytest.mark.claims(236)
def test_sums_of_a_long_prefix_are_taken_from_whole_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = SeqIndex()
    index.append_many([50] * RECORDS, 0, [0] * RECORDS)
    looked: list[int] = []
    peek = SeqIndex.peek

    def counting(self: SeqIndex, first_seq: int, end_seq: int) -> object:
        looked.append(end_seq - first_seq)
        return peek(self, first_seq, end_seq)

    monkeypatch.setattr(SeqIndex, "peek", counting)
    index.drop_before(RECORDS - 100)
    assert sum(looked) <= 3 * 4_096


def test_slots_that_do_not_exist_cannot_be_dropped() -> None:
    index = SeqIndex()
    index.append_one(50, 0, 0)
    with pytest.raises(InvariantError):
        index.drop_before(3)
    assert index.drop_before(1) == (0, 0)


@pytest.mark.parametrize(
    "seqs",
    [
        range(1, 101),
        range(4_090, 4_110),
        range(8_950, 9_010),
        [*range(50, 60), *range(61, 70)],
        [*range(70, 50, -1)],
        [50, 51, 3_000, *range(53, 71)],
        [*range(5_000, 5_100)],
    ],
    ids=[
        "in front",
        "over a border",
        "over the end",
        "a hole",
        "backwards",
        "a stranger",
        "dead inside",
    ],
)
def test_deleting_neighbours_together_is_the_same_as_one_by_one(seqs: Sequence[int]) -> None:
    together, one_by_one = SeqIndex(), SeqIndex()
    for index in (together, one_by_one):
        index.append_many(range(50, 9_050), 7, [1] * 9_000)
        index.mark_deleted(numpy.array([5_050]))
    newly = together.mark_deleted(list(seqs)).tolist()
    each = [seq for seq in seqs if len(one_by_one.mark_deleted(numpy.array([seq])))]
    assert newly == each
    assert together.entries(1, 9_000).tolist() == one_by_one.entries(1, 9_000).tolist()
    for first, end in ((1, 9_001), (4_095, 4_100), (4_096, 8_192), (60, 8_999)):
        assert together.live_between(first, end) == one_by_one.live_between(first, end)
    assert together.drop_before(4_200) == one_by_one.drop_before(4_200)
    assert together.live_between(4_300, 8_192) == one_by_one.live_between(4_300, 8_192)


@pytest.mark.parametrize("seqs", [[], [5, 7], [5, 4], [5, 5], [5, 9, 7], [1, 2**62]])
def test_seqs_that_are_not_neighbours_in_order_are_no_run(seqs: list[int]) -> None:
    assert as_run(seqs) is None
    assert as_run([5]) == range(5, 6)
    assert as_run((5, 6, 7)) == range(5, 8)


def test_whether_all_of_a_stretch_is_alive_is_known_after_each_kind_of_change() -> None:
    index = SeqIndex()
    index.append_many([50] * 40, 1, [0] * 40)
    assert index.all_live(1, 41)
    assert not index.all_live(1, 42)
    assert not index.all_live(0, 5)
    index.mark_deleted([*range(10, 20)])
    assert index.all_live(20, 41)
    assert not index.all_live(19, 41)
    index.mark_deleted(numpy.array([30]))
    assert [index.all_live(20, 30), index.all_live(30, 41), index.all_live(31, 41)] == [1, 0, 1]
    index.append_dead(1, 1)
    assert not index.all_live(31, 42)
    index.append_one(50, 1, 0)
    assert index.all_live(42, 43)
    index.drop_before(35)
    assert index.all_live(35, 41)
    assert not index.all_live(34, 41)
