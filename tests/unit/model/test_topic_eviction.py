"""Losing records to caps and age: floors, reasons, tombstones."""

from __future__ import annotations

import numpy
import pytest

from headwater.core.results import Tombstone
from headwater.model.loss import Loss
from headwater.model.match import parse_match
from headwater.model.selection import select, tombstone_for
from headwater.model.topic import TopicLog, first_kept_by_cap
from tests.rig.invariants import check_topic
from tests.unit.model.topics import seqs_from, topic, write


def tombstone(log: TopicLog, from_seq: int) -> Tombstone:
    found = tombstone_for(log, from_seq)
    assert found is not None
    return found


@pytest.mark.claims(269, 211)
def test_a_cap_keeps_exactly_that_many_records() -> None:
    log = topic(cap_records=3)
    write(log, 10)
    eviction = log.evict(0)
    assert eviction == (1, 8, 8, Loss.CAP, 7, 70)
    assert seqs_from(log, 7) == [8, 9, 10]
    assert log.evict(0) is None


def test_a_cap_of_bytes_evicts_until_what_is_left_fits() -> None:
    log = topic(cap_bytes=35)
    write(log, 10, payload=10)
    eviction = log.evict(0)
    assert eviction is not None
    assert (log.count, log.bytes) == (3, 30)


@pytest.mark.parametrize("over", [1, 3, 63, 64, 65, 68, 69, 200, 1_500])
def test_what_a_cap_takes_is_counted_record_by_record_however_much_it_is(over: int) -> None:
    """Over deleted ones too, and whether records or bytes are too many."""
    for by_bytes in (False, True):
        log = topic()
        for number in range(2_000):
            write(log, payload=1 + number * 7 % 90, tag=b"gone" if number % 5 == 0 else b"kept")
        log.delete(matcher=parse_match("gone"), upto_seq=2_000)
        alive = [number + 1 for number in range(2_000) if number % 5]
        sizes = [(seq - 1) * 7 % 90 + 1 for seq in alive]
        assert (log.count, log.bytes) == (len(alive), sum(sizes))
        over_bytes = sum(sizes[:over]) - 1
        wanted = (0, over_bytes) if by_bytes else (over, 0)
        kept = first_kept_by_cap(log.index, *wanted)
        left = [seq for seq in alive if seq >= kept]
        assert len(left) == len(alive) - over


def test_one_record_larger_than_the_cap_leaves_an_empty_topic() -> None:
    log = topic(cap_bytes=35)
    write(log, 1, payload=100)
    log.evict(0)
    assert (log.count, log.earliest_seq, log.evict_floor) == (0, 2, 2)
    assert select(log, 0).tombstone == Tombstone(1, 1, "cap", 1, 2, 1)


@pytest.mark.claims(270)
@pytest.mark.parametrize("count", [1, 4, 5, 10_000])
def test_a_record_expires_when_it_is_older_than_its_time_not_before(count: int) -> None:
    log = topic(ttl_ms=50)
    write(log, count, ts=100)
    write(log, 1, ts=101)
    assert log.evict(150) is None
    eviction = log.evict(151)
    assert eviction is not None
    assert (eviction.records, eviction.reason) == (count, Loss.TTL)
    assert log.earliest_seq == count + 1


def test_only_a_prefix_expires_even_when_times_went_back() -> None:
    log = topic(ttl_ms=50)
    write(log, 1, ts=200)
    write(log, 1, ts=100)
    assert log.evict(200) is None
    assert seqs_from(log) == [1, 2]
    log.evict(251)
    assert log.count == 0


@pytest.mark.claims(238)
def test_reading_with_the_time_lets_expired_records_go_first() -> None:
    log = topic(ttl_ms=50)
    write(log, 3, ts=0)
    write(log, 2, ts=100)
    selection = select(log, 0, now_ms=60)
    assert selection.seqs.tolist() == [4, 5]
    assert selection.tombstone == Tombstone(1, 3, "ttl", 3, 4, 5)
    assert selection.eviction is not None
    assert selection.eviction.evict_floor == 4


@pytest.mark.claims(271)
def test_popping_deleted_slots_moves_the_earliest_seq_but_not_the_floor() -> None:
    log = topic(cap_records=3)
    write(log, 6)
    log.delete_seqs(numpy.array([2, 3]))
    log.evict(0)
    assert (log.evict_floor, log.earliest_seq) == (2, 4)
    assert tombstone_for(log, 0) is not None
    assert tombstone_for(log, 1) is None


@pytest.mark.claims(226, 227, 228)
def test_a_tombstone_is_given_exactly_below_the_evict_floor() -> None:
    log = topic(cap_records=5)
    write(log, 10)
    log.evict(0)
    log.delete(before_seq=8)
    assert (log.evict_floor, log.earliest_seq) == (6, 8)
    assert tombstone(log, 4) == Tombstone(5, 7, "cap", 1, 8, 10)
    assert tombstone_for(log, 5) is None
    assert tombstone_for(log, 6) is None


