"""Leases of a queue: claiming, settling, expiring, fences and what is given up."""

from __future__ import annotations

import sys
from typing import Any

import numpy
import pytest

from headwater.model.index import SeqIndex
from headwater.model.queue import QueueLeases
from tests.unit.model.queues import LEASE_US, add, claim, delete, jobs


@pytest.mark.claims(384, 388, 390)
def test_fresh_jobs_go_out_in_order_and_each_to_one_worker() -> None:
    index, queue = jobs(10), QueueLeases()
    first = claim(queue, index, 4, node="one")
    second = claim(queue, index, 4, node="two")
    assert (first.seqs, second.seqs) == ([1, 2, 3, 4], [5, 6, 7, 8])
    assert queue.claim_cursor == 9
    assert (first.node, first.deadline_us, first.connection) == ("one", LEASE_US, None)
    assert (queue.ready(index), queue.in_flight) == (2, 8)


@pytest.mark.claims(386, 394)
def test_what_came_back_is_served_before_fresh_jobs() -> None:
    index, queue = jobs(10), QueueLeases()
    claim(queue, index, 5)
    queue.nack("one", [4, 2], None, 0)
    assert claim(queue, index, 4).seqs == [2, 4, 6, 7]


@pytest.mark.claims(387)
def test_a_delayed_nack_is_ready_when_its_time_has_come() -> None:
    index, queue = jobs(1), QueueLeases()
    claim(queue, index, 1)
    queue.nack("one", [1], None, 0, delay_us=5_000)
    assert queue.ready(index) == 0
    assert queue.next_change_us(0, 0) == 5_000
    assert claim(queue, index, 1, now_us=4_999).seqs == []
    assert claim(queue, index, 1, now_us=5_000).seqs == [1]


@pytest.mark.claims(394, 395, 398)
def test_a_lease_holds_up_to_its_deadline_and_no_longer() -> None:
    index, queue = jobs(2), QueueLeases()
    claim(queue, index, 2, lease_us=1_000)
    assert claim(queue, index, 2, now_us=1_000).seqs == []
    assert queue.ack("one", [1], None, 1_000).taken == [1]
    assert queue.ack("one", [2], None, 1_001).skipped == [2], "late, though nobody else has it"
    assert claim(queue, index, 2, now_us=1_001, node="two").seqs == [2]


@pytest.mark.parametrize("known", [False, True])
def test_what_a_connection_has_in_hand_falls_with_every_ack(known: bool) -> None:
    index, queue = jobs(8), QueueLeases()
    if known:  # something is told of another job: the longer way is taken
        claim(queue, index, 1)
        queue.nack("one", [1], None, 0, delay_us=1_000)
    held = claim(queue, index, 6, connection=7).seqs
    assert (queue.held_on(7), queue.held_on(8)) == (6, 0)
    assert queue.ack("one", held[:4], None, 1).taken == held[:4]
    delete(index, *held[:4])
    queue.gone([*held[:4]])
    assert queue.held_on(7) == 2
    assert queue.release(7) == {2 if known else 1: held[4:]}
    assert queue.held_on(7) == 0


@pytest.mark.claims(393)
def test_an_acked_job_is_claimable_by_nobody_until_the_log_has_it_or_refuses() -> None:
    index, queue = jobs(3), QueueLeases()
    claim(queue, index, 3, lease_us=1_000)
    assert queue.ack("one", [1, 2], None, 10) == ([1, 2], [], {1: [1, 2]})
    assert queue.in_flight == 3
    assert queue.ack("one", [1], None, 10).skipped == [1], "settled once"
    delete(index, 1)
    queue.gone([1])
    queue.stays([2], 20)
    assert queue.ack("one", [2], None, 30).taken == [2], "held as before"
    assert claim(queue, index, 3, now_us=2_000).seqs == [3], "2 is leaving, its lease is over"
    queue.stays([2], 2_000)
    assert claim(queue, index, 3, now_us=2_000).seqs == [2]
    assert queue.deliveries(2) == 2


def test_only_the_holder_settles_a_job_and_others_are_told() -> None:
    index, queue = jobs(3), QueueLeases()
    claim(queue, index, 2, node="one")
    assert queue.ack("two", [1], None, 0).skipped == [1]
    assert queue.nack("two", [1], None, 0).skipped == [1]
    assert queue.extend("two", [1], None, 0, 5).skipped == [1]
    assert queue.ack("one", [3, 99], None, 0).skipped == [3, 99]
    assert queue.ack("one", [1, 1, 2], None, 0) == ([1, 2], [1], {1: [1, 2]})


@pytest.mark.claims(390)
def test_a_fence_grows_with_every_claim_and_stops_a_sleeper() -> None:
    index, queue = jobs(1), QueueLeases()
    slept = claim(queue, index, 1, lease_us=10)
    again = claim(queue, index, 1, now_us=11)
    assert again.lease_id > slept.lease_id
    assert queue.ack("one", [1], [slept.lease_id], 12).skipped == [1], "the same node, too late"
    assert queue.ack("one", [1], [again.lease_id], 12).taken == [1]


