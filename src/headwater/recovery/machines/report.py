"""Report: what a survey of the machines found, and what the table says is done about it."""

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
from headwater.recovery.decision_table import Row
from headwater.recovery.finding import Action, Finding
from headwater.recovery.machines.judge import BadStretch
from headwater.recovery.machines.survey import MachineSurvey
from headwater.recovery.machines.table import (
    CURRENT_TABLE,
    FED_TABLE,
    INDEX_TABLE,
    ODDITY_TABLE,
    SNAPSHOT_TABLE,
    STRETCH_TABLE,
)
from headwater.recovery.machines.verdict import MachineOddity, SnapshotStanding
from headwater.recovery.report import StoreReport


def report_on_machines(survey: MachineSurvey) -> StoreReport:
    """A snapshot's damage comes first: it explains the rest."""
    findings = [*_about_snapshots(survey), *_about_small_files(survey), *_about_names(survey)]
    findings += [_about_stretch(survey, stretch) for stretch in survey.judgement.stretches]
    return StoreReport(findings)


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
        row = SNAPSHOT_TABLE.decide(scan.verdict, standing)
        if row.action is not Action.KEEP:
            what = scan.reason or f"{scan.verdict.value}: {MachineOddity.LEFTOVER.value}"
            yield _finding(scan.path, scan.offset, what, row)
    row = INDEX_TABLE.decide(snapshots.index)
    if row.action is not Action.KEEP:
        what = f"index.json {snapshots.index.value}"
        if snapshots.index_reason:
            what += f": {snapshots.index_reason}"
        yield _finding(snapshots.directory / INDEX_NAME, None, what, row)


def _about_small_files(survey: MachineSurvey) -> Iterator[Finding]:
    for path, table, state in (
        (survey.log / CURRENT_NAME, CURRENT_TABLE, survey.current_state),
        (survey.directory / FED_NAME, FED_TABLE, survey.fed_state),
    ):
        row = table.decide(state)
        if row.action is not Action.KEEP:
            yield _finding(path, None, f"{path.name} {state.value}", row)


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
            yield _finding(path, None, oddity.value, ODDITY_TABLE.decide(oddity))
    if survey.has_no_beginning:
        oddity, path = MachineOddity.NO_BEGINNING, survey.path_of(survey.numbers[0])
        yield _finding(path, 0, oddity.value, ODDITY_TABLE.decide(oddity))


def _about_stretch(survey: MachineSurvey, stretch: BadStretch) -> Finding:
    path, row = survey.path_of(segment_of(stretch.offset)), STRETCH_TABLE.decide(stretch.verdict)
    return _finding(path, within_segment(stretch.offset), stretch.reason, row)


def _finding(path: PurePath, offset: int | None, what: str, row: Row) -> Finding:
    return Finding(path, offset, row.action, what, row.why)
