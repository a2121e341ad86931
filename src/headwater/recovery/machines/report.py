"""Findings: what the table says of a survey, in the words of all stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from headwater.format.machines.names import (
    FED_NAME,
    INDEX_NAME,
    segment_of,
    within_segment,
)
from headwater.format.names import CURRENT_NAME
from headwater.recovery.finding import Action, Finding
from headwater.recovery.machines.survey import MachineSurvey
from headwater.recovery.machines.table import (
    CURRENT_ROWS,
    FED_ROWS,
    INDEX_ROWS,
    ODDITY_ROWS,
    STRETCH_ROWS,
    Decision,
    MachineOddity,
    SnapshotStanding,
    decide_snapshot,
)
from headwater.recovery.machines.verdict import BadStretch


def findings_of(survey: MachineSurvey) -> list[Finding]:
    """Everything that is not simply fine. A snapshot's damage comes first: it explains the rest."""
    findings = [*_about_snapshots(survey), *_about_small_files(survey), *_about_names(survey)]
    return findings + [_about_stretch(survey, stretch) for stretch in survey.judgement.stretches]


def standing_of(survey: MachineSurvey) -> SnapshotStanding:
    """Of every snapshot that is not the one a start begins with."""
    return (
        SnapshotStanding.NEEDED
        if survey.has_no_beginning or survey.missing
        else SnapshotStanding.SPARE
    )


def _about_snapshots(survey: MachineSurvey) -> Iterator[Finding]:
    snapshots, standing = survey.snapshots, standing_of(survey)
    for scan in snapshots.snapshots:
        row = decide_snapshot(scan.verdict, standing)
        if row.action is not Action.KEEP:
            what = scan.reason or f"{scan.verdict.value}: {MachineOddity.LEFTOVER.value}"
            yield Finding(scan.path, scan.offset, row.action, what, row.why)
    action, why = INDEX_ROWS[snapshots.index]
    if action is not Action.KEEP:
        what = f"index.json {snapshots.index.value}"
        if snapshots.index_reason:
            what += f": {snapshots.index_reason}"
        yield Finding(snapshots.directory / INDEX_NAME, None, action, what, why)


def _about_small_files(survey: MachineSurvey) -> Iterator[Finding]:
    for path, row, state in (
        (survey.log / CURRENT_NAME, CURRENT_ROWS[survey.current_state], survey.current_state),
        (survey.directory / FED_NAME, FED_ROWS[survey.fed_state], survey.fed_state),
    ):
        action, why = row
        if action is not Action.KEEP:
            yield Finding(path, None, action, f"{path.name} {state.value}", why)


def _about_names(survey: MachineSurvey) -> Iterator[Finding]:
    snapshots = survey.snapshots
    for oddity, paths in (
        (MachineOddity.LEFTOVER, [*survey.leftovers, *snapshots.leftovers]),
        (MachineOddity.FOREIGN_NAME, [*survey.foreign, *snapshots.foreign]),
        (MachineOddity.FOREIGN_IN_LOG, survey.foreign_in_log),
        (MachineOddity.SEGMENT_MISSING, [survey.path_of(number) for number in survey.missing]),
        (MachineOddity.OLDER_MISSING, [survey.path_of(number) for number in survey.older_missing]),
    ):
        for path in paths:
            yield _finding(path, None, oddity.value, ODDITY_ROWS[oddity])
    if survey.has_no_beginning:
        path = survey.path_of(survey.numbers[0])
        oddity = MachineOddity.NO_BEGINNING
        yield _finding(path, 0, oddity.value, ODDITY_ROWS[oddity])


def _about_stretch(survey: MachineSurvey, stretch: BadStretch) -> Finding:
    path = survey.path_of(segment_of(stretch.offset))
    return _finding(
        path, within_segment(stretch.offset), stretch.reason, STRETCH_ROWS[stretch.verdict]
    )


def _finding(path: PurePath, offset: int | None, what: str, decision: Decision) -> Finding:
    action, why = decision
    return Finding(path, offset, action, what, why)