def test_an_extension_holds_some_jobs_longer_under_the_same_number() -> None:
    index, queue = jobs(3), QueueLeases()
    grant = claim(queue, index, 3, lease_us=1_000)
    assert queue.extend("one", [2], [grant.lease_id], 500, 9_000).taken == [2]
    assert claim(queue, index, 3, now_us=1_001, node="two").seqs == [1, 3]
    assert queue.ack("one", [2], [grant.lease_id], 9_000).taken == [2]


def test_a_whole_claim_is_extended_in_place_and_may_be_shortened() -> None:
    index, queue = jobs(2), QueueLeases()
    grant = claim(queue, index, 2, lease_us=1_000)
    queue.extend("one", [1, 2], None, 0, 5_000)
    assert grant.deadline_us == 5_000
    assert claim(queue, index, 2, now_us=4_000).seqs == []
    queue.extend("one", [1, 2], None, 4_000, 4_100)
    assert claim(queue, index, 2, now_us=4_101).seqs == [1, 2]


@pytest.mark.claims(390, 394)
def test_the_jobs_of_a_connection_are_ready_the_moment_it_ends() -> None:
    index, queue = jobs(6), QueueLeases()
    claim(queue, index, 2, connection=7)
    claim(queue, index, 2, connection=8)
    queue.ack("one", [1], None, 0)
    queue.extend("one", [2], None, 0, 99)
    assert queue.release(7) == {1: [2]}
    assert queue.release(7) == {}
    assert claim(queue, index, 2).seqs == [2, 5]
    assert sorted(queue.release(8)[2]) == [3, 4]


@pytest.mark.claims(385, 389, 400)
def test_a_job_delivered_often_enough_is_put_away_instead_of_claimed() -> None:
    index, queue = jobs(3), QueueLeases()
    queue.deliveries_max = 2
    claim(queue, index, 2, lease_us=10)
    assert claim(queue, index, 2, now_us=11, lease_us=10).seqs == [1, 2]
    assert [queue.deliveries(seq) for seq in (1, 2, 3)] == [2, 2, 0]
    queue.nack("one", [1], None, 12, delay_us=1_000)
    assert queue.take_exhausted() == [(1, 2, False)], "at once, whatever delay was asked for"
    assert claim(queue, index, 3, now_us=50).seqs == [3]
    assert queue.take_exhausted() == [(2, 2, False)]
    queue.stays([1], 60)
    claim(queue, index, 3, now_us=60)
    assert queue.take_exhausted() == [(1, 2, False)], "until it worked"
    queue.gone([1, 2])
    assert queue.in_flight == 1
    assert queue.returned == {}


def test_a_job_that_cannot_be_put_away_is_blocked_until_the_next_try() -> None:
    index, queue = jobs(3), QueueLeases()
    queue.deliveries_max = 1
    claim(queue, index, 2, lease_us=1_000)
    queue.nack("one", [1, 2], None, 0)
    queue.take_exhausted()
    queue.block(1, 100, is_copied=False)
    queue.block(2, 100, is_copied=True)
    assert (queue.ready(index), queue.in_flight, sorted(queue.blocked)) == (1, 0, [1, 2])
    assert queue.next_change_us(0, 0) == 100
    assert claim(queue, index, 3, now_us=99, lease_us=1_000).seqs == [3]
    assert not queue.has_exhausted
    queue.sweep(100, 0)
    assert queue.take_exhausted() == [(1, 1, False), (2, 1, True)], (
        "what is copied is not copied again"
    )
    queue.block(1, 200, is_copied=False)
    queue.gone([2])
    queue.deliveries_max = 0
    queue.retry_blocked()
    assert claim(queue, index, 3, now_us=101).seqs == [1], "the rules changed: it may go out"
    queue.ack("one", [1], None, 101)
    queue.gone([1])
    assert not queue.blocked


def test_a_blocked_job_that_is_deleted_is_forgotten() -> None:
    for how in ("forget", "forget_below"):
        index, queue = jobs(1), QueueLeases()
        queue.deliveries_max = 1
        claim(queue, index, 1)
        queue.nack("one", [1], None, 0)
        queue.take_exhausted()
        queue.block(1, 100, is_copied=False)
        queue.forget([1]) if how == "forget" else queue.forget_below(2)
        assert not queue.blocked, how


def test_a_lower_limit_counts_for_jobs_that_came_back_before() -> None:
    index, queue = jobs(1), QueueLeases()
    claim(queue, index, 1)
    queue.nack("one", [1], None, 0)
    queue.deliveries_max = 1
    assert claim(queue, index, 1).seqs == []
    assert queue.take_exhausted() == [(1, 1, False)]


def test_jobs_that_are_deleted_or_evicted_leave_every_place() -> None:
    index, queue = jobs(8), QueueLeases()
    queue.deliveries_max = 5
    claim(queue, index, 4)
    queue.nack("one", [2], None, 0)
    queue.nack("one", [3], None, 0, delay_us=10)
    queue.ack("one", [4], None, 0)
    queue.schedule(8, 50)
    delete(index, 1, 2, 3)
    queue.forget([1, 2, 3])
    assert (queue.in_flight, queue.ready(index)) == (1, 3)
    index.drop_before(9)
    queue.forget_below(9)
    assert (queue.in_flight, queue.ready(index)) == (0, 0)
    assert claim(queue, index, 9, now_us=99, calendar_ms=99).seqs == []
    add(index, 1)
    assert claim(queue, index, 8, now_us=99).seqs == [9]


