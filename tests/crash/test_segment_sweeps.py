"""Power loss and death at every disk call of the work on segments (I1, I4, I7, I8).

Each act starts from ten records in three segments. Whatever the disk holds afterwards, a start
must give exactly the records that count, and so must a start after a crash of that start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy
import pytest

from headwater.disk import Disk
from headwater.store.reclaim import list_dropped, remove_dropped, rename_for_drop
from headwater.store.segment import Segment
from headwater.store.segment_stores import LocalColdTier, SegmentStore
from headwater.store.topic_files import TopicFiles
from headwater.testing import DROPS, PAIRS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk
from tests.crash.matrix import slice_of, tried
from tests.unit.store.records import DIRECTORY, TOPICS, TS, Written, read_live, topic_files
from tests.unit.store.test_tiers import COLD

pytestmark = pytest.mark.crash

PLANS = {"prefixes": PREFIXES, "drops": DROPS, "pairs": PAIRS, "torn": TORN, "random": RANDOM}
EVERY = {"prefixes": 1, "drops": 1, "pairs": 1, "torn": 5, "random": 1}
ALL = frozenset(range(1, 11))
FIRST = frozenset({1, 2, 3, 4})
DELETED = (1, 3, 6, 7, 10)


@dataclass(frozen=True)
class Act:
    """What is done, and which sets of live seqs a start may find while it is being done."""

    play: Callable[[Written], None]
    least: frozenset[int]
    most: frozenset[int]
    whole: bool = True
    """Only the two sets themselves, nothing between."""
    after: frozenset[int] = ALL
    """What must be there once the act is over."""
    prepare: Callable[[Written], None] = lambda topic: None


def cold_of(disk: Disk) -> SegmentStore:
    return LocalColdTier(disk, COLD).topic(7)


def move_first(topic: Written) -> None:
    segment = topic.segments[0]
    topic.files.copy_to_cold(segment)
    topic.put(topic.files.drop_hot(segment))


def rewrite_first(topic: Written) -> None:
    segment = topic.segments[0]
    topic.put(topic.files.rewrite(segment, topic.files.index(segment))[0])


def delete_two(topic: Written) -> None:
    topic.delete(1, 3)


def move_and_delete(topic: Written) -> None:
    move_first(topic)
    delete_two(topic)


LEFT = ALL - {1, 3}
ACTS = {
    "appending": Act(lambda topic: void(topic.append(7)), ALL, ALL),
    "appending after an age seal": Act(
        lambda topic: void(topic.append(6)),
        ALL,
        ALL,
        prepare=lambda topic: topic.put(topic.files.seal_if_due(topic.segments[-1], TS * 2)),
    ),
    "deleting": Act(
        lambda topic: topic.delete(*DELETED),
        ALL - set(DELETED),
        ALL,
        whole=False,
        after=ALL - set(DELETED),
    ),
    "rewriting": Act(rewrite_first, LEFT, LEFT, after=LEFT, prepare=delete_two),
    "dropping": Act(
        lambda topic: topic.files.drop(topic.segments[0]), ALL - FIRST, ALL, after=ALL - FIRST
    ),
    "moving to cold": Act(move_first, ALL, ALL),
    "rewriting a cold segment": Act(rewrite_first, LEFT, LEFT, after=LEFT, prepare=move_and_delete),
    "deleting in a cold segment": Act(
        delete_two, LEFT, ALL, whole=False, after=LEFT, prepare=move_first
    ),
    "dropping a cold segment": Act(
        lambda topic: topic.files.drop(topic.segments[0]),
        ALL - FIRST,
        ALL,
        after=ALL - FIRST,
        prepare=move_first,
    ),
}


def void(_: object) -> None:
    return


@dataclass(frozen=True)
class Played:
    disk: FakeDisk
    topic: Written
    position: tuple[int, int, int]
    """What the last checkpoint before the act says."""


@cache
def played(name: str) -> Played:
    act = ACTS[name]
    disk = FakeDisk([TOPICS, COLD])
    topic = Written(topic_files(disk, cold=cold_of(disk)))
    topic.append(10, size=20)
    position = topic.position
    act.prepare(topic)
    disk.settle()
    act.play(topic)
    return Played(disk, topic, position)


def different_states(disk: FakeDisk, plan: CrashPlan) -> Iterator[FakeDisk]:
    seen: set[int] = set()
    for state in disk.crash_states(plan=plan):
        key = hash(tuple(state.files().items()))
        if key not in seen:
            seen.add(key)
            yield state


def start(disk: FakeDisk, position: tuple[int, int, int]) -> tuple[TopicFiles, list[Segment]]:
    files = topic_files(disk, cold=cold_of(disk))
    return files, files.load(*position)


def check(name: str, state: FakeDisk, live: dict[int, bytes], damaged: set[int]) -> None:
    act, topic = ACTS[name], played(name).topic
    assert damaged <= act.most - act.least, state.label
    assert act.least <= live.keys() <= act.most, state.label
    if act.whole:
        assert frozenset(live) in (act.least, act.most), state.label
    assert live == {seq: topic.sent[seq].data for seq in live}, state.label


@pytest.mark.claims(244, 257, 274, 280, 291)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", ACTS)
def test_a_start_finds_what_counts_whatever_a_power_loss_left(name: str, plan: str) -> None:
    run = played(name)
    for state in slice_of(different_states(run.disk, PLANS[plan]), EVERY[plan]):
        files, segments = start(state, run.position)
        live, findings = read_live(files, segments)
        check(name, state, live, {finding.seq for finding in findings})
        at_rest = state.files()
        assert start(state, run.position)[1] == segments
        assert state.files() == at_rest, state.label
        tried(f"power loss while {name}: {plan}")


@pytest.mark.parametrize("name", ACTS)
def test_what_was_finished_survives_a_power_loss(name: str) -> None:
    run = played(name)
    state = run.disk.after_power_loss()
    position = run.topic.position if name.startswith("appending") else run.position
    files, segments = start(state, position)
    live, findings = read_live(files, segments)
    assert not findings
    after = frozenset(run.topic.sent) if name.startswith("appending") else ACTS[name].after
    assert live.keys() == after


@pytest.mark.parametrize("name", ACTS)
def test_a_start_that_crashes_itself_is_harmless(name: str) -> None:
    run = played(name)
    for state in slice_of(different_states(run.disk, DROPS), 4):
        state.settle()
        start(state, run.position)
        for second in slice_of(different_states(state, DROPS), 2, always=2):
            files, segments = start(second, run.position)
            live, findings = read_live(files, segments)
            check(name, second, live, {finding.seq for finding in findings})
            tried(f"crash in a start after {name}")


@pytest.mark.claims(274)
@pytest.mark.parametrize("name", ["deleting", "dropping", "dropping a cold segment"])
def test_doing_it_again_after_the_crash_finishes_it(name: str) -> None:
    """The log still has the delete and the floor, so the same work is asked for once more."""
    run = played(name)
    for plan in ("drops", "torn"):
        for state in slice_of(different_states(run.disk, PLANS[plan]), EVERY[plan]):
            files, segments = start(state, run.position)
            if name == "deleting":
                flag_again(files, segments)
            elif segments[0].first_seq == 1:
                files.drop(segments.pop(0))
            live, findings = read_live(*start(state, run.position))
            assert live.keys() == ACTS[name].after, state.label
            assert not findings
            tried(f"finishing {name} after a crash")


def flag_again(files: TopicFiles, segments: list[Segment]) -> None:
    for segment in segments:
        here = [seq for seq in DELETED if segment.first_seq <= seq <= segment.end_seq]
        low, high = here[0] - segment.first_seq, here[-1] - segment.first_seq + 1
        files.flag_deleted(segment, files.index(segment)[low:high], numpy.array(here))


@pytest.mark.claims(291)
def test_a_move_that_crashed_can_be_made_again_from_every_state() -> None:
    run = played("moving to cold")
    for state in different_states(run.disk, DROPS):
        files, segments = start(state, run.position)
        if not segments[0].is_cold:
            files.copy_to_cold(segments[0])
            segments[0] = files.drop_hot(segments[0])
        live, findings = read_live(*start(state, run.position))
        assert live.keys() == ALL, state.label
        assert not findings
        tried("moving to cold again after a crash")


@pytest.mark.claims(283)
@pytest.mark.parametrize("plan", PLANS)
def test_a_dropped_topic_is_whole_or_out_of_sight_and_can_be_removed(plan: str) -> None:
    disk = FakeDisk([TOPICS, COLD])
    topic = Written(topic_files(disk, cold=cold_of(disk)))
    topic.append(10)
    move_first(topic)
    disk.settle()
    rename_for_drop(disk, TOPICS, 7)
    renamed = disk.point
    remove_dropped(disk, TOPICS, 7, cold_of(disk))
    for state in disk.crash_states(plan=PLANS[plan]):
        if state.is_directory(DIRECTORY):
            assert state.crash_point < renamed, state.label
            live, _ = read_live(*start(state, topic.position))
            assert live.keys() == ALL
            rename_for_drop(state, TOPICS, 7)
        for topic_id in list_dropped(state, TOPICS):
            remove_dropped(state, TOPICS, topic_id, cold_of(state))
        assert not [path for path in state.files() if "seg-" in path.name], state.label
        tried(f"power loss while dropping a topic: {plan}")
