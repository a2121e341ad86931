"""What the log remembers of leases, and what becomes of them over a restart."""

from __future__ import annotations

import pytest

from headwater.format.control_frames import LeaseEvent, LeaseKind, QueueMeta
from headwater.model.queue import LeaseHistory, QueueLeases
from headwater.model.queue.history import remember, resume
from tests.unit.model.queues import claim, jobs

T0 = 1_700_000_000_000
"""Wall clock of the first life; its monotonic clock stands at 0."""


def claimed(seqs: tuple[int, ...], lease_id: int, span_ms: int = 1_000) -> LeaseEvent:
    return LeaseEvent(LeaseKind.CLAIMED, seqs, "one", lease_id, span_ms)


def revived(meta: QueueMeta, wall_ms: int, now_us: int = 500) -> QueueLeases:
    queue = QueueLeases()
    resume(queue, meta, now_us, wall_ms)
    return queue


@pytest.mark.claims(382, 383, 384, 385)
def test_leases_are_what_the_events_of_the_log_add_up_to() -> None:
    history = LeaseHistory()
    history.apply(claimed((1, 2, 3), 4), T0)
    history.apply(LeaseEvent(LeaseKind.RETURNED, (2,), lease_id=4, span_ms=70), T0 + 10)
    history.apply(LeaseEvent(LeaseKind.EXTENDED, (3,), lease_id=4, span_ms=2_000), T0 + 20)
    history.apply(claimed((1,), 5), T0 + 1_500)
    meta = history.meta()
    assert [(g.lease_id, g.until_ms, g.seqs) for g in meta.grants] == [
        (5, T0 + 2_500, (1,)),
        (4, T0 + 2_020, (3,)),
    ]
    assert meta.returned == ((1, 1), (2, 1))
    assert [(d.seq, d.until_ms, d.span_ms) for d in meta.delays] == [(2, T0 + 80, 70)]
    assert meta.next_lease_id == 6


def test_a_held_job_is_not_claimable_after_a_restart_until_its_time_is_over() -> None:
    history = LeaseHistory()
    history.apply(claimed((1, 2), 9), T0)
    queue = revived(history.meta(), wall_ms=T0 + 400)
    index = jobs(3)
    assert claim(queue, index, 3, now_us=500).seqs == [3]
    assert queue.ack("one", [1], [9], 600_500).taken == [1]
    assert claim(queue, index, 3, now_us=600_501).seqs == [2]
    assert queue.deliveries(2) == 2
    assert queue.next_lease_id > 10


@pytest.mark.parametrize("jump_ms", [-3_600_000, -(10**11)])
def test_a_wall_clock_set_back_holds_no_job_longer_than_its_lease(jump_ms: int) -> None:
    history = LeaseHistory()
    history.apply(claimed((1,), 9), T0)
    history.apply(claimed((2,), 10), T0)
    history.apply(LeaseEvent(LeaseKind.RETURNED, (2,), lease_id=10, span_ms=300), T0)
    queue = revived(history.meta(), wall_ms=T0 + jump_ms, now_us=0)
    index = jobs(2)
    assert claim(queue, index, 2, now_us=300_000).seqs == [2]
    assert claim(queue, index, 2, now_us=1_000_001).seqs == [1]


@pytest.mark.parametrize("jump_ms", [3_600_000, 10**11])
def test_a_wall_clock_set_forward_ends_leases_early_and_loses_nothing(jump_ms: int) -> None:
    history = LeaseHistory()
    history.apply(claimed((1,), 9), T0)
    queue = revived(history.meta(), wall_ms=T0 + jump_ms)
    index = jobs(1)
    assert claim(queue, index, 1, now_us=500).seqs == [1]
    assert queue.deliveries(1) == 2


def test_a_running_lease_does_not_hear_of_the_wall_clock() -> None:
    """The only wall clock that reaches a running queue is the calendar, for appointments."""
    index, queue = jobs(1), QueueLeases()
    claim(queue, index, 1, lease_us=1_000)
    assert claim(queue, index, 1, now_us=999, calendar_ms=10**15).seqs == []
    assert claim(queue, index, 1, now_us=1_001, calendar_ms=0).seqs == [1]


def test_a_claim_made_on_a_connection_ends_with_the_life_of_the_process() -> None:
    history = LeaseHistory()
    history.apply(LeaseEvent(LeaseKind.CLAIMED, (1,), "one", 3, 10**6, connected=True), T0)
    queue = revived(history.meta(), wall_ms=T0)
    assert claim(queue, jobs(1), 1, now_us=500).seqs == [1]
    assert queue.deliveries(1) == 2


