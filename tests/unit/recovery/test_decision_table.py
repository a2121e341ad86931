"""The decision tables are total: every case of a store meets exactly one row, which says why.

Whatever loses bytes stands here in full: a row that is added to a table has to be added here too.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from headwater.core.errors import DamageError, ForeignFileError, NewerFormatError
from headwater.recovery.finding import Action, Case, DecisionTable
from headwater.recovery.kafka import table as kafka
from headwater.recovery.kafka.table import IndexVerdict, LogVerdict, SegmentPosition, Stray
from headwater.recovery.machines import table as machines
from headwater.recovery.machines.table import (
    SnapshotStanding,
    SnapshotVerdict,
    StretchVerdict,
)
from headwater.recovery.topics import table as topics
from headwater.recovery.topics.report import report_on
from headwater.recovery.topics.scan import FileScan
from headwater.recovery.topics.survey import ShardSurvey
from headwater.recovery.topics.table import (
    FILE_TABLE,
    CurrentState,
    FilePosition,
    FileVerdict,
    LogOddity,
)

DIRECTORY = PurePosixPath("/wal")
TABLES = {
    f"{name} of {store.__name__}": table
    for store in (topics, kafka, machines)
    for name, table in store.TABLES.items()
}


def cases_of(action: Action, tables: dict[str, DecisionTable]) -> list[Case]:
    return [case for table in tables.values() for case in table.cases_of(action)]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_case_meets_exactly_one_row_and_every_row_has_a_case(table: DecisionTable) -> None:
    for case in table.cases:
        assert len(table.rows_of(*case)) == 1, case
    met = [table.decide(*case) for case in table.cases]
    assert all(row in met and row.why for row in table.rows)


@pytest.mark.claims(141, 142, 205)
def test_only_a_torn_tail_of_the_last_file_is_cut() -> None:
    """A cut loses bytes, so this is the whole list of cases that lead to one."""
    last = SegmentPosition.LAST
    assert cases_of(Action.CUT, TABLES) == [
        (FileVerdict.TORN, FilePosition.LAST),
        (IndexVerdict.BEYOND, last),
        (LogVerdict.BEYOND, last),
        (LogVerdict.TORN, last),
        (StretchVerdict.TORN,),
    ]


def test_nothing_is_removed_but_what_was_never_used_or_already_released() -> None:
    assert cases_of(Action.REMOVE, TABLES) == [
        (LogOddity.LEFTOVER,),
        (LogOddity.UNTRIMMED,),
        (Stray.TEMPORARY,),
        (Stray.REWRITE,),
        (Stray.LET_GO,),
        (Stray.BEGUN,),
    ]


def test_a_damaged_snapshot_is_refused_only_where_nothing_stands_in_for_it() -> None:
    decide = machines.SNAPSHOT_TABLE.decide
    damaged = SnapshotVerdict.DAMAGED
    assert decide(damaged, SnapshotStanding.SPARE).action is Action.QUARANTINE
    assert decide(damaged, SnapshotStanding.NEEDED).action is Action.REFUSE_DAMAGED


@pytest.mark.parametrize(("verdict", "position"), FILE_TABLE.cases)
def test_every_sight_is_kept_or_told_and_refusals_become_the_right_error(
    verdict: FileVerdict, position: FilePosition
) -> None:
    scan = FileScan(DIRECTORY / "wal-0000000000000001.log", 1, verdict, end=77, reason="seen")
    other = FileScan(DIRECTORY / "wal-0000000000000009.log", 9)
    files = [scan, other] if position is FilePosition.EARLIER else [other, scan]
    survey = ShardSurvey(DIRECTORY, files=files, current_state=CurrentState.NAMES_LAST)
    report = report_on([survey])
    action = FILE_TABLE.decide(verdict, position).action
    found = [finding for finding in report.findings if finding.path == scan.path]
    assert bool(found) == (action is not Action.KEEP)
    errors = {
        Action.REFUSE_DAMAGED: DamageError,
        Action.REFUSE_FOREIGN: ForeignFileError,
        Action.REFUSE_NEWER: NewerFormatError,
    }
    assert bool(report.refusals) == action.refuses == (action in errors)
    if action in errors:
        with pytest.raises(errors[action]) as caught:
            report.raise_if_refused()
        assert (caught.value.path, caught.value.offset) == (scan.path, 77)
        assert caught.value.advice


@pytest.mark.parametrize("state", CurrentState)
def test_every_state_of_current_can_be_reported(state: CurrentState) -> None:
    scan = FileScan(DIRECTORY / "wal-0000000000000001.log", 1)
    report = report_on([ShardSurvey(DIRECTORY, files=[scan], current_state=state)])
    lines = [finding.line() for finding in report.findings]
    assert bool(lines) == (state is not CurrentState.NAMES_LAST)
    assert all("CURRENT" in line for line in lines)
    assert report.as_dict()["ok"] == (not report.refusals)


def test_every_oddity_can_be_reported() -> None:
    survey = ShardSurvey(
        DIRECTORY,
        current_state=CurrentState.NAMES_LAST,
        leftovers=[DIRECTORY / "prepared.next"],
        untrimmed=[DIRECTORY / "wal-0000000000000001.log"],
        foreign=[DIRECTORY / "notes"],
        oldest_missing=True,
        repairs_unreadable=True,
    )
    whats = {finding.what for finding in report_on([survey]).findings}
    assert whats == {oddity.value for oddity in LogOddity}
