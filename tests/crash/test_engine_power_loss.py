"""Power loss and death of the process at every disk call of the engine's work (I1 to I4, I7 to I10).

Checkpoints, seals, flags, rewrites, snapshots with their trims, relocations, drops, restarts with
another number of shards: at every point of each, every prefix, every single loss, pairs of losses
and torn writes; then the engine is opened, judged, opened again and used.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from headwater.testing import DROPS, PAIRS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk
from tests.crash.matrix import slice_of, tried
from tests.rig.life import Life, check_again
from tests.rig.scripts import SCRIPTS, records

pytestmark = pytest.mark.crash

PLANS = {"prefixes": PREFIXES, "drops": DROPS, "pairs": PAIRS, "torn": TORN, "random": RANDOM}
EVERY = {"prefixes": 2, "drops": 5, "pairs": 60, "torn": 200, "random": 30}


@cache
def recorded(name: str) -> Life:
    return SCRIPTS[name].recorded()


def different_states(life: Life, plan: CrashPlan) -> Iterator[FakeDisk]:
    """Crash states, leaving out those that look the same at the same moment."""
    seen: set[int] = set()
    for state in life.states(plan=plan):
        moment = sum(moment.point <= state.crash_point for moment in life.moments)
        key = hash((moment, state.crash_kind, *state.files().items()))
        if key not in seen:
            seen.add(key)
            yield state


def check_state(life: Life, state: FakeDisk) -> Life:
    """Recover, recognise, recover again, go on writing, and lose the power once more."""
    reborn = life.reborn(state, life.worlds_at(state.crash_point))
    check_again(reborn, state)
    for name in sorted(reborn.world.topics):
        if reborn.world.topics[name].settings.discard.value == "old":
            reborn.append(name, records(2, "x"))
    reborn.check()
    after = state.after_power_loss()
    again = reborn.reborn(after, reborn.worlds_at(state.point))
    again.abandon()
    return reborn


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_engine_keeps_its_promises_whatever_a_crash_leaves(script: str, plan: str) -> None:
    life = recorded(script)
    for state in slice_of(different_states(life, PLANS[plan]), EVERY[plan]):
        check_state(life, state)
        tried(f"engine, power loss while {script}: {plan}")