def test_the_reason_is_that_of_what_was_lost_above_the_cursor() -> None:
    log = topic(ttl_ms=50)
    write(log, 4, ts=0)
    write(log, 6, ts=100)
    log.evict(60)
    log.settings = topic(cap_records=3).settings
    log.evict(60)
    assert log.evict_floor == 8
    assert tombstone(log, 3).reason == "mixed"
    log_of_cap_only = tombstone(log, 4)
    assert (log_of_cap_only.reason, log_of_cap_only.gap_from) == ("cap", 5)
    assert log.losses == Loss.CAP | Loss.TTL


def test_one_eviction_may_have_both_reasons() -> None:
    log = topic(ttl_ms=50, cap_records=2)
    write(log, 2, ts=0)
    write(log, 4, ts=100)
    eviction = log.evict(60)
    assert eviction == (1, 5, 5, Loss.CAP | Loss.TTL, 4, 40)
    assert tombstone(log, 0).reason == "mixed"
    assert tombstone(log, 1).reason == "mixed"
    assert tombstone(log, 2).reason == "cap"


@pytest.mark.claims(224)
def test_a_cursor_beyond_the_head_learns_that_the_topic_was_made_again() -> None:
    log = topic()
    write(log, 3)
    selection = select(log, 50)
    assert selection.tombstone == Tombstone(1, 0, "recreated", 0, 1, 3)
    assert selection.seqs.tolist() == [1, 2, 3]
    assert selection.next_from_seq == 3
    assert select(log, 3).tombstone is None


def test_a_cursor_among_writes_in_flight_is_not_beyond_the_head() -> None:
    log = topic()
    write(log, 3)
    log.assign(4)
    selection = select(log, 5)
    assert (selection.tombstone, selection.next_from_seq, selection.caught_up) == (None, 5, True)


@pytest.mark.claims(203, 207, 209)
def test_a_tail_lost_in_a_crash_reads_as_a_gap_that_is_told() -> None:
    log = topic()
    write(log, 3)
    log.load_gap(8, ts=5, lost=True)
    write(log, 2)
    first = select(log, 0)
    assert (first.seqs.tolist(), first.caught_up, first.tombstone) == ([1, 2, 3], False, None)
    second = select(log, first.next_from_seq)
    assert second.tombstone == Tombstone(4, 7, "lost_tail", 4, 1, 9)
    assert (second.seqs.tolist(), second.caught_up) == ([8, 9], True)


def test_a_lost_tail_moves_the_evict_floor_once_nothing_lives_before_it() -> None:
    log = topic()
    write(log, 3)
    log.load_gap(8, ts=5, lost=True)
    write(log, 2)
    log.delete(before_seq=4)
    assert (log.evict_floor, log.earliest_seq) == (8, 8)
    assert tombstone(log, 2) == Tombstone(3, 7, "lost_tail", 5, 8, 9)
    assert tombstone_for(log, 7) is None


def test_nothing_but_a_lost_tail_still_tells_every_reader() -> None:
    log = topic()
    log.load_gap(6, ts=0, lost=True)
    assert (log.count, log.earliest_seq, log.evict_floor, log.assign(1)) == (0, 6, 6, 6)
    selection = select(log, 2)
    assert selection.tombstone == Tombstone(3, 5, "lost_tail", 3, 6, 5)
    assert (selection.next_from_seq, selection.caught_up) == (5, True)


def test_lost_records_between_others_are_told_like_a_lost_tail() -> None:
    log = topic()
    write(log, 3)
    log.load_gap(6, ts=0, lost=True)
    write(log, 4)
    assert (log.count, log.bytes) == (7, 70)
    selection = select(log, 3)
    assert selection.tombstone == Tombstone(4, 5, "lost_tail", 2, 1, 9)
    assert selection.seqs.tolist() == [6, 7, 8, 9]


def test_floors_come_back_after_a_restart_and_never_go_back() -> None:
    log = TopicLog(topic().settings, base_seq=20)
    log.restore_floors(15, 20, Loss.TTL, delete_below=20)
    assert (log.evict_floor, log.earliest_seq, log.head_seq) == (15, 20, 19)
    assert tombstone(log, 0).reason == "ttl"
    write(log, 5)
    log.restore_floors(3, 3)
    assert (log.evict_floor, log.earliest_seq, log.count) == (15, 20, 5)
    log.restore_floors(22, 23, Loss.CAP)
    assert (log.evict_floor, log.earliest_seq, log.count) == (22, 23, 2)
    log.restore_floors(1_000, 1_000, Loss.CAP)
    assert (log.evict_floor, log.earliest_seq, log.count) == (25, 25, 0)
    check_topic(log)
