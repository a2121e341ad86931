"""The manual clock, with real threads waiting on it and nobody sleeping."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from headwater.core.clock import Clock, Doorbell
from headwater.testing import ManualClock

TIMEOUT_S = 10.0


def wait_in_thread(clock: ManualClock, doorbell: Doorbell, until_us: int | None) -> Future[bool]:
    """Start a thread that waits, and return when it is parked."""
    answer: Future[bool] = Future()
    parks = clock.park_count
    threading.Thread(
        target=lambda: answer.set_result(clock.wait(doorbell, until_us)), daemon=True
    ).start()
    clock.wait_for_waiters(1, TIMEOUT_S, after_parks=parks)
    return answer


def test_it_is_a_clock() -> None:
    clock: Clock = ManualClock(wall_ms=1_000, monotonic_us=5)
    assert (clock.wall_ms(), clock.monotonic_us()) == (1_000, 5)


def test_time_moves_only_by_advance() -> None:
    clock = ManualClock(wall_ms=1_000)
    clock.advance(2_500)
    assert (clock.wall_ms(), clock.monotonic_us()) == (1_002, 2_500)
    clock.advance(500)
    assert (clock.wall_ms(), clock.monotonic_us()) == (1_003, 3_000)


def test_a_wall_jump_does_not_move_the_monotonic_side() -> None:
    clock = ManualClock(wall_ms=10_000)
    clock.jump_wall(-3_000)
    assert (clock.wall_ms(), clock.monotonic_us()) == (7_000, 0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)


def test_a_deadline_already_past_returns_at_once_and_keeps_a_ring() -> None:
    clock, doorbell = ManualClock(monotonic_us=100), Doorbell()
    assert clock.wait(doorbell, 100) is False
    doorbell.ring()
    assert clock.wait(doorbell, 99) is True
    assert clock.wait(doorbell, 99) is False


def test_a_ring_before_the_wait_ends_it() -> None:
    clock, doorbell = ManualClock(), Doorbell()
    doorbell.ring()
    assert clock.wait(doorbell, 1_000) is True
    assert clock.waiter_count == 0


def test_a_parked_thread_is_woken_by_a_ring_and_told_so() -> None:
    clock, doorbell = ManualClock(), Doorbell()
    answer = wait_in_thread(clock, doorbell, None)
    doorbell.ring()
    assert answer.result(TIMEOUT_S) is True


def test_a_parked_thread_is_woken_when_its_deadline_is_reached_and_not_before() -> None:
    clock, doorbell = ManualClock(), Doorbell()
    answer = wait_in_thread(clock, doorbell, 1_000)
    clock.advance(999)
    assert clock.waiter_count == 1
    assert not answer.done()
    clock.advance(1)
    assert answer.result(TIMEOUT_S) is False


def test_a_wall_jump_wakes_nobody() -> None:
    clock, doorbell = ManualClock(), Doorbell()
    answer = wait_in_thread(clock, doorbell, 1_000)
    clock.jump_wall(1_000_000)
    assert clock.waiter_count == 1
    clock.advance(1_000)
    assert answer.result(TIMEOUT_S) is False


def test_being_woken_by_time_leaves_no_ring_behind() -> None:
    clock, doorbell = ManualClock(), Doorbell()
    answer = wait_in_thread(clock, doorbell, 10)
    clock.advance(10)
    answer.result(TIMEOUT_S)
    assert doorbell.wait(0) is False


def test_a_ring_together_with_the_deadline_ends_one_wait_and_not_the_next() -> None:
    # Many rounds, since which of the two the thread notices first is up to the scheduler.
    for _ in range(200):
        clock, doorbell = ManualClock(), Doorbell()
        answer = wait_in_thread(clock, doorbell, 10)
        doorbell.ring()
        clock.advance(10)
        answer.result(TIMEOUT_S)
        assert doorbell.wait(0) is False


class DoorbellAtTheDeadline(Doorbell):
    """Time runs out between hearing the ring and telling the clock so."""

    __slots__ = ("clock",)

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout_us: int | None) -> bool:
        rung = super().wait(timeout_us)
        if timeout_us is None:
            self.clock.advance(10)
        return rung


def test_a_deadline_reached_just_after_a_ring_was_heard_leaves_no_second_ring() -> None:
    clock = ManualClock()
    doorbell = DoorbellAtTheDeadline(clock)
    doorbell.ring()
    assert clock.wait(doorbell, 10) is True
    assert doorbell.wait(0) is False


def test_advance_to_next_deadline_wakes_the_earliest_waiter_only() -> None:
    clock = ManualClock()
    early = wait_in_thread(clock, Doorbell(), 300)
    late_doorbell = Doorbell()
    late: list[bool] = []
    thread = threading.Thread(target=lambda: late.append(clock.wait(late_doorbell, 700)))
    thread.start()
    clock.wait_for_waiters(2, TIMEOUT_S)
    assert clock.advance_to_next_deadline() == 300
    assert early.result(TIMEOUT_S) is False
    assert late == []
    assert clock.advance_to_next_deadline() == 400
    thread.join(TIMEOUT_S)
    assert late == [False]
    with pytest.raises(ValueError, match="no thread waits"):
        clock.advance_to_next_deadline()


def test_wait_for_waiters_says_how_many_came() -> None:
    with pytest.raises(TimeoutError, match="0 of 2 threads"):
        ManualClock().wait_for_waiters(2, timeout_s=0.01)


def test_wait_for_waiters_can_tell_a_new_park_from_an_old_one() -> None:
    clock, doorbell = ManualClock(), Doorbell()
    rounds = 50
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: [clock.wait(doorbell, None) for _ in range(rounds)])
        for number in range(rounds):
            clock.wait_for_waiters(1, TIMEOUT_S, after_parks=number)
            assert clock.park_count == number + 1
            doorbell.ring()
        assert done.result(TIMEOUT_S) == [True] * rounds
