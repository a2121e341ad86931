"""Errors of the disk at every call of the engine's work (I1, I6, I8, I11, I12).

Whatever fails: nothing acked is lost, nothing deleted comes back, reads go on, and after a full
disk has room again writing resumes by itself.
"""

from __future__ import annotations

import contextlib
import errno

import pytest

from headwater.core.errors import HeadwaterError
from headwater.testing import (
    CHANGING_VERBS,
    FAILING_VERBS,
    KILL,
    POWER_LOSS,
    PREFIXES,
    SPACE_VERBS,
    CrashPoint,
    Fault,
    FaultDisk,
    SimulatedCrash,
    Verb,
)
from headwater.wal.committer import LogState
from tests.crash.matrix import slice_of, tried
from tests.rig.life import Life
from tests.rig.scripts import SCRIPTS, Script, records
from tests.rig.world import World

pytestmark = pytest.mark.crash


def calls_of(script: Script, verbs: frozenset[Verb]) -> int:
    life, disk = script.faulty()
    script.act(life)
    return len(disk.calls_of(verbs))


def act_with(script: Script, fault: Fault) -> tuple[Life, FaultDisk, bool]:
    """The act with a fault in it. True when it went through all the same."""
    life, disk = script.faulty()
    disk.add(fault)
    try:
        script.act(life)
    except (HeadwaterError, OSError):
        return life, disk, False
    return life, disk, True


def check_reads(life: Life, label: str) -> None:
    """The running engine shows what was before the failed operation, or what came after it."""
    if life.db.engine.core.closing:
        return
    life.world = life.judge.choose(worlds_of(life), label)


def worlds_of(life: Life) -> list[World]:
    """Before the operation that failed, and after it."""
    return [life.world.copy(), *([] if life.next_world is None else [life.next_world.copy()])]


def check_restart(life: Life, label: str) -> None:
    """Killed now, or the power lost: what was acked is there."""
    worlds = worlds_of(life)
    for plan in (KILL, POWER_LOSS):
        for state in life.fake.crash_states(life.fake.point, plan):
            state.label = f"{label}; then {state.label}"
            life.reborn(state, worlds).abandon()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_failed_call_loses_nothing_and_reading_goes_on(name: str) -> None:
    script = SCRIPTS[name]
    for nth in slice_of(range(calls_of(script, FAILING_VERBS)), 11):
        fault = Fault(FAILING_VERBS, errno.EIO, nth=nth, clean_after_error=True)
        life, disk, _ = act_with(script, fault)
        label = f"{name}: EIO at call {nth}, {disk.calls_of(FAILING_VERBS)[nth]}"
        disk.clear()
        check_reads(life, label)
        check_restart(life, label)
        tried("engine, errors: EIO at every call")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_full_disk_loses_nothing_and_writing_resumes_when_there_is_room(name: str) -> None:
    script = SCRIPTS[name]
    for nth in slice_of(range(calls_of(script, SPACE_VERBS)), 13):
        life, disk, _ = act_with(script, Fault(SPACE_VERBS, errno.ENOSPC, nth=nth, always=True))
        label = f"{name}: no room from call {nth}, {disk.calls_of(SPACE_VERBS)[nth]} on"
        check_reads(life, label)
        disk.clear()
        if not life.db.engine.core.closing and life.db.engine.log_state is not LogState.POISONED:
            check_resumes(life)
        check_restart(life, label)
        tried("engine, errors: ENOSPC from every call on")


def check_resumes(life: Life) -> None:
    """I12: by itself, and with everything in its place."""
    life.next_world = None
    life.tick(2_000_000)
    for name in sorted(life.world.topics):
        life.append(name, records(1, "x"))
    life.check()
    life.round()
    life.checkpoint()
    life.reclaim()
    life.check()


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_killed_engine_left_is_hardened_before_it_is_built_on(name: str) -> None:
    """Killed at each call; the next process goes on over the same page cache; then power loss."""
    script = SCRIPTS[name]
    for nth in slice_of(range(calls_of(script, CHANGING_VERBS)), 9):
        life, disk = script.faulty()
        disk.crash_point = CrashPoint(nth)
        disk._crash_matches = 0
        with contextlib.suppress(SimulatedCrash):
            script.act(life)
        worlds = life.worlds_at(life.fake.point)
        twin = life.fake.clone()
        twin.label = f"{name} killed before changing call {nth}"
        twin.crash_kind = next(life.fake.crash_states(life.fake.point, KILL)).crash_kind
        second = life.reborn(twin, worlds)
        second.moments = second.moments[:1]
        for topic in sorted(second.world.topics):
            second.append(topic, records(1))
        second.checkpoint()
        second.append("fsync", records(1))
        second.checkpoint()
        for state in twin.crash_states(twin.point, PREFIXES):
            second.reborn(state, [second.world]).abandon()
            tried("engine: killed, reopened, written to, power lost")
