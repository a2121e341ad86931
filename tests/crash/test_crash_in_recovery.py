"""Crashes while recovery itself is at work, several deep, and deaths that a power loss follows.

A crash state of a fake disk is durable as it stands. What a killed process leaves is not: its
bytes and names are in the page cache only, and the next process must not build on them before it
has made them durable. `test_what_a_dead_process_left_is_hardened_before_it_is_built_on` goes on
where the dead one stopped, on the same disk, and then pulls the plug.
"""

from __future__ import annotations

import contextlib

import pytest

from headwater.core.errors import HeadwaterError
from headwater.testing import (
    CHANGING_VERBS,
    DROPS,
    PREFIXES,
    CrashKind,
    CrashPlan,
    CrashPoint,
    FakeDisk,
    Fault,
    FaultDisk,
    SimulatedCrash,
    Verb,
)
from headwater.testing.oracle import Crash
from tests.crash.matrix import FULL, slice_of, tried
from tests.crash.recovery_check import check_lease_request, check_state
from tests.crash.session import Session, by_stream, new_disk
from tests.crash.workloads import SCRIPTS, Run, recorded

pytestmark = pytest.mark.crash

DEPTH = 3
FIRST = CrashPlan(
    frozenset({CrashKind.NONE, CrashKind.ALL, CrashKind.TORN, CrashKind.SINGLE_DROP}),
    tear_every_byte_max=64,
)
DEEPER = CrashPlan(PREFIXES.kinds | DROPS.kinds)


def crash_deeper(run: Run, state: FakeDisk, at: int, depth_max: int, deep: int = 1) -> None:
    """Recover and open on `state`, then look at every crash that could have ended that."""
    session = Session(state, run.settings, fake=state)
    run.check(session, crash=Crash.POWER_LOSS, at=at, label=state.label)
    session.open()
    seen: set[int] = set()
    for deeper in state.crash_states(plan=DEEPER):
        key = hash(tuple(deeper.files().items()))
        if key in seen:
            continue
        seen.add(key)
        deeper.label = f"{state.label}; then in recovery {deeper.label}"
        tried(f"crash in recovery, {deep} deep")
        if deep < depth_max:
            crash_deeper(run, deeper, at, depth_max, deep + 1)
        else:
            found = Session(deeper, run.settings).abandon()
            run.check(found, crash=Crash.POWER_LOSS, at=at, label=deeper.label)
            check_lease_request(deeper, found)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_crash_in_recovery_and_in_the_next_one_is_harmless(script: str) -> None:
    run = recorded(script)
    seen: set[int] = set()
    for state in slice_of(run.fake.crash_states(plan=FIRST), 48):
        key = hash(tuple(state.files().items()))
        if key not in seen:
            seen.add(key)
            deep = FULL and len(seen) % 8 == 1
            crash_deeper(run, state, state.crash_point, DEPTH if deep else DEPTH - 1)


def run_until(script: str, nth: int) -> Run:
    """The script on a new disk, ending at the nth changing call."""
    fake = new_disk()
    run = Run(FaultDisk(fake, crash=CrashPoint(nth)), fake)
    try:
        SCRIPTS[script](run)
    except SimulatedCrash:
        return run
    raise AssertionError(f"{script} has fewer than {nth} changing calls")


def calls_of(script: str, verbs: Verb | frozenset[Verb] = CHANGING_VERBS) -> int:
    fake = new_disk()
    disk = FaultDisk(fake)
    SCRIPTS[script](Run(disk, fake))
    return len(disk.calls_of(verbs))


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_dead_process_left_is_hardened_before_it_is_built_on(script: str) -> None:
    for nth in slice_of(range(calls_of(script)), 3, always=12):
        run = run_until(script, nth)
        label = f"{script} killed before changing call {nth}"
        disk = run.fake.clone()
        second = Session(disk, run.settings, fake=disk)
        run.check(second, crash=Crash.KILL, at=None, label=label)
        second.open()
        second.append(1)
        second.append(2, 2)
        expected = by_stream([*second.items, *second.acked_items()])
        for state in disk.crash_states(disk.point, PREFIXES):
            found = Session(state, run.settings).abandon()
            assert by_stream(found.items) == expected, f"{label}; then {state.label}"
            tried("killed, reopened, written to, power lost")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_death_of_the_second_process_leaves_what_the_first_was_promised(
    script: str,
) -> None:
    """Killed at each call; the reopening killed at each call; then the power goes."""
    calls = calls_of(script)
    near_the_trim = range(calls - 25, calls) if script == "trimming" else ()
    for nth in sorted({*slice_of(range(calls), 12), *near_the_trim}):
        run = run_until(script, nth)
        twin = run.fake.clone()
        before = twin.point
        session = Session(twin, run.settings, fake=twin, oracle=run.oracle)
        session.open()
        for state in twin.crash_states(plan=DEEPER):
            if state.crash_point >= before:
                check_state(run, state, thorough=False)
                tried("killed, then power lost while reopening")


@pytest.mark.parametrize("script", SCRIPTS)
def test_pages_that_a_failed_sync_dropped_are_written_again_by_recovery(script: str) -> None:
    """The kernel calls the pages clean: they can be read, and no later sync writes them.

    The log is poisoned, the process restarted as the message advises, and its recovery must not
    take what it reads for what is on the platter.
    """
    for nth in range(calls_of(script, Verb.SYNC_DATA)):
        fake = new_disk()
        fault = Fault(Verb.SYNC_DATA, nth=nth, clean_after_error=True)
        run = Run(FaultDisk(fake, [fault]), fake)
        with contextlib.suppress(HeadwaterError):
            SCRIPTS[script](run)
        label = f"{script}: sync {nth} failed and dropped its pages"
        assert fault.struck == 1, label
        disk = fake.clone()
        second = Session(disk, run.settings, fake=disk).open()
        run.check(second, crash=Crash.KILL, at=None, label=label)
        second.append(1)
        second.append(2)
        expected = by_stream([*second.items, *second.acked_items()])
        for state in disk.crash_states(disk.point, PREFIXES):
            found = Session(state, run.settings).abandon()
            assert by_stream(found.items) == expected, f"{label}; then {state.label}"
            tried("a failed sync dropped its pages, restarted, power lost")
