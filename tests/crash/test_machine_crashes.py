"""State machines through crashes: what was acknowledged is there, a batch is whole or absent.

A story is told once on a recording disk. Then the power fails, or the process dies, at its every
disk call; the store is opened on what is left, and must be in a state the story knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from headwater.api import machine_requests as requests
from headwater.config.machines import FsyncKind, MachineSettings
from headwater.testing import (
    DROPS,
    KILL,
    PAIRS,
    PREFIXES,
    RANDOM,
    TORN,
    CrashKind,
    CrashPlan,
    FakeDisk,
    ManualClock,
)
from tests.crash.matrix import slice_of, tried
from tests.rig.machines import ORDER, ORDER_2, SMALL, Heard, SteppedStore, new_disk, policy

pytestmark = pytest.mark.crash

PLANS: dict[str, CrashPlan] = {
    "kill": KILL,
    "prefixes": PREFIXES,
    "drops": DROPS,
    "pairs": PAIRS,
    "torn": replace(TORN, tear_every_byte_max=16),
    "random": replace(RANDOM, random_states=2),
}
EVERY = {"kill": 1, "prefixes": 2, "drops": 4, "pairs": 11, "torn": 9, "random": 4}
POLICIES = {
    "every_write": SMALL,
    "every_n": replace(SMALL, fsync_policy=policy(FsyncKind.EVERY_N, 3)),
    "every_ms": replace(SMALL, fsync_policy=policy(FsyncKind.EVERY_MS, 50)),
    "never": replace(SMALL, fsync_policy=policy(FsyncKind.NEVER)),
}
State = dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """From this point of the trace on, all states up to this one were acknowledged."""

    point: int
    acked: int


@dataclass(frozen=True)
class Story:
    disk: FakeDisk
    states: list[State]
    """Every state in the order of the log; a crash leaves one of them."""
    moments: list[Moment]
    settings: MachineSettings
    end_ms: int

    def acked_at(self, point: int) -> int:
        return max(m.acked for m in self.moments if m.point <= point)

    def begun_at(self, point: int) -> int:
        """The newest state that may be on disk: that of the operation under way."""
        later = [m.acked for m in self.moments if m.point > point]
        return min(later, default=self.moments[-1].acked)


class Teller:
    """Tells a story and remembers what was true when."""

    def __init__(self, settings: MachineSettings) -> None:
        self.disk = new_disk()
        self.clock = ManualClock()
        self.settings = settings
        self.store = SteppedStore(self.disk, settings, self.clock)
        self.states: list[State] = [self.store.state()]
        self.moments = [Moment(0, 0)]

    def do(self, *works: Callable[[], Any]) -> None:
        """All of the works in one group of the log."""
        store = self.store
        known: list[State] = []
        commit = store.book._commit

        def commit_and_note(change: Any, effects: Any) -> None:
            if not change.is_batch:  # each of its entries stands for itself
                known.extend(_states_within(store, change))
            commit(change, effects)
            known.append(store.state())

        store.book._commit = commit_and_note  # type: ignore[method-assign]
        with store.owner.holding():
            for work in works:
                store.owner.call(work)
        store.book._commit = commit  # type: ignore[method-assign]
        self.clock.advance(7_000)
        self._note(known)

    def restart(self) -> None:
        self.store.close()
        self._note([])
        self.store = SteppedStore(self.disk, self.settings, self.clock)
        assert self.store.state() == self.states[-1]
        self._note([])

    def _note(self, known: list[State]) -> None:
        self.states += known
        self.moments.append(Moment(self.disk.point, len(self.states) - 1))

    def told(self) -> Story:
        return Story(self.disk, self.states, self.moments, self.settings, self.clock.wall_ms())


def _states_within(store: SteppedStore, change: Any) -> list[State]:
    """What a crash may leave of events that went into the log together."""
    found: list[State] = []
    instances, keys = dict(store.tables.instances), dict(store.tables.keys)
    for effect in change.draft.effects[:-1]:
        store.tables.instances[effect.after.id] = effect.after
        if effect.remembered is not None:
            store.tables.keys[effect.remembered.full_key] = effect.remembered
        found.append(store.state())
    store.tables.instances, store.tables.keys = instances, keys
    return found


@cache
def story(settings: MachineSettings) -> Story:
    teller = Teller(settings)

    def do(*names: tuple[str, tuple[Any, ...]]) -> None:
        teller.do(*[lambda name=name, given=given: getattr(teller.store, name)(*given)
                    for name, given in names])  # fmt: skip

    do(("put_machine", ("order", 1, ORDER)))
    do(("create_instance", ("order", 1, "a", {"total": 5}, "key-a")))
    do(
        ("create_instance", ("order", None, "b", {"total": 1})),
        ("apply_event", ("a", "PAY", {"by": "card"})),
        ("apply_event", ("a", "SHIP")),
    )
    batch = [
        requests.CreateInstance("order", instance_id=f"batch-{n}", context={"total": n})
        for n in range(3)
    ]
    do(("batch", ([*batch, requests.ApplyEvent("batch-1", "PAY")],)))
    teller.do(lambda: teller.store.apply_event("b", "PAY", {"x": 1}, idempotency_key="pay-b"))
    events = [
        requests.ApplyEvent("a", "CLOSE", {"n": 1}),
        requests.ApplyEvent("b", "PAY"),  # leads nowhere: refused alone
        requests.ApplyEvent("batch-1", "SHIP", None, None, None, None, "ship"),
        requests.ApplyEvent("a", "AGAIN", {"m": "x" * 40}),
    ]
    teller.do(lambda: teller.store.come(*map(Heard, events)))
    teller.do(teller.store.compact)
    do(("delete_instance", ("batch-0",)), ("apply_event", ("batch-2", "PAY", {"y": [1, 2]})))
    teller.restart()
    do(("put_machine", ("order", 2, ORDER_2)))
    do(("migrate_instance", ("b", 2, {"paid": "settled"})))
    teller.do(lambda: teller.store.create_instance("order", 2, "short", {}, None, 5))
    teller.do(teller.store.maintenance.round)
    do(
        (
            "batch",
            (
                [
                    requests.DeleteInstance("batch-1"),
                    requests.ApplyEvent("b", "CLOSE"),
                ],
            ),
        )
    )
    teller.do(teller.store.compact)
    do(("apply_event", ("b", "AGAIN", {"z": "w" * 300})), ("apply_event", ("a", "PAY")))
    teller.store.tick()
    teller.restart()
    return teller.told()


def judge(told: Story, crashed: FakeDisk) -> None:
    """The store opens, in a state it may be in, and says that nothing was damaged."""
    point = crashed.crash_point
    killed = crashed.crash_kind is CrashKind.KILL
    waits = told.settings.fsync_policy.kind is FsyncKind.EVERY_WRITE
    oldest = told.acked_at(point) if killed or waits else 0
    possible = told.states[oldest : told.begun_at(point) + 1]
    clock = ManualClock(told.end_ms)
    store = SteppedStore(crashed, told.settings, clock)
    found = store.state()
    assert found in possible, crashed.label
    assert not store.report.log.damage, crashed.label
    assert not store.report.doubtful, crashed.label
    synced_meta = SteppedStore(crashed.after_power_loss(), told.settings, clock)
    assert synced_meta.state() == found, crashed.label
    assert not synced_meta.report.log.damage, crashed.label
    if found["machines"]:
        store.do(lambda: store.create_instance("order", 1, "after", {"total": 1}))
        store.do(lambda: store.apply_event("after", "PAY"))
    then = store.state()
    again = SteppedStore(crashed.after_kill(), told.settings, clock)
    assert again.state() == then, crashed.label
    assert not again.report.log.damage, crashed.label
    assert not again.report.log.torn, crashed.label
    if waits:
        lost = SteppedStore(crashed.after_power_loss(), told.settings, clock)
        assert lost.state() == then, crashed.label


@pytest.mark.claims(51, 105, 106, 107)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("kind", POLICIES)
def test_a_crash_leaves_a_state_the_story_knows(kind: str, name: str) -> None:
    told = story(POLICIES[kind])
    every = EVERY[name] * (1 if kind == "every_write" else 4)
    for crashed in slice_of(told.disk.crash_states(plan=PLANS[name]), every):
        judge(told, crashed)
        tried(f"machines, {kind}: {name}")


@pytest.mark.parametrize("kind", ["every_write", "never"])
def test_a_crash_during_recovery_leaves_the_same_state(kind: str) -> None:
    told = story(POLICIES[kind])
    for crashed in slice_of(told.disk.crash_states(plan=PLANS["random"]), 60):
        clock = ManualClock(told.end_ms)
        base = FakeDisk(image=crashed.snapshot())
        recorder = base.clone()
        store = SteppedStore(recorder, told.settings, clock)
        wanted = store.state()
        for again in slice_of(recorder.crash_states(plan=PLANS["prefixes"]), 2):
            if again.crash_point > recorder.point:
                continue
            assert SteppedStore(again, told.settings, clock).state() == wanted, again.label
            tried("machines: crashes in recovery")
