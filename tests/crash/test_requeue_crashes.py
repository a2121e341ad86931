"""Dead letters on their way back, through crashes: a job is in the queue, or still a letter."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from headwater.testing import DROPS, PREFIXES, RANDOM, TORN, FakeDisk, ManualClock
from tests.crash.matrix import slice_of, tried
from tests.rig.life import SMALL, new_disk, open_stepped

pytestmark = pytest.mark.crash

PLANS = {
    "prefixes": PREFIXES,
    "drops": DROPS,
    "torn": replace(TORN, tear_every_byte_max=16),
    "random": replace(RANDOM, random_states=1),
}
EVERY = {"prefixes": 2, "drops": 8, "torn": 20, "random": 6}
JOBS = 5
LETTERS: dict[str, dict[str, Any]] = {"a log": {}, "a queue": {"type": "queue"}}


class Story(NamedTuple):
    disk: FakeDisk
    clock: ManualClock
    made: int
    """From here on all jobs are letters."""
    answered: dict[Any, int]
    """From which point on a letter is known to be back, by the number in its data."""


@cache
def told(name: str) -> Story:
    disk, clock = new_disk(), ManualClock()
    db = open_stepped(disk, SMALL, clock)
    db.create("dead", **LETTERS[name])
    db.create("jobs", type="queue", max_deliveries=1, dead_letter="dead")
    db.append("jobs", [{"data": n} for n in range(JOBS)])
    db.nack("jobs", "one", db.claim("jobs", "one", JOBS).seqs)
    db.claim("jobs", "one", JOBS)
    assert db.state("dead").count == JOBS
    made = disk.point
    answered: dict[Any, int] = {}
    for seqs in ([1, 2], [4], [3, 5]):
        letters = {record.seq: record.data for record in db.diff("dead").records}
        assert db.requeue("dead", seqs).seqs == seqs
        answered |= {letters[seq]: disk.point for seq in seqs}
        db.checkpoint()
    db.close()
    return Story(disk, clock, made, answered)


def judge(story: Story, state: FakeDisk) -> None:
    db = open_stepped(state, SMALL, story.clock)
    letters = [record.data for record in db.diff("dead").records]
    jobs = [record.data for record in db.diff("jobs").records]
    what = state.label
    assert {*letters, *jobs} == set(range(JOBS)), f"{what}: lost"
    for number, point in story.answered.items():
        if state.crash_point >= point:
            assert number not in letters, f"{what}: a letter that went back is here again"
    # Done again, as somebody would who was not answered: nothing is there twice.
    left = [record.seq for record in db.diff("dead").records]
    if left:
        db.requeue("dead", left)
    assert sorted(record.data for record in db.diff("jobs").records) == list(range(JOBS)), what
    assert db.state("dead").count == 0
    again = open_stepped(state.after_power_loss(), SMALL, story.clock)
    assert again.state("dead").count == 0, f"{what}: back after the next power loss"
    assert len(again.diff("jobs").records) == JOBS


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", LETTERS)
def test_no_letter_is_lost_or_doubled_on_its_way_back(name: str, plan: str) -> None:
    story = told(name)
    states = (s for s in story.disk.crash_states(plan=PLANS[plan]) if s.crash_point >= story.made)
    for state in slice_of(states, EVERY[plan], always=3):
        judge(story, state)
        tried(f"dead letters back from {name}: {plan}")
