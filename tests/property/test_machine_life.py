"""Random lives of state machines: events, batches, keys, time, compaction, kills, power losses.

Hypothesis looks for the shortest life after which the store and plain dictionaries disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headwater.api import machine_requests as requests
from headwater.config.machines import FsyncKind, MachineSettings
from headwater.model.machines.errors import MachineError
from headwater.testing import CrashKind, CrashPlan, FakeDisk, ManualClock
from tests.crash.matrix import FULL, tried
from tests.property.naive_machines import DEFINITIONS, NaiveMachines
from tests.rig.machines import SMALL, SteppedStore, new_disk, policy

pytestmark = pytest.mark.crash

NAMES = st.sampled_from(["a", "b", "c"])
EVENTS = st.sampled_from(["PAY", "SHIP", "CLOSE", "AGAIN"])
VERSIONS = st.sampled_from([1, 2])
TOTALS = st.integers(0, 2)
KEYS = st.one_of(st.none(), st.sampled_from(["k1", "k2"]))
TTLS = st.one_of(st.none(), st.none(), st.sampled_from([10, 1_000]))
POLICIES = st.sampled_from(
    [
        policy(FsyncKind.EVERY_WRITE),
        policy(FsyncKind.EVERY_WRITE),
        policy(FsyncKind.EVERY_N, 3),
        policy(FsyncKind.EVERY_MS, 5),
        policy(FsyncKind.NEVER),
    ]
)
SEGMENTS = st.sampled_from([600, 1_024, 8_192])
LOSSES = st.sampled_from([CrashKind.NONE, CrashKind.ALL, CrashKind.SPLIT, CrashKind.RANDOM])
APPLIES = st.tuples(st.just("apply"), NAMES, EVENTS)
CREATES = st.tuples(st.just("create"), NAMES, TOTALS)
DELETES = st.tuples(st.just("delete"), NAMES)


class MachineLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fake = new_disk()
        self.clock = ManualClock()
        self.model = NaiveMachines()
        self.past: list[NaiveMachines] = []
        """What a power loss may go back to, when answers do not wait for the sync."""

    @initialize(fsync_policy=POLICIES, segment_bytes=SEGMENTS)
    def begin(self, fsync_policy: Any, segment_bytes: int) -> None:
        self.settings: MachineSettings = replace(
            SMALL, fsync_policy=fsync_policy, wal_segment_bytes=segment_bytes
        )
        self.store = SteppedStore(self.fake, self.settings, self.clock)

    @rule(version=VERSIONS)
    def put_machine(self, version: int) -> None:
        self._both(
            lambda model: model.put(version),
            lambda: self.store.put_machine("order", version, DEFINITIONS[version]),
        )

    @rule(name=NAMES, version=VERSIONS, total=TOTALS, key=KEYS, ttl_ms=TTLS)
    def create(
        self, name: str, version: int, total: int, key: str | None, ttl_ms: int | None
    ) -> None:
        now = self.clock.wall_ms()
        self._both(
            lambda model: model.create(name, version, total, key, ttl_ms, now),
            lambda: self.store.create_instance(
                "order", version, name, {"total": total}, key, ttl_ms
            ),
        )

    @rule(name=NAMES, event=EVENTS, total=TOTALS, key=KEYS)
    def apply(self, name: str, event: str, total: int, key: str | None) -> None:
        payload = {"total": total, "by": event}
        self._both(
            lambda model: model.apply(name, event, payload, key),
            lambda: self.store.apply_event(name, event, payload, idempotency_key=key),
        )

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self._both(lambda model: model.delete(name), lambda: self.store.delete_instance(name))

    @rule(name=NAMES)
    def migrate(self, name: str) -> None:
        self._both(
            lambda model: model.migrate(name),
            lambda: self.store.migrate_instance(name, 2, {"paid": "settled"}),
        )

    @rule(operations=st.lists(st.one_of(APPLIES, CREATES, DELETES), min_size=2, max_size=5))
    def batch(self, operations: list[tuple[Any, ...]]) -> None:
        """All or nothing: the model runs on a copy and keeps it only if nothing was refused."""
        asked = [_request(operation) for operation in operations]

        def on_model(model: NaiveMachines) -> str | None:
            trial = model.copy()
            for operation in operations:
                code = _do(trial, operation, self.clock.wall_ms())
                if code is not None:
                    return code
            model.instances = trial.instances
            return None

        self._both(on_model, lambda: self.store.batch(asked))

    @rule(ms=st.sampled_from([1, 5, 50, 2_000]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms * 1_000)
        self.store.tick()
        self.store.maintenance.round()
        self._remember()
        self.model.expire(self.clock.wall_ms())
        self._agree()

    @rule()
    def compact(self) -> None:
        self.store.compact()
        self.past.clear()
        self._agree()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.past.clear()
        self._open(self.fake)
        self._agree()

    @rule()
    def kill_and_start(self) -> None:
        self._open(self.fake.after_kill())
        self.past.clear()
        self._agree()

    @rule(kind=LOSSES, seed=st.integers(0, 1_000))
    def lose_power_and_start(self, kind: CrashKind, seed: int) -> None:
        plan = CrashPlan(frozenset({kind, CrashKind.NONE}), seed=seed, random_states=3)
        states = list(self.fake.crash_states(self.fake.point, plan))
        self._open(states[seed % len(states)])
        found = self._seen()
        possible = [self.model, *reversed(self.past)]
        matching = [each for each in possible if _shown(each) == found]
        assert matching, (found, [_shown(each) for each in possible])
        self.model = matching[0]
        if len(matching) > 1 and any(each.keys != self.model.keys for each in matching):
            self.model.keys = {
                key: value
                for key, value in self.model.keys.items()
                if (key[0], key[1], key[2]) in self.store.tables.keys
            }
        self.past.clear()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            tried("random lives of state machines")

    def _both(
        self, on_model: Callable[[NaiveMachines], str | None], on_store: Callable[[], Any]
    ) -> None:
        before = self.model.copy()
        self.model.expire(self.clock.wall_ms())
        expected = on_model(self.model)
        offset = self.store.committed_offset
        code = None
        try:
            self.store.do(on_store)
        except MachineError as error:
            code = error.code
        assert code == expected
        assert code is None or self.store.committed_offset == offset
        if self.settings.fsync_policy.kind is not FsyncKind.EVERY_WRITE:
            self.past.append(before)
        self._agree()

    def _remember(self) -> None:
        if self.settings.fsync_policy.kind is not FsyncKind.EVERY_WRITE:
            self.past.append(self.model.copy())

    def _open(self, disk: FakeDisk) -> None:
        self.fake = disk
        self.store = SteppedStore(disk, self.settings, self.clock)
        assert not self.store.report.log.damage
        assert not self.store.report.doubtful

    def _seen(self) -> dict[str, Any]:
        store, now = self.store, self.clock.wall_ms()
        live = {
            name: (each.version, each.state, each.context)
            for name, each in store.tables.instances.items()
            if not 0 < each.expires_at <= now
        }
        return {"versions": set(store.tables.machines.get("order", ())), "instances": live}

    def _agree(self) -> None:
        self.model.expire(self.clock.wall_ms())
        assert self._seen() == _shown(self.model)
        listed = self.store.list_instances().instances
        assert [each.id for each in listed] == sorted(self.store.tables.instances)


def _shown(model: NaiveMachines) -> dict[str, Any]:
    live = {name: (i.version, i.state, i.ctx) for name, i in model.instances.items()}
    return {"versions": model.versions, "instances": live}


def _request(operation: tuple[Any, ...]) -> requests.Request:
    if operation[0] == "apply":
        return requests.ApplyEvent(operation[1], operation[2])
    if operation[0] == "create":
        return requests.CreateInstance("order", 1, operation[1], {"total": operation[2]})
    return requests.DeleteInstance(operation[1])


def _do(model: NaiveMachines, operation: tuple[Any, ...], now_ms: int) -> str | None:
    steps: dict[str, Callable[..., str | None]] = {
        "apply": lambda name, event: model.apply(name, event, {}, None),
        "create": lambda name, total: model.create(name, 1, total, None, None, now_ms),
        "delete": model.delete,
    }
    return partial(steps[operation[0]], *operation[1:])()


TestMachineLife = MachineLife.TestCase
TestMachineLife.settings = settings(
    max_examples=1_500 if FULL else 50,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
