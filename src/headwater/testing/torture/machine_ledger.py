"""What the server answered about instances of a state machine, and what a start should give.

An instance counts: its n-th event carries `{"n": n}` and moves it to the state `n % 3`, so what it
is follows from one number. A **fact** is what an answer said; a **doubt** is what else may be true,
because no answer came or the power was lost. After a start an instance is its last fact or one of
its doubts, and then that is a fact. The topic of transitions has each event of each instance once,
in order, up to that number and no further.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.testing.torture.topic_ledger import shortened

STATES: Final = ("s0", "s1", "s2")
MACHINE: Final = "counter"
DEFINITION: Final[dict[str, Any]] = {
    "states": list(STATES),
    "initial": STATES[0],
    "transitions": [
        *(
            {"from": state, "event": "GO", "to": STATES[(number + 1) % len(STATES)]}
            for number, state in enumerate(STATES)
        ),
        {"from": list(STATES), "event": "NEVER", "to": STATES[0], "guard": "ctx.n < 0"},
    ],
}


@dataclass(frozen=True, slots=True)
class InstanceCondition:
    """What an instance is: there or not, after so many events."""

    exists: bool
    count: int


NEVER_MADE: Final = InstanceCondition(exists=False, count=0)


@dataclass(slots=True)
class RepeatableRequest:
    """A request that may be sent again under its key."""

    key: str
    count: int


@dataclass(slots=True)
class LedgerInstance:
    identity: str
    facts: list[tuple[float, InstanceCondition]] = field(
        default_factory=lambda: [(0.0, NEVER_MADE)]
    )
    doubts: list[InstanceCondition] = field(default_factory=list)
    repeat: RepeatableRequest | None = None
    counts: frozenset[int] = frozenset()
    """How many events it may have had, where it is gone: the topic has the number."""

    @property
    def now(self) -> InstanceCondition:
        return self.facts[-1][1]

    @property
    def is_usable(self) -> bool:
        return not self.doubts and self.now.exists


class MachineLedger:
    def __init__(self) -> None:
        self.instances: dict[str, LedgerInstance] = {}
        self._lock = threading.Lock()

    def add(self, identity: str) -> LedgerInstance:
        with self._lock:
            instance = self.instances[identity] = LedgerInstance(identity)
            return instance

    def record(self, instance: LedgerInstance, condition: InstanceCondition, at: float) -> None:
        with self._lock:
            instance.facts.append((at, condition))

    def doubt(
        self,
        instance: LedgerInstance,
        condition: InstanceCondition,
        repeat: RepeatableRequest | None = None,
    ) -> None:
        with self._lock:
            instance.doubts.append(condition)
            instance.repeat = repeat

    def lose_power(self, since: float) -> None:
        with self._lock:
            for instance in self.instances.values():
                late = [condition for at, condition in instance.facts if at >= since]
                instance.facts = [fact for fact in instance.facts if fact[0] < since]
                instance.doubts = [*late, *instance.doubts]
                if late:
                    instance.repeat = None

    def compare(self, read: Mapping[str, Mapping[str, Any] | None], at: float) -> list[str]:
        """`found` has every known instance as it was read, None for one that is not there."""
        wrong = []
        with self._lock:
            for identity, instance in self.instances.items():
                wrong += self._compare_one(instance, read.get(identity), at)
            wrong += [
                f"I1: {name} is there, which no client created"
                for name in read.keys() - self.instances.keys()
            ]
        return shortened(wrong)

    @staticmethod
    def _compare_one(
        instance: LedgerInstance, seen: Mapping[str, Any] | None, at: float
    ) -> list[str]:
        candidates = [instance.now, *instance.doubts]
        wrong = []
        if seen is None:
            matching = [each for each in candidates if not each.exists]
        else:
            count = int(seen["ctx"].get("n", -1))
            matching = [each for each in candidates if each.exists and each.count == count]
            if seen["state"] != STATES[count % len(STATES)]:
                wrong.append(f"I2: {instance.identity} is {dict(seen)}: state and context differ")
        if not matching:
            what = "not there" if seen is None else f"{seen['state']} {seen['ctx']}"
            wrong.append(
                f"I1: {instance.identity} is {what}; it was {instance.now}, or {instance.doubts}"
            )
            matching = [instance.now]
        fewest = min(matching, key=lambda each: each.count)
        instance.facts = [(at, fewest)]
        instance.counts = frozenset(each.count for each in matching)
        instance.doubts = []
        return wrong

    def check_transitions(self, seen: Sequence[Mapping[str, Any]]) -> list[str]:
        """`seen`: the data of every record of the transitions topic, in order."""
        counts: dict[str, list[int]] = {}
        for data in seen:
            counts.setdefault(str(data["instance_id"]), []).append(int(data["payload"]["n"]))
        wrong = []
        with self._lock:
            for identity, instance in self.instances.items():
                counted = counts.pop(identity, [])
                if len(counted) in instance.counts:
                    condition = InstanceCondition(instance.now.exists, len(counted))
                    instance.facts[-1] = (instance.facts[-1][0], condition)
                instance.counts = frozenset()
                expected = list(range(1, instance.now.count + 1))
                if counted != expected:
                    wrong.append(difference(identity, counted, expected))
            wrong += [f"I1: transitions of {name}, which no client created" for name in counts]
        return shortened(wrong)

    def transitions_expected(self) -> int:
        with self._lock:
            return sum(each.now.count for each in self.instances.values())


def difference(identity: str, counted: Sequence[int], expected: Sequence[int]) -> str:
    missing = sorted(set(expected) - set(counted))
    more = sorted(set(counted) - set(expected))
    twice = sorted({each for each in counted if counted.count(each) > 1})
    return (
        f"transitions: {identity} has {len(expected)} events, the topic {len(counted)}: "
        f"missing {missing[:10]}, too many {more[:10]}, twice {twice[:10]}"
        + ("" if missing or more or twice else ", not in order")
    )
