"""Queues through crashes: no job lost, no acked job back, no durable lease held twice.

A story of writes, claims, acks, nacks, extensions, dead letters and checkpoints is told once on a
recording disk. Then the power fails, or the process dies, at its every disk call; the engine is
opened on what is left and judged by what had been answered until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from headwater.engine.database import Database
from headwater.testing import DROPS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk, ManualClock
from tests.crash.matrix import slice_of, tried
from tests.rig.life import SMALL, new_disk, open_stepped

pytestmark = pytest.mark.crash

PLANS = {
    "prefixes": PREFIXES,
    "drops": DROPS,
    "torn": replace(TORN, tear_every_byte_max=16),
    "random": replace(RANDOM, random_states=1),
}
EVERY = {"prefixes": 3, "drops": 12, "torn": 30, "random": 8}
LEASE_MS = 60_000


@dataclass(frozen=True)
class Known:
    """What had been answered, from this point of the trace on."""

    point: int
    live: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    """Acked, or put away."""
    held: frozenset[int] = frozenset()
    kept_back: frozenset[int] = frozenset()
    appointed: frozenset[int] = frozenset()
    deliveries: tuple[tuple[int, int], ...] = ()
    lease_id: int = 0


class Story:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.disk = new_disk()
        self.clock = ManualClock()
        self.durable = bool(settings.get("leases_durable"))
        self.db = open_stepped(self.disk, SMALL, self.clock)
        self.moments = [Known(self.disk.point)]
        self._do(lambda _: {}, lambda: self.db.create("jobs", type="queue", **settings))

    def _do(self, change: Callable[[Known], dict[str, Any]], work: Callable[[], Any]) -> None:
        work()
        before = self.moments[-1]
        after = replace(before, **change(before), point=self.disk.point)
        gone = after.live - live_seqs(self.db) if len(self.moments) > 1 else frozenset()
        self.moments.append(
            replace(
                after,
                live=after.live - gone,
                held=after.held - gone,
                kept_back=after.kept_back - gone,
                done=after.done | gone,
            )
        )

    def write(self, count: int) -> None:
        records = [{"data": {"n": n}, "tag": f"k{n % 3}"} for n in range(count)]
        first = self.db.state("jobs").head_seq + 1
        new = frozenset(range(first, first + count))
        self._do(lambda known: {"live": known.live | new}, lambda: self.db.append("jobs", records))

    def write_for_later(self) -> None:
        seq = self.db.state("jobs").head_seq + 1
        record = {"data": "later", "deliver_at": self.clock.wall_ms() + LEASE_MS}
        self._do(
            lambda known: {"live": known.live | {seq}, "appointed": known.appointed | {seq}},
            lambda: self.db.append("jobs", record),
        )

    def claim(self, limit: int) -> list[int]:
        claimed: list[Any] = []

        def work() -> None:
            claimed.extend(self.db.claim("jobs", "one", limit, lease_ms=LEASE_MS).jobs)

        def change(known: Known) -> dict[str, Any]:
            counts = dict(known.deliveries)
            for job in claimed:
                counts[job.record.seq] = job.deliveries
            seqs = frozenset(job.record.seq for job in claimed)
            return {
                "held": known.held | seqs,
                "kept_back": known.kept_back - seqs,
                "lease_id": max([known.lease_id, *(job.lease_id for job in claimed)]),
                "deliveries": tuple(counts.items()),
            }

        self._do(change, work)
        return [job.record.seq for job in claimed]

    def ack(self, seqs: list[int]) -> None:
        if seqs:
            self._do(lambda _: {}, lambda: self.db.ack("jobs", "one", seqs))
            assert not self.moments[-1].live & set(seqs)

    def nack(self, seqs: list[int], delay_ms: int) -> None:
        back = frozenset(seqs)
        if not seqs:
            return
        self._do(
            lambda known: {
                "held": known.held - back,
                "kept_back": known.kept_back | (back if delay_ms else frozenset()),
            },
            lambda: self.db.nack("jobs", "one", seqs, delay_ms=delay_ms),
        )

    def extend(self, seqs: list[int]) -> None:
        if seqs:
            self._do(
                lambda _: {}, lambda: self.db.extend("jobs", "one", seqs, lease_ms=2 * LEASE_MS)
            )

    def checkpoint(self) -> None:
        self._do(lambda _: {}, self.db.checkpoint)

    def reopen(self) -> None:
        def work() -> None:
            self.db.close()
            self.db = open_stepped(self.disk, SMALL, self.clock)

        def change(known: Known) -> dict[str, Any]:
            return {} if self.durable else {"held": frozenset(), "kept_back": frozenset()}

        self._do(change, work)

    def between(self, point: int) -> tuple[Known, Known]:
        """What was answered before the crash, and what the next answer would have said."""
        at = max(i for i, known in enumerate(self.moments) if known.point <= point)
        first = next(i for i, k in enumerate(self.moments) if k.point == self.moments[at].point)
        return self.moments[first], self.moments[min(at + 1, len(self.moments) - 1)]


def live_seqs(db: Database) -> set[int]:
    return {record.seq for record in db.diff("jobs", limit=1_000).records}


def told(settings: dict[str, Any]) -> Story:
    story = Story(settings)
    story.write(8)
    first = story.claim(4)
    story.ack(first[:2])
    story.nack(first[2:3], 0)
    story.extend(first[3:])
    story.checkpoint()
    story.write(4)
    second = story.claim(3)
    story.nack(second[:1], 50_000)
    story.write_for_later()
    story.ack(second[1:])
    story.reopen()
    third = story.claim(4)
    story.ack(third[1:3])
    story.checkpoint()
    story.nack(third[:1], 0)
    story.claim(2)
    story.checkpoint()
    story.checkpoint()
    fourth = story.claim(2)
    story.ack(fourth)
    return story


STORIES: dict[str, dict[str, Any]] = {
    "leases in memory": {},
    "durable leases": {"leases_durable": True},
    "durable leases by key": {"leases_durable": True, "fifo_key": "tag"},
    "dead letters": {"leases_durable": True, "max_deliveries": 1, "dead_letter": "dead"},
    "a disk queue": {"durability": "disk"},
}


@cache
def recorded(name: str) -> Story:
    return told(STORIES[name])


def different_states(story: Story, plan: CrashPlan) -> Iterator[FakeDisk]:
    seen: set[int] = set()
    made = story.moments[1].point
    for state in story.disk.crash_states(plan=plan):
        key = hash((story.between(max(state.crash_point, made)), *state.files().items()))
        if state.crash_point >= made and key not in seen:
            seen.add(key)
            yield state


def judge(story: Story, state: FakeDisk) -> None:
    before, after = story.between(state.crash_point)
    db = open_stepped(state, SMALL, story.clock)
    live = live_seqs(db)
    letters = {record.meta["$dead_letter_src_seq"] for record in dead_letters(db)}
    what = state.label
    lasting = before.live & after.live
    if db.state("jobs").config["durability"] == "fsync":
        assert lasting <= live | letters, f"{what}: jobs lost: {lasting - live - letters}"
    assert not live & before.done, f"{what}: acked jobs are back: {live & before.done}"
    assert live <= before.live | after.live, what
    claimed = db.claim("jobs", "late", 1_000)
    free = set(claimed.seqs)
    assert free <= live
    assert not free & after.appointed, f"{what}: delivered before its time"
    if story.durable:
        held = before.held & after.held
        assert not free & held, f"{what}: held twice: {free & held}"
        out = before.held | after.held | before.kept_back | after.kept_back
        out |= after.appointed
        keyed = db.state("jobs").config["fifo_key"] is not None
        limited = db.state("jobs").config["max_deliveries"] > 0
        if not keyed and not limited:
            assert live - out <= free, f"{what}: nobody may have {live - out - free}"
        counts, later = dict(before.deliveries), dict(after.deliveries)
        for job in claimed.jobs:
            seq = job.record.seq
            if counts.get(seq) == later.get(seq):
                assert job.deliveries == counts.get(seq, 0) + 1, f"{what}: deliveries of {seq}"
    else:
        left = live - free - after.appointed
        assert not left, f"{what}: {left} are free and were not given"
    for job in claimed.jobs:
        assert job.lease_id > before.lease_id, f"{what}: a fence was used before"
    db.ack("jobs", "late", claimed.seqs or [10**9])
    assert not live_seqs(db) & free
    after_loss = state.after_power_loss()
    again = open_stepped(after_loss, SMALL, story.clock)
    assert not live_seqs(again) & free, f"{what}: acked after the crash, and back after the next"


def dead_letters(db: Database) -> list[Any]:
    if not any(state.topic == "dead" for state in db.topics()):
        return []
    return db.diff("dead", limit=1_000).records


@pytest.mark.claims(382, 383, 391, 392, 399, 400)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", STORIES)
def test_a_queue_keeps_its_promises_whatever_a_crash_leaves(name: str, plan: str) -> None:
    story = recorded(name)
    states = different_states(story, PLANS[plan])
    for state in slice_of(states, EVERY[plan], always=3):
        judge(story, state)
        tried(f"queue, {name}: {plan}")