def test_an_appointment_is_kept_by_the_calendar_and_then_goes_first() -> None:
    index, queue = jobs(4), QueueLeases()
    queue.schedule(2, 5_000)
    assert claim(queue, index, 2, calendar_ms=4_999).seqs == [1, 3]
    assert queue.next_change_us(0, 4_000) == 1_000_000
    assert claim(queue, index, 2, calendar_ms=5_000).seqs == [2, 4]


def test_a_claim_that_is_taken_back_was_no_delivery() -> None:
    index, queue = jobs(2), QueueLeases()
    queue.deliveries_max = 1
    grant = claim(queue, index, 2)
    queue.take_back(grant)
    assert (queue.in_flight, queue.returned, len(queue.take_exhausted())) == (0, {}, 0)
    assert claim(queue, index, 2).seqs == [1, 2]


def test_a_large_claim_goes_on_behind_a_gap_it_met_on_the_way() -> None:
    index, queue = jobs(100), QueueLeases()
    delete(index, *range(10, 25), *range(41, 44), 50)
    expected = [*range(1, 10), *range(25, 41), *range(44, 50), *range(51, 60)]
    assert claim(queue, index, 40).seqs == expected


def test_appointments_are_kept_in_whatever_order_they_were_made() -> None:
    index, queue = jobs(4), QueueLeases()
    queue.schedule(4, 5_000)
    queue.schedule(1, 5_000)
    assert claim(queue, index, 4).seqs == [2, 3]


def test_a_connection_that_lives_long_does_not_collect_what_it_settled() -> None:
    index, queue = jobs(50), QueueLeases()
    for seq in range(1, 51):
        claim(queue, index, 1, connection=7)
        queue.ack("one", [seq], None, 0)
        queue.gone([seq])
    claim(queue, index, 1, connection=7)
    assert queue._connections == {}


class _Counting:
    """A topic's index that counts how many slots were looked at."""

    def __init__(self, index: SeqIndex) -> None:
        self._index = index
        self.looked = 0

    def is_live(self, seq: int) -> bool:
        self.looked += 1
        return self._index.is_live(seq)

    def first_live(self, from_seq: int) -> int:
        self.looked += 1
        return self._index.first_live(from_seq)

    def flags(self, first_seq: int, end_seq: int) -> Any:
        self.looked += end_seq - first_seq
        return self._index.flags(first_seq, end_seq)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


def test_a_claim_of_100_looks_at_about_100_of_a_million_jobs() -> None:
    index, queue = _Counting(jobs(1_000_000)), QueueLeases()
    for turn in range(5):
        index.looked = 0
        assert len(claim(queue, index, 100).seqs) == 100  # type: ignore[arg-type]
        assert index.looked <= 110, turn
    queue.nack("one", list(range(1, 501)), None, 0)
    index.looked = 0
    assert claim(queue, index, 100).seqs == list(range(1, 101))  # type: ignore[arg-type]
    assert index.looked <= 110


def test_a_job_in_flight_costs_little_and_a_ready_one_nothing() -> None:
    index, queue = jobs(100_000), QueueLeases()
    grants = [claim(queue, index, 100) for _ in range(500)]
    assert len(queue.leases) == 50_000
    a_job = sys.getsizeof(queue.leases) + sum(sys.getsizeof(g.seqs) for g in grants)
    a_job += 50_000 * sys.getsizeof(2**40)
    assert a_job / 50_000 < 120
    assert [*queue.returned, *queue.reclaim] == []
    assert [*queue.delays.seqs(), *queue.scheduled.seqs()] == []
    assert len(queue._deadlines) == 500


def test_claims_that_are_settled_do_not_pile_up_behind_their_deadlines() -> None:
    index, queue = jobs(10_000), QueueLeases()
    for seq in range(1, 10_001):
        claim(queue, index, 1)
        queue.ack("one", [seq], None, 0)
        queue.gone([seq])
    assert len(queue._deadlines) < 300
    for seq in range(1_000):
        add(index, 1)
        claim(queue, index, 1)
        queue.nack("one", [10_001 + seq], None, 0, delay_us=10**9)
        queue.forget([10_001 + seq])
    assert len(queue.delays._heap) < 300


def test_the_cursor_passes_many_dead_and_delayed_slots_in_bounded_steps() -> None:
    index, queue = jobs(100_000), QueueLeases()
    index.mark_deleted(numpy.arange(2, 40_000))
    for seq in range(40_000, 90_000):
        queue.schedule(seq, 10**9)
    found: list[int] = []
    draws = 0
    while queue.has_fresh(index) and len(found) < 3:
        found += queue.draw(index, 3 - len(found))
        draws += 1
    assert found == [1, 90_000, 90_001]
    assert 3 <= draws <= 6
