"""Routers through crashes: every record has its copy, with exactly_once just one in one place.

A story of writes, copies, deletes, acks and checkpoints is told once on a recording disk. Then the
power fails, or the process dies, at its every disk call; the engine is opened on what is left, and
judged by what readers of the destinations had seen until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from headwater.engine.database import Database
from headwater.testing import DROPS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk, ManualClock
from tests.crash.matrix import slice_of, tried
from tests.rig.life import SMALL, new_disk, open_stepped, with_shards

pytestmark = pytest.mark.crash

PLANS = {
    "prefixes": PREFIXES,
    "drops": DROPS,
    "torn": replace(TORN, tear_every_byte_max=16),
    "random": replace(RANDOM, random_states=1),
}
EVERY = {"prefixes": 9, "drops": 40, "torn": 80, "random": 24}
Seen = tuple[tuple[int, Any], ...]


@dataclass(frozen=True)
class Known:
    """What had been answered, from this point of the trace on."""

    point: int
    written: tuple[Any, ...] = ()
    """Into the source, in order."""
    own: frozenset[Any] = frozenset()
    """Into a destination."""
    gone: frozenset[tuple[str, Any]] = frozenset()
    """Deleted from a destination, or acked in it, for good."""
    seen: tuple[tuple[str, int, Seen], ...] = ()
    """By destination: its head, and what is at each seq."""
    routers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plot:
    """Who feeds whom."""

    routers: dict[str, dict[str, Any]]
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    own: str | None = None
    """A destination that others write to as well."""
    deletes_from: str | None = None
    acks_in: str | None = None
    shards: int = 1

    @property
    def dests(self) -> list[str]:
        return sorted({router["dest"] for router in self.routers.values()})

    def sources_of(self, dest: str) -> set[str]:
        return {router["source"] for router in self.routers.values() if router["dest"] == dest}

    def is_exact(self, dest: str) -> bool:
        """Once all the way from the first source: a chain is as exact as its weakest router."""
        into = [router for router in self.routers.values() if router["dest"] == dest]
        return all(
            router.get("guarantee") == "exactly_once" and self.is_exact(router["source"])
            for router in into
        )


EXACT = {"guarantee": "exactly_once"}
PLOTS = {
    "exactly once": Plot({"r": {"source": "in", "dest": "out", **EXACT}}),
    "exactly once, filtered": Plot(
        {"r": {"source": "in", "dest": "out", "filter": "even", **EXACT}}
    ),
    "exactly once, deleted from": Plot(
        {"r": {"source": "in", "dest": "out", **EXACT}}, deletes_from="out"
    ),
    "exactly once into a queue": Plot(
        {"r": {"source": "in", "dest": "out", **EXACT}}, {"out": {"type": "queue"}}, acks_in="out"
    ),
    "at least once": Plot({"r": {"source": "in", "dest": "out"}}),
    "at least once, written to and deleted from": Plot(
        {"r": {"source": "in", "dest": "out"}}, own="out", deletes_from="out"
    ),
    "at least once into a queue": Plot(
        {"r": {"source": "in", "dest": "out"}}, {"out": {"type": "queue"}}, acks_in="out"
    ),
    "two into one": Plot(
        {
            "even": {"source": "in", "dest": "out", "filter": "even"},
            "odd": {"source": "in", "dest": "out", "filter": "odd"},
        }
    ),
    "a chain, exactly once": Plot(
        {
            "first": {"source": "in", "dest": "middle", **EXACT},
            "second": {"source": "middle", "dest": "out", "filter": "odd", **EXACT},
        },
        deletes_from="middle",
        shards=2,
    ),
    "a chain over two shards": Plot(
        {
            "first": {"source": "in", "dest": "middle"},
            "second": {"source": "middle", "dest": "out", **EXACT},
        },
        deletes_from="out",
        shards=2,
    ),
}


def contents(db: Database, topic: str) -> Seen:
    found = []
    cursor = 0
    while True:
        diff = db.diff(topic, cursor, limit=1_000)
        found += [(record.seq, record.data) for record in diff.records]
        cursor = diff.next_from_seq
        if diff.caught_up:
            return tuple(found)


def forward_all(db: Database) -> None:
    """Forward, with the keeper making room in memory where that is needed."""
    db.engine.copy_rounds.run_dry()
    while any(router.lag for router in db.routers()):
        db.engine._housekeeping.round()
        db.engine.copy_rounds.route_all()
        assert db.engine.copy_rounds.round(), db.engine.copy_rounds.failures
        db.engine.copy_rounds.run_dry()


class Story:
    def __init__(self, plot: Plot) -> None:
        self.plot = plot
        self.settings = with_shards(SMALL, plot.shards)
        self.disk = new_disk()
        self.clock = ManualClock()
        self.db = open_stepped(self.disk, self.settings, self.clock)
        self.moments = [Known(self.disk.point)]
        self.count = 0

    def do(self, work: Callable[[], dict[str, Any]]) -> None:
        changed = work()
        before = self.moments[-1]
        seen = tuple(
            (dest, self.db.state(dest).head_seq, contents(self.db, dest))
            for dest in self.plot.dests
            if self.db.engine.find(dest) is not None
        )
        self.moments.append(replace(before, **changed, seen=seen, point=self.disk.point))

    def define(self) -> None:
        self.db.create("in")
        for name, settings in self.plot.topics.items():
            self.db.create(name, **settings)
        for name, settings in self.plot.routers.items():
            self.db.put_router(name, **settings)
        self.do(lambda: {"routers": frozenset(self.plot.routers)})

    def write(self, count: int) -> None:
        numbers = tuple(range(self.count, self.count + count))
        self.count += count
        records = [{"data": n, "tag": "odd" if n % 2 else "even"} for n in numbers]

        def work() -> dict[str, Any]:
            self.db.append("in", records)
            return {"written": self.moments[-1].written + numbers}

        self.do(work)

    def forward(self) -> None:
        def work() -> dict[str, Any]:
            self.db.engine.copy_rounds.run_dry()
            return {}

        self.do(work)

    def write_own(self) -> None:
        dest, data = self.plot.own, f"own {self.count}"
        if dest is None:
            return

        def work() -> dict[str, Any]:
            self.db.append(dest, {"data": data})
            return {"own": self.moments[-1].own | {data}}

        self.do(work)

    def remove(self) -> None:
        """Delete the oldest two, or ack two jobs."""
        dest = self.plot.deletes_from or self.plot.acks_in
        if dest is None:
            return
        gone = [data for _, data in contents(self.db, dest)[:2]]

        def work() -> dict[str, Any]:
            if self.plot.acks_in is None:
                seqs = [seq for seq, _ in contents(self.db, dest)[:2]]
                self.db.delete(dest, before_seq=seqs[-1] + 1)
            else:
                claimed = self.db.claim(dest, "worker", 2)
                self.db.ack(dest, "worker", claimed.seqs)
                gone[:] = [job.record.data for job in claimed.jobs]
            return {"gone": self.moments[-1].gone | {(dest, data) for data in gone}}

        self.do(work)

    def checkpoint(self) -> None:
        def work() -> dict[str, Any]:
            self.db.checkpoint()
            return {}

        self.do(work)

    def absorb(self) -> None:
        """What is large goes into segments; no snapshot."""
        checkpointer = self.db.engine._housekeeping._checkpointer

        def work() -> dict[str, Any]:
            checkpointer.run(full=False)
            return {}

        self.do(work)

    def reopen(self) -> None:
        def work() -> dict[str, Any]:
            self.db.close()
            self.db = open_stepped(self.disk, self.settings, self.clock)
            return {}

        self.do(work)

    def between(self, point: int) -> tuple[Known, Known]:
        """What was answered before the crash, and what the next answer would have said."""
        at = max(i for i, known in enumerate(self.moments) if known.point <= point)
        first = next(i for i, k in enumerate(self.moments) if k.point == self.moments[at].point)
        return self.moments[first], self.moments[min(at + 1, len(self.moments) - 1)]


def told(plot: Plot) -> Story:
    story = Story(plot)
    story.define()
    story.write(4)
    story.forward()
    story.remove()
    story.write(3)
    story.forward()
    story.checkpoint()
    story.write(5)
    story.write_own()
    story.forward()
    story.write_own()
    story.write(2)
    story.forward()
    story.absorb()
    story.write(2)
    story.forward()
    story.remove()
    story.reopen()
    story.write(6)
    story.forward()
    story.checkpoint()
    story.write(3)
    story.forward()
    story.remove()
    story.write_own()
    story.write(1)
    story.checkpoint()
    story.forward()
    return story


@cache
def recorded(name: str) -> Story:
    return told(PLOTS[name])


def different_states(story: Story, plan: CrashPlan) -> Iterator[FakeDisk]:
    seen: set[int] = set()
    made = story.moments[1].point
    for state in story.disk.crash_states(plan=plan):
        key = hash((story.between(max(state.crash_point, made)), *state.files().items()))
        if state.crash_point >= made and key not in seen:
            seen.add(key)
            yield state


def matching(plot: Plot, dest: str, numbers: list[int]) -> list[int]:
    """What of the source's records belongs into a destination."""
    found: set[int] = set()
    for router in plot.routers.values():
        if router["dest"] == dest:
            above = numbers
            if router["source"] != "in":
                above = matching(plot, router["source"], numbers)
            kind = {"even": 0, "odd": 1}.get(router.get("filter", ""))
            found |= {n for n in above if kind is None or n % 2 == kind}
    return sorted(found)


