"""The decision tables of Kafka's log: total, without a second row for anything, and never rash."""

from __future__ import annotations

import pytest

from headwater.recovery.finding import Action
from headwater.recovery.kafka.table import (
    CHECKPOINT_ROWS,
    COPY_ROWS,
    INDEX_ROWS,
    LOG_ROWS,
    STRAY_ROWS,
    decide_checkpoint,
    decide_index,
    decide_log,
)
from headwater.recovery.kafka.verdict import (
    CheckpointVerdict,
    CopyVerdict,
    IndexVerdict,
    LogVerdict,
    SegmentPosition,
    Stray,
)


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("copy", CopyVerdict)
@pytest.mark.parametrize("first", CheckpointVerdict)
def test_every_pair_of_checkpoints_meets_exactly_one_row(
    first: CheckpointVerdict, copy: CopyVerdict, entries: bool
) -> None:
    rows = [
        row
        for row in CHECKPOINT_ROWS
        if row.first is first and copy in row.copies and entries in row.entries
    ]
    assert rows == [decide_checkpoint(first, copy, entries=entries)]


@pytest.mark.parametrize("position", SegmentPosition)
@pytest.mark.parametrize("verdict", IndexVerdict)
def test_every_look_at_an_index_meets_exactly_one_row(
    verdict: IndexVerdict, position: SegmentPosition
) -> None:
    rows = [row for row in INDEX_ROWS if row.verdict is verdict and position in row.positions]
    assert rows == [decide_index(verdict, position)]


@pytest.mark.parametrize("position", SegmentPosition)
@pytest.mark.parametrize("verdict", LogVerdict)
def test_every_look_at_a_log_meets_exactly_one_row(
    verdict: LogVerdict, position: SegmentPosition
) -> None:
    rows = [row for row in LOG_ROWS if row.verdict is verdict and position in row.positions]
    assert rows == [decide_log(verdict, position)]


def test_every_copy_and_every_stray_file_has_its_row() -> None:
    assert set(COPY_ROWS) == set(CopyVerdict)
    assert set(STRAY_ROWS) == set(Stray)


def test_only_the_last_segment_is_ever_cut() -> None:
    cuts = {
        position for row in INDEX_ROWS if row.action is Action.CUT for position in row.positions
    }
    cuts |= {position for row in LOG_ROWS if row.action is Action.CUT for position in row.positions}
    assert cuts == {SegmentPosition.LAST}


def test_only_what_is_proven_a_leftover_is_removed() -> None:
    removed = {stray for stray, (action, _) in STRAY_ROWS.items() if action is Action.REMOVE}
    assert removed == {Stray.TEMPORARY, Stray.REWRITE, Stray.LET_GO, Stray.BEGUN}
    everything = [row.action for row in (*CHECKPOINT_ROWS, *INDEX_ROWS, *LOG_ROWS)]
    assert Action.REMOVE not in everything
