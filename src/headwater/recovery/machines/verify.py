"""Verify: the findings of a survey as faults, and what only a deep scan finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from headwater.format.machines.names import (
    FED_NAME,
    segment_of,
    within_segment,
)
from headwater.format.names import CURRENT_NAME
from headwater.recovery.finding import Action, Finding
from headwater.recovery.machines.segment import MachineScan, Run
from headwater.recovery.machines.survey import (
    MachineSurvey,
    complete_survey,
    report_on_machines,
)
from headwater.recovery.machines.table import MachineOddity
from headwater.store.verify import FaultKind, VerifyFault

_KINDS: Final = {
    MachineOddity.LEFTOVER.value: FaultKind.UNFINISHED,
    MachineOddity.FOREIGN_NAME.value: FaultKind.NAME,
    MachineOddity.FOREIGN_IN_LOG.value: FaultKind.NAME,
    MachineOddity.SEGMENT_MISSING.value: FaultKind.MISSING,
    MachineOddity.OLDER_MISSING.value: FaultKind.MISSING,
    MachineOddity.NO_BEGINNING.value: FaultKind.CONTINUITY,
}


def machine_faults(survey: MachineSurvey, scans: Sequence[MachineScan]) -> list[VerifyFault]:
    """All faults: those of the survey, those of each segment, and whether they fit together."""
    complete_survey(survey, scans)
    return [
        *(_as_fault(survey, finding) for finding in report_on_machines(survey).findings),
        *survey.faults,
        *(fault for scan in scans for fault in scan.faults),
        *_continues(survey),
    ]


def _as_fault(survey: MachineSurvey, finding: Finding) -> VerifyFault:
    # Where one thing stands in for another nothing is lost yet, and yet something was damaged.
    spare = finding.action is Action.QUARANTINE or finding.what == MachineOddity.OLDER_MISSING.value
    bad = finding.is_damage or spare
    what = finding.what
    if finding.action is Action.CUT:
        what = f"{what}; a torn tail, which a start cuts"
    elif finding.action is not Action.SKIP:
        what = f"{what} ({finding.why})"
    return VerifyFault(finding.path, finding.offset, what, bad, _kind_of(survey, finding))


def _kind_of(survey: MachineSurvey, finding: Finding) -> FaultKind:
    kind = _KINDS.get(finding.what)
    if kind is not None:
        return kind
    if finding.path.name in (CURRENT_NAME, FED_NAME):
        return FaultKind.CURRENT
    if finding.path.parent == survey.snapshots.directory:
        return FaultKind.SNAPSHOT
    return FaultKind.BEYOND if finding.action is Action.CUT else FaultKind.ENTRY


def _continues(survey: MachineSurvey) -> Iterator[VerifyFault]:
    """Where a snapshot ends there is the entry it says, or the end of the log."""
    scans = {scan.number: scan for scan in survey.scans}
    for snapshot in survey.snapshots.whole():
        heading = snapshot.heading
        assert heading is not None, "a whole snapshot has one"
        offset = within_segment(heading.wal_offset)
        scan = scans.get(segment_of(heading.wal_offset))
        if scan is None or any(not isinstance(item, Run) for item in scan.items):
            continue
        number = scan.wanted.get(offset)
        if offset == scan.end:
            number = _next_number(scan) or heading.sequence
        if number != heading.sequence:
            actual = "no entry begins" if number is None else f"entry {number} is"
            what = f"a snapshot goes on with entry {heading.sequence} here, and {actual} here"
            yield VerifyFault(PurePath(scan.path), offset, what, True, FaultKind.CONTINUITY)


def _next_number(scan: MachineScan) -> int | None:
    last = scan.items[-1] if scan.items else None
    return last.first + last.entries if isinstance(last, Run) else None