def judge(story: Story, state: FakeDisk) -> None:
    before, after = story.between(state.crash_point)
    what, plot = state.label, story.plot
    db = open_stepped(state, story.settings, story.clock)
    assert {router.router for router in db.routers()} == set(plot.routers), what
    for dest, head, seen in before.seen:
        assert db.state(dest).head_seq >= head, f"{what}: the head of {dest} went back"
        then = dict(contents(db, dest))
        for seq, data in seen:
            if plot.is_exact(dest):
                gone = {(dest, data)} & (before.gone | after.gone)
                assert gone or then.get(seq) == data, f"{what}: {dest} lost {data} at {seq}"
            assert then.get(seq, data) == data, f"{what}: {dest} has another record at {seq}"
    forward_all(db)
    source = [data for _, data in contents(db, "in")]
    assert set(before.written) <= set(source), what
    for dest in plot.dests:
        judge_dest(plot, dest, db, before, after, what)
    assert all(router.lag == 0 for router in db.routers()), what
    final = {dest: (db.state(dest).head_seq, contents(db, dest)) for dest in plot.dests}
    again = open_stepped(state.after_power_loss(), story.settings, story.clock)
    forward_all(again)
    for dest, (head, held) in final.items():
        assert again.state(dest).head_seq >= head, f"{what}, and again: {dest} went back"
        if plot.is_exact(dest):
            assert contents(again, dest) == held, f"{what}, and again: {dest} differs"


