"""Power loss and death of the process at every disk call of the engine's work.

Checkpoints, seals, flags, rewrites, snapshots with their trims, relocations, drops, restarts with
another number of shards: at every point of each, every prefix, every single loss, pairs of losses
and torn writes; then the engine is opened, judged, opened again and used (I1 to I4, I7 to I10).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from headwater.testing import DROPS, PAIRS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk
from tests.crash.matrix import FULL, tried
from tests.rig.life import Life, check_again
from tests.rig.scripts import SCRIPTS, records

pytestmark = pytest.mark.crash

PLANS = {
    "prefixes": PREFIXES,
    "drops": DROPS,
    "pairs": replace(PAIRS, pair_effects_max=12),
    "torn": replace(TORN, tear_every_byte_max=32),
    "random": replace(RANDOM, random_states=2),
}
EVERY = {"prefixes": 14, "drops": 40, "pairs": 400, "torn": 150, "random": 40}
"""How many states are passed over in the short form; in the full form, a twentieth of that."""


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
    every = max(EVERY[plan] // 20, 1) if FULL else EVERY[plan]
    for state in islice(different_states(life, PLANS[plan]), 0, None, every):
        check_state(life, state)
        tried(f"engine, power loss while {script}: {plan}")
