"""Errors of the disk at every call: EIO, no room, short writes, interruptions (I11, I12, I15).

Whatever fails, nothing acked is lost, every ticket is answered exactly once, and the log is
poisoned, full or refused to open; never anything else.
"""

from __future__ import annotations

import contextlib
import errno

import pytest

from headwater.core.errors import HeadwaterError
from headwater.testing import (
    FAILING_VERBS,
    PREFIXES,
    SPACE_VERBS,
    Fault,
    FaultDisk,
    Verb,
)
from headwater.wal.committer import LogState
from tests.crash.matrix import slice_of, tried
from tests.crash.recovery_check import check_state
from tests.crash.session import new_disk
from tests.crash.workloads import SCRIPTS, Run

pytestmark = pytest.mark.crash

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def calls_of(script: str, verbs: frozenset[Verb]) -> int:
    fake = new_disk()
    disk = FaultDisk(fake)
    SCRIPTS[script](Run(disk, fake))
    return len(disk.calls_of(verbs))


def run_with(script: str, *faults: Fault) -> tuple[Run, FaultDisk]:
    """The script with a fault in it. Opening may be refused, with an error of our own only."""
    fake = new_disk()
    disk = FaultDisk(fake, faults)
    run = Run(disk, fake)
    with contextlib.suppress(HeadwaterError):
        SCRIPTS[script](run)
    return run, disk


def check_aftermath(run: Run, label: str) -> None:
    """Kill and power loss after the trouble: nothing acked is gone, and the log opens again."""
    for session in run.sessions:
        for ticket in session.tickets:
            assert session.answers[ticket.context[1]] <= 1, label
            assert ticket.resolved == (session.answers[ticket.context[1]] == 1), label
    for state in run.fake.crash_states(run.fake.point, PREFIXES):
        state.label = f"{label}; then {state.label}"
        check_state(run, state)


def states(run: Run) -> set[LogState]:
    return {committer.state for session in run.sessions for committer in session.committers}


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_failed_call_poisons_or_refuses_and_loses_nothing(script: str, number: int) -> None:
    for nth in slice_of(range(calls_of(script, FAILING_VERBS)), 1 if number == errno.EIO else 5):
        fault = Fault(FAILING_VERBS, number, nth=nth, clean_after_error=True)
        run, disk = run_with(script, fault)
        call = disk.calls_of(FAILING_VERBS)[nth]
        label = f"{script}: {errno.errorcode[number]} at call {nth}, {call}"
        assert fault.struck == 1, label
        for session in run.sessions:
            if any(ticket.error is not None for ticket in session.tickets):
                assert LogState.POISONED in states(run), label
        check_aftermath(run, label)
        tried(f"errors: {errno.errorcode[number]} at every call")


@pytest.mark.parametrize("number", NO_ROOM)
@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_full_disk_refuses_and_loses_nothing(script: str, always: bool, number: int) -> None:
    for nth in slice_of(range(calls_of(script, SPACE_VERBS)), 3):
        fault = Fault(SPACE_VERBS, number, nth=nth, always=always)
        run, disk = run_with(script, fault)
        label = f"{script}: no room at call {nth}, {disk.calls_of(SPACE_VERBS)[nth]}"
        disk.clear()
        check_aftermath(run, label)
        how = "for good" if always else "once"
        tried(f"errors: {errno.errorcode[number]} at every call, {how}")
