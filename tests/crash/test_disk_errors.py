"""Errors of the disk at every call: EIO, no room, short writes, interruptions (I11, I12, I15).

Whatever fails, nothing acked is lost, every ticket is answered exactly once, and the log is
poisoned, full or refused to open; never anything else.
"""

from __future__ import annotations

import contextlib
import errno

import pytest

from headwater.core.errors import DiskFullError, HeadwaterError, PoisonedError
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
from tests.crash.session import DISK, MEMORY, Session, new_disk, small
from tests.crash.workloads import SCRIPTS, Run, patient, with_essentials

pytestmark = pytest.mark.crash

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
EVERY_SCRIPT = {**SCRIPTS, "patient": patient, "with_essentials": with_essentials}


def calls_of(script: str, verbs: frozenset[Verb]) -> int:
    fake = new_disk()
    disk = FaultDisk(fake)
    EVERY_SCRIPT[script](Run(disk, fake))
    return len(disk.calls_of(verbs))


def run_with(script: str, *faults: Fault) -> tuple[Run, FaultDisk]:
    """The script with a fault in it. Opening may be refused, with an error of our own only."""
    fake = new_disk()
    disk = FaultDisk(fake, faults)
    run = Run(disk, fake)
    with contextlib.suppress(HeadwaterError):
        EVERY_SCRIPT[script](run)
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
    for nth in slice_of(range(calls_of(script, FAILING_VERBS)), 2 if number == errno.EIO else 10):
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
@pytest.mark.parametrize("script", [*SCRIPTS, "with_essentials"])
def test_a_full_disk_refuses_and_loses_nothing(script: str, always: bool, number: int) -> None:
    every = 1 if script == "with_essentials" else 5
    for nth in slice_of(range(calls_of(script, SPACE_VERBS)), every):
        fault = Fault(SPACE_VERBS, number, nth=nth, always=always)
        run, disk = run_with(script, fault)
        label = f"{script}: no room at call {nth}, {disk.calls_of(SPACE_VERBS)[nth]}"
        disk.clear()
        check_aftermath(run, label)
        how = "for good" if always else "once"
        tried(f"errors: {errno.errorcode[number]} at every call, {how}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_error_while_closing_a_file_loses_nothing(script: str) -> None:
    """Linux closes the file and reports the error; a network disk does report one here."""
    for number in (errno.EIO, errno.ENOSPC):
        for nth in slice_of(range(calls_of(script, frozenset({Verb.CLOSE}))), 3):
            run, _ = run_with(script, Fault(Verb.CLOSE, number, nth=nth))
            check_aftermath(run, f"{script}: {errno.errorcode[number]} at close {nth}")
            tried("errors: while closing a file")


@pytest.mark.parametrize("number", NO_ROOM)
def test_writing_resumes_after_one_refusal_wherever_it_came(number: int) -> None:
    calls = calls_of("patient", SPACE_VERBS)
    resumed = 0
    for nth in range(calls):
        run, disk = run_with("patient", Fault(SPACE_VERBS, number, nth=nth))
        label = f"no room at call {nth}, {disk.calls_of(SPACE_VERBS)[nth]}"
        check_aftermath(run, label)
        tickets = [ticket for session in run.sessions for ticket in session.tickets]
        refused = [t for t in tickets if isinstance(t.error, DiskFullError)]
        resumed += bool(refused) and tickets[-1].error is None
        if LogState.POISONED not in states(run):
            assert len(refused) <= 1, f"{label}: a second later there was room"
        tried(f"errors: {errno.errorcode[number]} once, then time passes")
    assert resumed > 3


@pytest.mark.parametrize("size", [1, 7, 100, 600])
@pytest.mark.parametrize("script", SCRIPTS)
def test_short_writes_everywhere_change_nothing(script: str, size: int) -> None:
    fault = Fault(Verb.WRITE, None, always=True, short_bytes=size)
    run, _ = run_with(script, fault)
    assert fault.struck > 10
    assert states(run) == {LogState.WRITABLE}
    assert all(t.error is None for session in run.sessions for t in session.tickets)
    check_aftermath(run, f"{script}: writes of {size} bytes at most")
    tried("errors: short writes everywhere")


@pytest.mark.parametrize("script", ["append", "rotation"])
def test_a_write_that_stops_half_way_is_refused_whole(script: str) -> None:
    """A short write, and then no room, no device, or an interruption for the rest."""
    for number in (errno.ENOSPC, errno.EIO, errno.EINTR):
        for nth in slice_of(range(calls_of(script, frozenset({Verb.WRITE}))), 4):
            for size in (1, 133, 150):
                short = Fault(Verb.WRITE, None, nth=nth, short_bytes=size)
                rest = Fault(Verb.WRITE, number, nth=nth + 1)
                run, _ = run_with(script, short, rest)
                label = f"{script}: write {nth} stopped after {size}, {errno.errorcode[number]}"
                check_aftermath(run, label)
                tried("errors: a write that stops half way")


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC_DATA, Verb.SYNC_DIRECTORY])
def test_an_interrupted_call_is_a_failure_and_never_taken_for_success(verb: Verb) -> None:
    for script in ("append", "rotation"):
        for nth in range(calls_of(script, frozenset({verb}))):
            run, _ = run_with(script, Fault(verb, errno.EINTR, nth=nth))
            check_aftermath(run, f"{script}: {verb.value} {nth} interrupted")
            tried("errors: interrupted calls")


