"""Report: what a survey of the machines found, and what the table says is done about it."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.format.machines.names import (
    FED_NAME,
    INDEX_NAME,
    segment_of,
    within_segment,
)
from headwater.format.names import CURRENT_NAME
from headwater.recovery.finding import Finding
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
    for stretch in survey.judgement.stretches:
        findings += _about_stretch(survey, stretch)
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
        what = scan.reason or f"{scan.verdict.value}: {MachineOddity.LEFTOVER.value}"
        row = SNAPSHOT_TABLE.decide(scan.verdict, standing)
        yield from row.findings(scan.path, what, scan.offset)
    what = f"index.json {snapshots.index.value}"
    if snapshots.index_reason:
        what += f": {snapshots.index_reason}"
    row = INDEX_TABLE.decide(snapshots.index)
    yield from row.findings(snapshots.directory / INDEX_NAME, what)


def _about_small_files(survey: MachineSurvey) -> Iterator[Finding]:
    for path, table, state in (
        (survey.log / CURRENT_NAME, CURRENT_TABLE, survey.current_state),
        (survey.directory / FED_NAME, FED_TABLE, survey.fed_state),
    ):
        yield from table.decide(state).findings(path, f"{path.name} {state.value}")


def _about_names(survey: MachineSurvey) -> Iterator[Finding]:
    yield from ODDITY_TABLE.oddities(
        (
            (MachineOddity.LEFTOVER, survey.leftovers),
            (MachineOddity.FOREIGN_NAME, survey.foreign),
            (MachineOddity.FOREIGN_IN_LOG, survey.foreign_in_log),
            (MachineOddity.SEGMENT_MISSING, map(survey.path_of, survey.missing)),
            (MachineOddity.OLDER_MISSING, map(survey.path_of, survey.older_missing)),
        )
    )
    if survey.has_no_beginning:
        oddity, path = MachineOddity.NO_BEGINNING, survey.path_of(survey.numbers[0])
        yield from ODDITY_TABLE.decide(oddity).findings(path, oddity.value, 0)


def _about_stretch(survey: MachineSurvey, stretch: BadStretch) -> Iterator[Finding]:
    path, row = survey.path_of(segment_of(stretch.offset)), STRETCH_TABLE.decide(stretch.verdict)
    return row.findings(path, stretch.reason, within_segment(stretch.offset))