def judge_dest(plot: Plot, dest: str, db: Database, before: Known, after: Known, what: str) -> None:
    source = [data for _, data in contents(db, "in")]
    held = [data for _, data in contents(db, dest)]
    copies = [data for data in held if isinstance(data, int)]
    wanted = matching(plot, dest, source)
    gone = {data for where, data in before.gone if where == dest}
    maybe = {data for where, data in after.gone if where == dest}
    lost = set(wanted) - set(copies) - gone - maybe
    assert not lost, f"{what}: {dest} has no copy of {lost}"
    if all(plot.is_exact(source) for source in plot.sources_of(dest)):
        assert not set(copies) & gone, f"{what}: {dest} has again what was deleted"
    assert set(copies) <= set(wanted), what
    assert before.own <= set(held) | gone | maybe, f"{what}: {dest} lost what was written to it"
    firsts = list(dict.fromkeys(copies))
    if plot.is_exact(dest):
        assert copies == sorted(firsts), f"{what}: {dest} has a record twice or too late: {copies}"


@pytest.mark.claims(324, 353)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", PLOTS)
def test_no_copy_is_lost_or_doubled_whatever_a_crash_leaves(name: str, plan: str) -> None:
    story = recorded(name)
    states = different_states(story, PLANS[plan])
    for state in slice_of(states, EVERY[plan], always=3):
        judge(story, state)
        tried(f"router, {name}: {plan}")