def test_a_sync_that_fails_once_and_then_succeeds_leaves_the_log_poisoned() -> None:
    """I11: the second yes may be a lie, so nothing is acked after the first no."""
    fake = new_disk()
    disk = FaultDisk(fake)
    run = Run(disk, fake)
    session = run.session().open()
    session.append(1)
    disk.add(Fault(Verb.SYNC_DATA, clean_after_error=True))
    failed = session.append(1)
    later = [session.append(1), session.append(2, 1, DISK), session.append(3, 1, MEMORY)]
    assert all(isinstance(t.error, PoisonedError) for t in (failed, *later))
    session.pass_time(5_000_000)
    session.close()
    assert states(run) == {LogState.POISONED}
    session.check_each_answered_once()
    check_aftermath(run, "a sync that failed once")


def test_a_full_disk_keeps_room_for_essential_writes_and_resumes_by_itself() -> None:
    """I12: deletes and acks go on in the reserve, the rest is refused, and space is noticed."""
    fake = new_disk()
    disk = FaultDisk(fake)
    run = Run(disk, fake, small(file_bytes=4096, reserve_bytes=256))
    session = run.session(ahead=False).open()
    full = disk.add(Fault(Verb.CREATE, errno.ENOSPC, path="prepared.next", always=True))
    while session.append(1).error is None:
        assert len(session.tickets) < 100
    assert states(run) == {LogState.FULL}
    assert isinstance(session.tickets[-1].error, DiskFullError)
    essential = session.ticket(2, essential=True)
    ordinary = session.ticket(3)
    session.commit(ordinary, essential)
    assert essential.error is None
    assert isinstance(ordinary.error, DiskFullError)
    session.pass_time(1_000_000)
    assert states(run) == {LogState.FULL}
    full.enabled = False
    session.pass_time(999_999)
    assert states(run) == {LogState.FULL}
    session.pass_time(1)
    assert states(run) == {LogState.WRITABLE}
    assert session.append(1).error is None
    session.close()
    session.check_each_answered_once()
    check_aftermath(run, "full, then free again")


@pytest.mark.parametrize("overwriting_needs_room", [False, True])
def test_a_log_on_a_full_disk_opens_and_is_read_and_resumes(overwriting_needs_room: bool) -> None:
    fake = new_disk()
    first = Session(fake, fake=fake).open()
    first.append(1)
    first.abandon()
    fake.capacity_bytes = 0
    full = Fault(Verb.WRITE, errno.ENOSPC, always=True)
    disk = FaultDisk(fake, [full] if overwriting_needs_room else [])
    run = Run(disk, fake)
    session = run.session()
    assert session.items == first.items + first.acked_items()
    session.open()
    while session.append(1).error is None:
        assert len(session.tickets) < 100
    assert states(run) == {LogState.FULL}
    fake.capacity_bytes = None
    disk.clear()
    session.pass_time(1_000_000)
    assert session.append(1).error is None
    session.check_each_answered_once()


def test_an_essential_write_survives_a_rotation_that_failed_half_way() -> None:
    """The next file is there by name, CURRENT could not be replaced, and the old file goes on."""
    between = 0
    for nth in range(calls_of("with_essentials", SPACE_VERBS)):
        run, disk = run_with("with_essentials", Fault(SPACE_VERBS, errno.ENOSPC, nth=nth))
        call = disk.calls_of(SPACE_VERBS)[nth]
        if not run.sessions or not call.path.name.startswith(("CURRENT", "wal-")):
            continue
        for state in run.fake.crash_states(plan=PREFIXES):
            state.label = f"no room at {call}; then {state.label}"
            found = check_state(run, state, thorough=False)
            between += len(found.recovered.report.shards[0].leftovers) if found.items else 0
            tried("errors: a rotation that failed half way, then a crash at every point")
    assert between > 0, "a file was staged and not used when the crash came"