@pytest.mark.claims(391, 392)
def test_without_durable_leases_every_job_is_claimable_after_a_restart() -> None:
    index, queue = jobs(4), QueueLeases()
    queue.schedule(4, T0 + 60_000)
    claim(queue, index, 3, calendar_ms=T0)
    queue.dead_lettered = 2
    meta = remember(queue, 0, T0, durable=False)
    again = revived(meta, wall_ms=T0 + 1)
    assert claim(again, index, 9, now_us=500, calendar_ms=T0 + 1).seqs == [1, 2, 3]
    assert again.dead_lettered == 2
    assert again.next_lease_id == 3
    assert claim(again, index, 9, now_us=500, calendar_ms=T0 + 60_000).seqs == [4]


def test_an_event_the_snapshot_has_seen_changes_nothing() -> None:
    index, queue = jobs(3), QueueLeases()
    events = []
    grant = claim(queue, index, 2, lease_us=1_000_000)
    events.append(claimed((1, 2), grant.lease_id))
    queue.nack("one", [2], None, 0, delay_us=50_000)
    events.append(LeaseEvent(LeaseKind.RETURNED, (2,), lease_id=grant.lease_id, span_ms=50))
    events.append(LeaseEvent(LeaseKind.EXTENDED, (2,), lease_id=grant.lease_id, span_ms=10**6))
    later = claim(queue, index, 1, now_us=60_000, lease_us=1_000_000)
    assert later.seqs == [2]
    events.append(claimed((2,), later.lease_id))
    meta = remember(queue, 60_000, T0 + 60, durable=True)
    history = LeaseHistory.since(meta)
    for event in events:
        history.apply(event, T0)
    assert history.meta() == meta


def test_a_job_claimed_again_after_its_delay_is_held_and_delayed_no_longer() -> None:
    history = LeaseHistory()
    history.apply(LeaseEvent(LeaseKind.APPOINTED, (1,), times=(T0,)), T0)
    history.apply(claimed((1,), 1), T0)
    history.apply(LeaseEvent(LeaseKind.RETURNED, (1,), lease_id=1, span_ms=50), T0)
    history.apply(claimed((1,), 2), T0 + 60)
    meta = history.meta()
    assert (meta.delays, meta.scheduled, meta.returned) == ((), (), ((1, 1),))
    assert [grant.seqs for grant in meta.grants] == [(1,)]


def test_a_job_whose_ack_is_on_its_way_is_held_as_far_as_a_snapshot_knows() -> None:
    index, queue = jobs(2), QueueLeases()
    claim(queue, index, 2, lease_us=1_000_000)
    queue.ack("one", [1], None, 0)
    meta = remember(queue, 0, T0, durable=True)
    again = revived(meta, wall_ms=T0)
    assert sorted(again.leases) == [1, 2]


def test_a_job_delivered_too_often_in_an_earlier_life_is_put_away_when_it_is_met() -> None:
    queue = revived(QueueMeta(returned=((2, 3),)), wall_ms=T0)
    queue.deliveries_max = 3
    assert claim(queue, jobs(3), 3).seqs == [1, 3]
    assert queue.take_exhausted() == [(2, 3, False)]


@pytest.mark.claims(389)
def test_numbers_and_dead_letters_are_told_by_events_of_their_own() -> None:
    history = LeaseHistory()
    history.apply(LeaseEvent(LeaseKind.NUMBERED, lease_id=5_000), T0)
    history.apply(LeaseEvent(LeaseKind.APPOINTED, (7, 8), times=(T0 + 5, T0 + 9)), T0)
    history.apply(claimed((7,), 5_001), T0)
    history.apply(LeaseEvent(LeaseKind.DEAD_LETTERED, (7,)), T0)
    assert history.meta() == QueueMeta(5_002, 1, scheduled=((8, T0 + 9),), ceiling=5_000)
    assert history.seqs() == {8}
    history.keep(lambda seq: seq != 8)
    assert history.seqs() == set()


def test_numbers_go_on_above_the_ceiling_and_claims_below_it_are_still_heard() -> None:
    """A ceiling is reserved ahead: claims that use it come later and have smaller numbers."""
    history = LeaseHistory.since(QueueMeta(next_lease_id=20, ceiling=5_000))
    history.apply(claimed((1,), 20), T0)
    queue = revived(history.meta(), wall_ms=T0)
    assert sorted(queue.leases) == [1]
    assert queue.next_lease_id == 5_001
