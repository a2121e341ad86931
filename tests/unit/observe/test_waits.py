"""Long waits: what is kept, under which cause, with what ran beside it."""

from __future__ import annotations

import gc
from functools import partial

import pytest

from headwater.observe.waits import KEPT_MAX, WAIT_BOUNDS_US, WaitCause, Waits, name_of
from headwater.testing.clock import DEFAULT_WALL_MS, ManualClock


class Machine:
    """A clock, and how much processor time the thread was given meanwhile."""

    def __init__(self, least_us: int = 1_000) -> None:
        self.clock = ManualClock(monotonic_us=5_000_000)
        self.used_us = 0
        self.waits = Waits(self.clock, least_us, thread_us=lambda: self.used_us)

    def compute(self, us: int) -> None:
        self.used_us += us
        self.clock.advance(us)

    def stand_still(self, us: int) -> None:
        self.clock.advance(us)


def test_a_wait_below_the_threshold_is_not_kept_and_one_at_it_is() -> None:
    machine = Machine()
    machine.waits.note(WaitCause.SYNC, 0, 999)
    assert machine.waits.since() == []
    machine.waits.note(WaitCause.SYNC, 0, 1_000)
    assert [each.duration_us for each in machine.waits.since()] == [1_000]


def test_a_threshold_of_nothing_keeps_nothing_and_leaves_callbacks_alone() -> None:
    machine = Machine(least_us=0)
    machine.waits.note(WaitCause.SYNC, 0, 1_000_000)
    work = partial(machine.compute, 5_000)
    assert machine.waits.timed("requests", work) is work
    machine.waits.watch_collector()
    try:
        gc.collect()
    finally:
        machine.waits.leave_collector()
    assert machine.waits.since() == []


def test_a_wait_says_when_it_began_by_the_wall_clock() -> None:
    machine = Machine()
    began_us = machine.clock.monotonic_us()
    machine.stand_still(7_000)
    ended_us = machine.clock.monotonic_us()
    machine.stand_still(40_000)  # noted later
    machine.waits.note(WaitCause.WRITE, began_us, ended_us, "12 bytes")
    (wait,) = machine.waits.since()
    assert (wait.at_ms, wait.duration_us, wait.detail) == (DEFAULT_WALL_MS, 7_000, "12 bytes")


def test_the_newest_of_each_cause_are_kept_and_all_are_counted() -> None:
    machine = Machine()
    machine.waits.note(WaitCause.GARBAGE, 0, 2_000)
    for _ in range(KEPT_MAX + 10):
        machine.waits.note(WaitCause.SYNC, 0, 3_000)
    waits = machine.waits.since()
    assert [WaitCause(each.cause) for each in waits].count(WaitCause.SYNC) == KEPT_MAX
    assert WaitCause(waits[0].cause) is WaitCause.GARBAGE, "a common cause pushes no rare one out"
    sums = machine.waits.sums[WaitCause.SYNC]
    assert (sums.count, sums.total_us) == (KEPT_MAX + 10, 3_000 * (KEPT_MAX + 10))
    assert sums.buckets[WAIT_BOUNDS_US.index(5_000)] == KEPT_MAX + 10
    assert [each.number for each in waits[1:]] == list(range(12, KEPT_MAX + 12))


def test_a_reader_gets_what_came_behind_a_number() -> None:
    machine = Machine()
    for cause in (WaitCause.SYNC, WaitCause.LOOP, WaitCause.SYNC):
        machine.waits.note(cause, 0, 1_000)
    assert [each.number for each in machine.waits.since(1)] == [2, 3]


def test_the_loop_was_busy_when_a_callback_computed_most_of_its_time() -> None:
    machine = Machine()
    machine.waits.timed("requests", partial(machine.compute, 4_000))()
    (wait,) = machine.waits.since()
    assert (WaitCause(wait.cause), wait.duration_us) == (WaitCause.LOOP, 4_000)
    assert wait.detail == "requests, computed 4.0 ms of it"


def test_a_callback_that_fails_is_timed_and_fails() -> None:
    machine = Machine()

    def fail() -> None:
        machine.compute(4_000)
        raise ValueError("as it must")

    with pytest.raises(ValueError, match="as it must"):
        machine.waits.timed("requests", fail)()
    assert [WaitCause(each.cause) for each in machine.waits.since()] == [WaitCause.LOOP]


def test_the_interpreter_was_wanted_when_background_work_ran_beside_a_callback() -> None:
    machine = Machine()
    with machine.waits.activity("checkpoint"):
        machine.waits.timed("requests", partial(machine.stand_still, 4_000))()
    (wait,) = machine.waits.since()
    assert (WaitCause(wait.cause), wait.beside) == (WaitCause.INTERPRETER, ["checkpoint"])


def test_the_processor_was_wanted_when_nothing_of_ours_ran_beside_a_callback() -> None:
    machine = Machine()
    machine.waits.timed("requests", partial(machine.stand_still, 4_000))()
    assert [WaitCause(each.cause) for each in machine.waits.since()] == [WaitCause.PROCESSOR]


def test_background_work_stands_beside_the_waits_that_it_overlaps_and_no_others() -> None:
    machine = Machine()
    now_us, waits = machine.clock.monotonic_us, machine.waits
    before_us = now_us()
    machine.stand_still(10_000)
    with waits.activity("checkpoint"):
        machine.stand_still(10_000)
        middle_us = now_us()
        machine.stand_still(10_000)
    with waits.activity("snapshot"):
        machine.stand_still(10_000)
    waits.note(WaitCause.SYNC, before_us, before_us + 10_000)
    waits.note(WaitCause.SYNC, middle_us, middle_us + 10_000)
    waits.note(WaitCause.SYNC, middle_us, now_us())
    assert [each.beside for each in waits.since()] == [
        [],
        ["checkpoint"],
        ["checkpoint", "snapshot"],
    ]


def test_a_collection_of_garbage_is_kept_with_its_generation() -> None:
    machine = Machine()

    def slow(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            machine.stand_still(9_000)

    machine.waits.watch_collector()
    gc.callbacks.append(slow)  # called behind ours: time passes between its two calls
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(slow)
        machine.waits.leave_collector()
    gc.collect()
    waits = machine.waits.since()
    assert [WaitCause(each.cause) for each in waits] == [WaitCause.GARBAGE]
    assert waits[0].duration_us == 9_000
    assert waits[0].detail.startswith("generation 2, ")


def test_callbacks_are_named_after_the_method_that_made_them() -> None:
    machine = Machine()
    assert name_of(lambda: None) == ("test_callbacks_are_named_after_the_method_that_made_them")
    assert name_of(partial(machine.compute, 1)) == "Machine.compute"
