"""The engine against a list that is easy to believe: any order of events, crashes in the middle.

Every promise that can be seen from outside (I1 to I4, I8 to I10, I15) is checked after every step
and after every recovery; what a crash may leave is decided by the durability class of each topic.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.config.engine import EngineSettings
from headwater.core.units import US_PER_S
from headwater.testing import CrashKind, CrashPlan, CrashPoint, FaultDisk, SimulatedCrash
from tests.crash.matrix import FULL, tried
from tests.rig.comparison import read_events, world_events
from tests.rig.life import SMALL, Life, check_again, new_disk, with_shards

TEN_YEARS_MS = 10 * 365 * 24 * 3_600_000
NAMES = ("a", "b", "c", "d")
TAGS = (None, "x", "xy", "xyz", "y")
MATCHES = ("x", "x*", "y", "*", "nobody")
CRASHES = (
    CrashKind.KILL,
    CrashKind.NONE,
    CrashKind.ALL,
    CrashKind.SPLIT,
    CrashKind.SINGLE_DROP,
    CrashKind.RANDOM,
)

names = st.sampled_from(NAMES)
one_record = st.fixed_dictionaries(
    {"data": st.one_of(st.integers(0, 9), st.text("ab", max_size=60).map(lambda s: {"s": s}))},
    optional={
        "tag": st.sampled_from(TAGS[1:]),
        "node": st.sampled_from(("n1", "n2")),
        "meta": st.just({"trace": "t1"}),
    },
)
some_settings = st.fixed_dictionaries(
    {},
    optional={
        "durability": st.sampled_from(("fsync", "fsync", "disk", "memory")),
        "cap_records": st.sampled_from((0, 3, 12)),
        "cap_bytes": st.sampled_from((0, 60, 300)),
        "discard": st.sampled_from(("old", "old", "reject")),
        "ttl_ms": st.sampled_from((0, 0, 5_000)),
    },
)


class EngineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.life: Life = Life(new_disk())
        self.crash_soon: tuple[int, CrashKind, int] | None = None
        self.settings: EngineSettings = SMALL

    @initialize(shards=st.sampled_from((1, 2)))
    def open(self, shards: int) -> None:
        self.life.abandon()
        self.settings = with_shards(SMALL, shards)
        fake = new_disk()
        self.life = Life(fake, FaultDisk(fake), self.settings)

    def do(self, operation: Any, *args: Any, **kwargs: Any) -> None:
        """The operation; in the middle of it the crash that was announced, if there was one."""
        if self.crash_soon is None:
            operation(*args, **kwargs)
            return
        nth, kind, seed = self.crash_soon
        self.crash_soon = None
        disk = self.life.disk
        assert isinstance(disk, FaultDisk)
        disk.calls.clear()
        disk.crash_point = CrashPoint(nth)
        disk._crash_matches = 0
        try:
            operation(*args, **kwargs)
        except SimulatedCrash:
            self.crash(kind, seed, self.life.worlds_at(self.life.fake.point))
            return
        disk.crash_point = None
        self.crash(kind, seed, [self.life.world.copy()])

    def crash(self, kind: CrashKind, seed: int, worlds: list[Any]) -> None:
        fake = self.life.fake
        plan = CrashPlan(frozenset({kind}), random_states=1, seed=seed)
        states = list(fake.crash_states(fake.point, plan))
        if not states:
            plan = CrashPlan.of(CrashKind.NONE)
            states = list(fake.crash_states(fake.point, plan))
        state = states[seed % len(states)]
        reborn = self.life.reborn(state, worlds, self.settings)
        check_again(reborn, state)
        reborn.disk = FaultDisk(state)
        reborn.abandon()
        self.life = Life(state, reborn.disk, self.settings, self.life.clock, reborn.world)
        self.life.wall_max_ms = reborn.wall_max_ms
        tried(f"engine machine: {kind.value}")

    # What users do.

    @rule(name=names, settings=some_settings)
    def create(self, name: str, settings: dict[str, Any]) -> None:
        if settings.get("ttl_ms"):
            settings["discard"] = "old"  # what a reject refuses would depend on the moment
        known = self.life.world.topics.get(name)
        if known is not None and known.settings.ttl_ms:
            settings["discard"] = "old"
        if known is not None and not known.durability.is_logged:
            settings.pop("durability", None)
        self.do(self.life.create, name, **settings)

    @rule(name=st.sampled_from(("e", "f")))
    def create_ephemeral(self, name: str) -> None:
        self.do(self.life.create, name, durability="ephemeral")

    @rule(
        name=st.sampled_from((*NAMES, "e")),
        records=st.lists(one_record, min_size=1, max_size=6),
        key=st.sampled_from((None, None, "k1", "k2")),
    )
    def append(self, name: str, records: list[dict[str, Any]], key: str | None) -> None:
        self.do(self.life.append, name, records, key=key)

    @rule(name=names, count=st.integers(1, 12))
    def append_one_by_one(self, name: str, count: int) -> None:
        for number in range(count):
            self.do(self.life.append, name, [{"data": number}])

    @rule(name=names, off=st.sampled_from((0, 0, 1, 5)))
    def append_if_head_is(self, name: str, off: int) -> None:
        topic = self.life.world.topics.get(name)
        head = (0 if topic is None else topic.visible_seq) + off
        self.do(self.life.append, name, [{"data": "cas"}], expect_head_seq=head)

    @precondition(lambda self: self.life.world.topics)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.life.world.topics)))
        head = self.life.world.topics[name].visible_seq
        before = data.draw(st.one_of(st.none(), st.integers(0, head + 2)))
        match = data.draw(st.sampled_from(MATCHES if before is None else (None, *MATCHES)))
        self.do(self.life.delete, name, before_seq=before, match=match)

    @rule(name=st.sampled_from((*NAMES, "e")))
    def drop(self, name: str) -> None:
        self.do(self.life.drop, name)

    @precondition(lambda self: self.life.world.topics)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """From any cursor, in pages of any size."""
        name = data.draw(st.sampled_from(sorted(self.life.world.topics)))
        self.life.settle_ages()
        topic = self.life.world.topics[name]
        cursor = data.draw(st.integers(0, topic.visible_seq + 3))
        limit = data.draw(st.integers(1, 9))
        found = list(read_events(self.life.db, name, cursor, limit))
        assert found == list(world_events(topic, cursor))

    # What the keeper does.

    @rule()
    def checkpoint(self) -> None:
        self.do(self.life.checkpoint)

    @rule()
    def absorb(self) -> None:
        self.do(self.life.absorb)

    @rule()
    def reclaim(self) -> None:
        self.do(self.life.reclaim)

    @rule()
    def keeper_round(self) -> None:
        self.do(self.life.round)

    # What happens to everybody.

    @rule(us=st.sampled_from((1_000, 120_000, 3 * US_PER_S, 70 * US_PER_S)))
    def time_passes(self, us: int) -> None:
        self.life.tick(us)

    @rule(ms=st.sampled_from((TEN_YEARS_MS, -TEN_YEARS_MS, 3_600_000, -1_000)))
    def wall_clock_jumps(self, ms: int) -> None:
        if self.life.clock.wall_ms() + ms < 0:
            return
        self.life.clock.jump_wall(ms)

    @rule(shards=st.sampled_from((1, 1, 2, 3)))
    def restart(self, shards: int) -> None:
        self.settings = with_shards(SMALL, shards)
        self.life.close()
        self.life.reopen(self.settings)

    @rule(kind=st.sampled_from(CRASHES), seed=st.integers(0, 1_000))
    def crash_now(self, kind: CrashKind, seed: int) -> None:
        self.crash(kind, seed, [self.life.world.copy()])

    @rule(
        nth=st.integers(0, 40),
        kind=st.sampled_from(CRASHES),
        seed=st.integers(0, 1_000),
        shards=st.sampled_from((1, 1, 2)),
    )
    def announce_a_crash(self, nth: int, kind: CrashKind, seed: int, shards: int) -> None:
        self.crash_soon = (nth, kind, seed)
        self.settings = with_shards(SMALL, shards)

    @invariant()
    def everything_is_as_promised(self) -> None:
        self.life.check()


TestEngineMachine = pytest.mark.crash(EngineMachine.TestCase)
TestEngineMachine.settings = hypothesis_settings(
    max_examples=400 if FULL else 40,
    stateful_step_count=40 if FULL else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
