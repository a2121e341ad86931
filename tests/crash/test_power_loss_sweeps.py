"""Power loss and death of the process at every disk call of the writer (I1 to I5).

Every point of a script's trace, every prefix, every single loss, pairs of losses and reorders
between barriers, and every byte at which the last write may be torn.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.testing import DROPS, PAIRS, PREFIXES, RANDOM, TORN, CrashPlan, FakeDisk
from tests.crash.matrix import slice_of, tried
from tests.crash.recovery_check import check_state, kind_of
from tests.crash.session import log_files
from tests.crash.workloads import SCRIPTS, Run, recorded

pytestmark = pytest.mark.crash

PLANS = {"prefixes": PREFIXES, "drops": DROPS, "pairs": PAIRS, "torn": TORN, "random": RANDOM}
EVERY = {"prefixes": 1, "drops": 1, "pairs": 1, "torn": 17, "random": 2}


def different_states(run: Run, plan: CrashPlan, every: int) -> Iterator[FakeDisk]:
    """Crash states, leaving out those that look the same and must bring back the same."""
    seen: set[int] = set()
    for state in slice_of(run.fake.crash_states(plan=plan), every):
        crash, at = kind_of(state), state.crash_point
        owed = (crash, run.oracle.acked_count(crash, at), *run.floors_at(at).items())
        key = hash((owed, *log_files(state).items()))
        if key not in seen:
            seen.add(key)
            yield state


@pytest.mark.claims(117, 164, 202, 205, 206)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_acked_is_lost_whatever_the_power_loss_left(script: str, plan: str) -> None:
    run = recorded(script)
    for state in different_states(run, PLANS[plan], EVERY[plan]):
        check_state(run, state)
        tried(f"power loss while {script}: {plan}")
