"""The decision table is total: every sight meets exactly one row, and every row says why."""

from __future__ import annotations

from itertools import product
from pathlib import PurePosixPath

import pytest

from headwater.core.errors import DamageError, ForeignFileError, NewerFormatError
from headwater.recovery.finding import Action
from headwater.recovery.topics.report import report_on
from headwater.recovery.topics.survey import CurrentState, ShardSurvey
from headwater.recovery.topics.table import (
    CURRENT_ROWS,
    FILE_ROWS,
    ODDITY_ROWS,
    FilePosition,
    LogOddity,
    decide_file,
)
from headwater.recovery.topics.verdict import FileScan, FileVerdict

DIRECTORY = PurePosixPath("/wal")


@pytest.mark.parametrize(("position", "verdict"), list(product(FilePosition, FileVerdict)))
def test_every_place_and_verdict_meets_exactly_one_row(
    position: FilePosition, verdict: FileVerdict
) -> None:
    rows = [row for row in FILE_ROWS if row.verdict is verdict and position in row.positions]
    assert len(rows) == 1
    assert decide_file(position, verdict) is rows[0]
    assert rows[0].why


def test_every_state_of_current_and_every_oddity_has_its_row() -> None:
    assert set(CURRENT_ROWS) == set(CurrentState)
    assert set(ODDITY_ROWS) == set(LogOddity)
    assert all(why for _, why in [*CURRENT_ROWS.values(), *ODDITY_ROWS.values()])


@pytest.mark.claims(141, 142, 205)
def test_only_a_torn_tail_of_the_last_file_is_cut() -> None:
    """A cut loses bytes, so this is the whole list of sights that lead to one."""
    cuts = [
        (position, verdict)
        for position, verdict in product(FilePosition, FileVerdict)
        if decide_file(position, verdict).action is Action.CUT
    ]
    assert cuts == [(FilePosition.LAST, FileVerdict.TORN)]


def test_nothing_is_removed_but_what_was_never_used_or_already_released() -> None:
    removed = [oddity for oddity, (action, _) in ODDITY_ROWS.items() if action is Action.REMOVE]
    assert removed == [LogOddity.LEFTOVER, LogOddity.UNTRIMMED]
    assert all(row.action is not Action.REMOVE for row in FILE_ROWS)


@pytest.mark.parametrize(("position", "verdict"), list(product(FilePosition, FileVerdict)))
def test_every_sight_is_kept_or_told_and_refusals_become_the_right_error(
    position: FilePosition, verdict: FileVerdict
) -> None:
    scan = FileScan(DIRECTORY / "wal-0000000000000001.log", 1, verdict, end=77, reason="seen")
    other = FileScan(DIRECTORY / "wal-0000000000000009.log", 9)
    files = [scan, other] if position is FilePosition.EARLIER else [other, scan]
    survey = ShardSurvey(DIRECTORY, files=files, current_state=CurrentState.NAMES_LAST)
    report = report_on([survey])
    action = decide_file(position, verdict).action
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
