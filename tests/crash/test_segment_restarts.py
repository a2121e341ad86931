"""Killed in the work on segments, started again on the same disk, and then the power fails.

A killed process leaves names that nobody has synced. A start sees them all the same, and must not
build on what a power loss can still take away (I4).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.testing import (
    CHANGING_VERBS,
    DROPS,
    PAIRS,
    PREFIXES,
    CrashPlan,
    CrashPoint,
    FakeDisk,
    FaultDisk,
    SimulatedCrash,
    When,
)
from tests.crash.matrix import slice_of, tried
from tests.crash.test_segment_sweeps import (
    ACTS,
    ALL,
    check,
    cold_of,
    different_states,
    start,
)
from tests.unit.store.records import TOPICS, Written, read_live, topic_files
from tests.unit.store.test_tiers import COLD

pytestmark = pytest.mark.crash


def killed(name: str) -> Iterator[tuple[FakeDisk, tuple[int, int, int]]]:
    """The disk after a death at each changing call of an act, with all that is still pending."""
    for nth in range(1000):
        fake = FakeDisk([TOPICS, COLD])
        topic = Written(topic_files(fake, cold=cold_of(fake)))
        topic.append(10, size=20)
        position = topic.position
        ACTS[name].prepare(topic)
        fake.settle()
        disk = FaultDisk(fake, crash=CrashPoint(nth, When.AFTER, CHANGING_VERBS))
        dying = Written(topic_files(disk, cold=cold_of(disk)))
        dying.segments, dying.next_seq, dying.sent = topic.segments, topic.next_seq, topic.sent
        try:
            ACTS[name].play(dying)
        except SimulatedCrash:
            yield fake, position
        else:
            return


@pytest.mark.parametrize("plan", [PREFIXES, DROPS, PAIRS], ids=["prefixes", "drops", "pairs"])
@pytest.mark.parametrize("name", ACTS)
def test_a_power_loss_in_the_start_after_a_death_is_harmless(name: str, plan: CrashPlan) -> None:
    for fake, position in killed(name):
        died = fake.point
        start(fake, position)
        for state in slice_of(different_states(fake, plan), 3):
            if state.crash_point < died:
                continue
            files, segments = start(state, position)
            live, findings = read_live(files, segments)
            check(name, state, live, {finding.seq for finding in findings})
            tried(f"death in {name}, then power loss in the start")


def test_a_topic_directory_that_a_dead_process_made_survives_the_next_append() -> None:
    for nth in range(1000):
        fake = FakeDisk([TOPICS.parent, COLD])
        disk = FaultDisk(fake, crash=CrashPoint(nth, When.AFTER, CHANGING_VERBS))
        try:
            Written(topic_files(disk)).append(3)
        except SimulatedCrash:
            pass
        else:
            assert nth > 4
            return
        files = topic_files(fake)
        assert files.load(0) == []
        topic = Written(files)
        topic.append(10)
        again = topic_files(fake.after_power_loss())
        assert read_live(again, again.load(*topic.position))[0].keys() == ALL
        tried("death while a topic's directory is made, then power loss")


def test_a_cold_directory_that_a_dead_process_made_survives_the_next_move() -> None:
    for nth in range(1000):
        fake = FakeDisk([TOPICS, COLD])
        topic = Written(topic_files(fake, cold=cold_of(fake)))
        topic.append(10)
        fake.settle()
        disk = FaultDisk(fake, crash=CrashPoint(nth, When.AFTER, CHANGING_VERBS))
        segment = topic.segments[0]
        try:
            topic_files(disk, cold=cold_of(disk)).copy_to_cold(segment)
        except SimulatedCrash:
            pass
        else:
            return
        files = topic_files(fake, cold=cold_of(fake))
        files.copy_to_cold(segment)
        files.drop_hot(segment)
        state = fake.after_power_loss()
        assert read_live(*start(state, topic.position))[0].keys() == ALL
        tried("death while a cold copy is made, then power loss")
