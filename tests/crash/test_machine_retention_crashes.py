"""Compaction, the feeder, a crash at every step: each acknowledged transition is once in its topic.

A story is told once on a recording disk: transitions, rounds of the feeder, a topic that refuses
records, compactions before, between and behind them, restarts. Then the process dies, or the power
fails, at its every disk call. A start compacts what it may before there is a feeder, as a server
under load does. No bytes are damaged, so there is no gap either: nothing may be deleted too early.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice

import pytest

from headwater.config.machines import FsyncKind
from headwater.core.errors import HeadwaterError
from headwater.testing import (
    DROPS,
    KILL,
    PREFIXES,
    RANDOM,
    TORN,
    CrashPlan,
    FakeDisk,
)
from tests.crash.matrix import slice_of, tried
from tests.rig.transition_feeder import NEXT, TOPIC, Both, new_disk

pytestmark = pytest.mark.crash

SEGMENT_BYTES = 1_024
PLANS: dict[str, CrashPlan] = {
    "kill": KILL,
    "prefixes": PREFIXES,
    "drops": DROPS,
    "torn": replace(TORN, tear_every_byte_max=16),
    "random": replace(RANDOM, random_states=2),
}
EVERY = {"kill": 3, "prefixes": 9, "drops": 19, "torn": 37, "random": 11}


@dataclass
class Story:
    disk: FakeDisk
    acked: list[tuple[int, int]] = field(default_factory=list)
    """From this point of the trace on, the transition at this offset was acknowledged."""

    def acked_at(self, point: int) -> list[int]:
        return [offset for when, offset in self.acked if when <= point]


class Teller:
    def __init__(self, kind: FsyncKind) -> None:
        self.kind = kind
        self.story = Story(new_disk())
        self.both = self.opened()

    def opened(self) -> Both:
        return Both(self.story.disk, self.kind, segment_bytes=SEGMENT_BYTES)

    def turn(self) -> None:
        store = self.both.store
        for _ in range(4):
            event = NEXT[store.get_instance("a").state]
            moved = store.do(partial(store.apply_event, "a", event, {"by": event}))
            self.story.acked.append((self.story.disk.point, moved.wal_offset))

    def refuse(self) -> None:
        """The topic takes nothing, and the log goes on."""
        database = self.both.database
        database.create(TOPIC, cap_records=database.state(TOPIC).count, discard="reject")
        self.turn()
        with pytest.raises(HeadwaterError):
            self.both.feeder.round()
        self.compact()
        self.turn()
        self.compact()
        database.create(TOPIC, cap_records=0, discard="old")

    def compact(self) -> None:
        self.both.store.compact()

    def feed(self) -> None:
        self.both.feeder.round()

    def restart(self) -> None:
        self.both.close()
        self.both = self.opened()


@cache
def story(kind: FsyncKind) -> Story:
    teller = Teller(kind)
    teller.both.begin()
    teller.feed()
    teller.story.disk.settle()
    teller.turn()
    teller.feed()
    for step in (
        teller.compact, teller.turn, teller.turn, teller.compact, teller.feed, teller.turn,
        teller.refuse, teller.compact, teller.feed, teller.compact, teller.turn,
        teller.restart, teller.turn, teller.compact, teller.feed, teller.compact, teller.turn,
    ):  # fmt: skip
        step()
    assert teller.both.store.wal_stats().oldest_segment > 4, "the log was compacted on the way"
    return teller.story


def judge(crashed: FakeDisk, kind: FsyncKind, acked: list[int], label: str) -> None:
    both = Both(crashed, kind, segment_bytes=SEGMENT_BYTES, feed=False)
    both.store.compact()
    both.store.compact()  # what lies before the older of two snapshots may go
    if both.database.engine.find(TOPIC) is not None:
        both.database.create(TOPIC, cap_records=0, discard="old")  # it refuses no longer
    both.feed(crashed)
    both.feeder.round()
    both.turn()
    both.feeder.round()
    told = both.told()
    assert not [each for each in told if each.get("type") == "gap"], label
    offsets = [each["wal_offset"] for each in told]
    assert offsets == sorted(set(offsets)), f"{label}: each once, in order"
    missing = set(acked) - set(offsets)
    assert not missing, f"{label}: {sorted(missing)} are missing"
    both.store.compact()
    both.store.compact()
    assert both.store.wal_stats().oldest_segment >= both.feeder.position >> 40, "nobody holds it"


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("kind", [FsyncKind.EVERY_WRITE, FsyncKind.NEVER])
def test_a_crash_anywhere_leaves_each_acked_transition_once_in_the_topic(
    kind: FsyncKind, name: str
) -> None:
    told = story(kind)
    waits = kind is FsyncKind.EVERY_WRITE or name == "kill"
    for crashed in slice_of(told.disk.crash_states(plan=PLANS[name]), EVERY[name]):
        # A log that waits for no sync may lose what was acknowledged, but never with the topic
        # having it, and never some in the middle.
        acked = told.acked_at(crashed.crash_point) if waits else []
        judge(crashed, kind, acked, crashed.label)
        tried(f"machines, compaction and feeding, {kind.value}: {name}")


def test_a_second_crash_in_the_start_after_a_crash_loses_nothing_either() -> None:
    kind = FsyncKind.EVERY_WRITE
    told = story(kind)
    for crashed in islice(told.disk.crash_states(plan=KILL), 0, None, 60):  # also in full
        acked = told.acked_at(crashed.crash_point)
        recorder = FakeDisk(image=crashed.snapshot())
        judge(recorder, kind, acked, crashed.label)
        states = islice(recorder.crash_states(plan=PREFIXES), 0, None, 16)
        for again in slice_of(states, 4):
            judge(again, kind, acked, f"{crashed.label}, then {again.label}")
            tried("machines, compaction and feeding: crashes in the start")
