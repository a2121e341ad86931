"""The machines' log and snapshots, looked at and held against each other. Nothing is changed.

In three steps, so that segments can be looked at anywhere: a plan of what there should be, a look
at each segment by itself, and what only all looks together can tell: the order of the segments,
and whether bad bytes are damage or a torn tail, by the same witnesses a start asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.core.errors import FormatError
from headwater.disk import Disk
from headwater.disk.posix import LOCK_NAME
from headwater.disk.whole import TEMPORARY_SUFFIX
from headwater.format.machines.current import (
    MachineCurrent,
    decode_fed,
    decode_machine_current,
)
from headwater.format.machines.names import (
    FED_NAME,
    HISTORY_DIRECTORY,
    SNAPSHOTS_DIRECTORY,
    WEBHOOKS_DIRECTORY,
    global_offset,
    parse_segment_name,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.format.machines.snapshot import SnapshotHeading
from headwater.format.names import (
    CURRENT_NAME,
    PREPARED_NAME,
    QUARANTINE_DIRECTORY,
    WAL_DIRECTORY,
)
from headwater.recovery.machine_histories import history_faults
from headwater.recovery.verifying_machine_segment import BadBytes, MachineLook, MachineSegment
from headwater.recovery.verifying_machine_snapshots import look_at_machine_snapshots
from headwater.store.pair import read_all
from headwater.store.verifying import Fault, FaultKind

_OURS: Final = frozenset(
    {
        WAL_DIRECTORY,
        SNAPSHOTS_DIRECTORY,
        HISTORY_DIRECTORY,
        WEBHOOKS_DIRECTORY,
        FED_NAME,
        LOCK_NAME,
    }
)
_OURS_IN_WAL: Final = frozenset({CURRENT_NAME, PREPARED_NAME, QUARANTINE_DIRECTORY, LOCK_NAME})
_FIRST: Final = 1
"""Number of the first segment of a log."""


@dataclass(slots=True)
class MachinePlan:
    directory: PurePath
    faults: list[Fault] = field(default_factory=list)
    segments: list[MachineSegment] = field(default_factory=list)
    current: MachineCurrent | None = None
    heading: SnapshotHeading | None = None
    """Of the snapshot that a start begins with."""

    @property
    def log(self) -> PurePath:
        return self.directory / WAL_DIRECTORY


def plan_machines(disk: Disk, directory: PurePath) -> MachinePlan:
    """What the names, CURRENT, FED and the snapshots tell. FileNotFoundError: look again."""
    plan = MachinePlan(directory)
    if not disk.is_directory(directory):
        return plan
    for name in disk.list_directory(directory):
        plan.faults += _name_fault(directory / name, _OURS, bad=False)
    numbers: list[int] = []
    for name in disk.list_directory(plan.log) if disk.is_directory(plan.log) else []:
        number = parse_segment_name(name)
        if number is not None:
            numbers.append(number)
        else:
            plan.faults += _name_fault(plan.log / name, _OURS_IN_WAL, bad=True)
    numbers.sort()
    plan.current = _current(disk, plan)
    _look_at_fed(disk, plan)
    complete = bool(numbers) and numbers[0] == _FIRST
    snapshots = look_at_machine_snapshots(disk, directory / SNAPSHOTS_DIRECTORY, complete)
    plan.faults += snapshots.faults
    plan.faults += history_faults(disk, directory / HISTORY_DIRECTORY)
    plan.heading = snapshots.heading
    if plan.heading is None and numbers and not complete:
        what = "the log begins in the middle and there is no sound snapshot"
        place = plan.log / segment_name(numbers[0])
        plan.faults.append(Fault(place, 0, what, True, FaultKind.CONTINUITY))
    asked = {segment_of(h.wal_offset): within_segment(h.wal_offset) for h in [plan.heading] if h}
    plan.segments = [
        MachineSegment(str(plan.log / segment_name(n)), n, asked.get(n)) for n in numbers
    ]
    return plan


def _name_fault(path: PurePath, ours: frozenset[str], bad: bool) -> Iterator[Fault]:
    if path.name.endswith(TEMPORARY_SUFFIX):
        what = "left by work that was interrupted or goes on"
        yield Fault(path, None, what, False, FaultKind.UNFINISHED)
    elif path.name not in ours:
        yield Fault(path, None, "not a name this software gives", bad, FaultKind.NAME)


def _current(disk: Disk, plan: MachinePlan) -> MachineCurrent | None:
    path = plan.log / CURRENT_NAME
    if not disk.exists(path):
        return None
    try:
        return decode_machine_current(read_all(disk, path))
    except FormatError as error:
        what = f"{error.reason}; the next start writes it again"
        plan.faults.append(Fault(path, error.offset, what, False, FaultKind.CURRENT))
        return None


def _look_at_fed(disk: Disk, plan: MachinePlan) -> None:
    path = plan.directory / FED_NAME
    if not disk.exists(path):
        return
    try:
        decode_fed(read_all(disk, path))
    except FormatError as error:
        what = f"{error.reason}; the topic itself is asked instead"
        plan.faults.append(Fault(path, error.offset, what, False, FaultKind.CURRENT))


def join_machines(plan: MachinePlan, looks: Sequence[MachineLook]) -> list[Fault]:
    """All faults: those of the plan, those of each segment, and whether they fit together."""
    faults = [*plan.faults, *(fault for look in looks for fault in look.faults)]
    faults += _missing(plan)
    witness = _witness(plan, looks)
    for look in looks:
        for bad in look.bad:
            faults.append(_judged(plan, look.number, bad, witness))
    faults += _borders(plan, looks)
    faults += _end(plan, looks, witness)
    faults += _continues(plan, looks)
    return faults


def _missing(plan: MachinePlan) -> Iterator[Fault]:
    """Every segment from the first needed to the last known must be there."""
    there = {segment.number for segment in plan.segments}
    current, heading = plan.current, plan.heading
    first = _FIRST if heading is None else segment_of(heading.wal_offset)
    if heading is None and there and min(there) != _FIRST:
        first = min(there)  # told already
    active = 0 if current is None else current.active
    last = max([*there, active, 0 if heading is None else first])
    for number in range(first, last + 1):
        unmade = number == last == _FIRST and current is not None and not current.durable
        if number not in there and not unmade:
            what = "missing: a segment of the log"
            place = plan.log / segment_name(number)
            yield Fault(place, None, what, True, FaultKind.MISSING)


def _witness(plan: MachinePlan, looks: Sequence[MachineLook]) -> int:
    """Everything before this was on stable storage, as far as anybody says."""
    current = plan.current
    witness = 0 if current is None else global_offset(current.active, current.durable)
    for look in looks:
        if look.entries:
            # A segment is synced before the next one begins.
            witness = max(witness, look.witness, global_offset(look.number, 0))
    return witness


def _judged(plan: MachinePlan, number: int, bad: BadBytes, witness: int) -> Fault:
    damage = bad.always or global_offset(number, bad.offset) < witness
    what = bad.reason if damage else f"{bad.reason}; a torn tail, which a start cuts"
    kind = FaultKind.ENTRY if damage else FaultKind.BEYOND
    return Fault(plan.log / segment_name(number), bad.offset, what, damage, kind)


def _borders(plan: MachinePlan, looks: Sequence[MachineLook]) -> Iterator[Fault]:
    """Sequence numbers go on from segment to segment."""
    expected = 1 if looks and looks[0].number == _FIRST else None
    before = 0
    for look in looks:
        if before and look.number != before + 1:
            expected = None  # that one is missing is told already
        before = look.number
        first = look.first_sequence
        if first is not None and expected is not None and first != expected and not _led_in(look):
            what = f"begins with entry {first}, and the log before it ends with {expected - 1}"
            place = plan.log / segment_name(look.number)
            yield Fault(place, look.first_offset, what, True, FaultKind.CONTINUITY)
        if look.next_sequence is not None:
            expected = look.next_sequence
        if look.ends_in_bad_bytes:
            expected = None


def _led_in(look: MachineLook) -> bool:
    """Bad bytes stand before its first entry, and were told."""
    return any(bad.offset < look.first_offset for bad in look.bad)


def _end(plan: MachinePlan, looks: Sequence[MachineLook], witness: int) -> Iterator[Fault]:
    """The log reaches as far as was known synced, and its last batch is whole."""
    if not looks:
        return
    full = [look for look in looks if look.entries]
    last = full[-1] if full else looks[0]
    end = global_offset(last.number, last.end)
    path = plan.log / segment_name(last.number)
    told = any(look.ends_in_bad_bytes for look in looks if look.number >= last.number)
    if witness > end and not told:
        what = f"entries that were synced are gone: they went up to offset {witness}"
        yield Fault(path, last.end, what, True, FaultKind.ENTRY)
    elif last.open_batch is not None and not told:
        what = "a batch does not end; a torn tail, which a start cuts"
        yield Fault(path, last.open_batch, what, False, FaultKind.BEYOND)


def _continues(plan: MachinePlan, looks: Sequence[MachineLook]) -> Iterator[Fault]:
    """Where the snapshot ends there is the entry it says, or the end of the log."""
    heading = plan.heading
    if heading is None:
        return
    segment, offset = segment_of(heading.wal_offset), within_segment(heading.wal_offset)
    for look in looks:
        if look.number != segment or look.bad:
            continue
        number = look.asked_sequence
        if offset == look.end:
            number = look.next_sequence or heading.sequence
        if number != heading.sequence:
            found = "no entry begins" if number is None else f"entry {number} is"
            what = f"the snapshot goes on with entry {heading.sequence} here, and {found} here"
            yield Fault(PurePath(look.path), offset, what, True, FaultKind.CONTINUITY)
