"""Crashes while the engine itself recovers, and again while it recovers from that (I4)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headwater.testing import PREFIXES, CrashKind, CrashPlan, FakeDisk
from tests.crash.matrix import FULL, tried
from tests.rig.comparison import agree
from tests.rig.life import Life
from tests.rig.scripts import SCRIPTS
from tests.rig.world import World

pytestmark = pytest.mark.crash

FIRST = CrashPlan.of(CrashKind.NONE, CrashKind.ALL, CrashKind.KILL, CrashKind.SINGLE_DROP)
DEPTH = 3 if FULL else 2
WIDTH = 20 if FULL else 3
"""How many of the crashes at each depth are followed."""


def different(states: Iterable[FakeDisk]) -> list[FakeDisk]:
    return list({hash(tuple(state.files().items())): state for state in states}.values())


def spread(states: list[FakeDisk], count: int) -> list[FakeDisk]:
    """So many of them, evenly, the last one among them."""
    return states[:: -max(len(states) // count, 1)][:count]


def recover_and_crash(life: Life, state: FakeDisk, worlds: list[World], depth: int) -> None:
    """Recover on `state`, then look at every crash that could have ended that."""
    reborn = life.reborn(state, worlds)
    for deeper in spread(different(state.crash_states(plan=PREFIXES)), WIDTH):
        deeper.label = f"{state.label}; then in recovery {deeper.label}"
        deeper.crash_kind = state.crash_kind
        tried(f"engine, crash in recovery, {DEPTH - depth + 1} deep")
        if depth > 1:
            recover_and_crash(life, deeper, worlds, depth - 1)
        else:
            again = life.reborn(deeper, worlds)
            agree(reborn.judge, again.judge, deeper.label)
            again.abandon()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_crash_in_recovery_and_in_the_next_one_is_harmless_to_the_engine(script: str) -> None:
    life = SCRIPTS[script].recorded()
    for state in spread(list(life.states(plan=FIRST)), 12 if FULL else 2):
        recover_and_crash(life, state, life.worlds_at(state.crash_point), DEPTH)
