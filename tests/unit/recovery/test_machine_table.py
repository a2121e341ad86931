"""The machines' decision table is total, and says what is done; nothing is decided elsewhere."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from headwater.recovery.finding import Action
from headwater.recovery.machines.snapshot import IndexState, SnapshotVerdict
from headwater.recovery.machines.survey import SmallFile
from headwater.recovery.machines.table import (
    CURRENT_ROWS,
    FED_ROWS,
    INDEX_ROWS,
    ODDITY_ROWS,
    SNAPSHOT_ROWS,
    STRETCH_ROWS,
    MachineOddity,
    SnapshotStanding,
    decide_snapshot,
)
from headwater.recovery.machines.verdict import StretchVerdict

SNAPSHOTS = list(product(SnapshotVerdict, SnapshotStanding))


@pytest.mark.parametrize(("verdict", "standing"), SNAPSHOTS)
def test_every_snapshot_and_standing_meets_exactly_one_row(
    verdict: SnapshotVerdict, standing: SnapshotStanding
) -> None:
    rows = [row for row in SNAPSHOT_ROWS if row.verdict is verdict and standing in row.standings]
    assert len(rows) == 1
    assert decide_snapshot(verdict, standing) is rows[0]
    assert rows[0].why


def test_every_other_case_has_its_row_and_every_row_says_why() -> None:
    assert set(STRETCH_ROWS) == set(StretchVerdict)
    assert set(INDEX_ROWS) == set(IndexState)
    assert set(CURRENT_ROWS) == set(FED_ROWS) == set(SmallFile)
    assert set(ODDITY_ROWS) == set(MachineOddity)
    for rows in (STRETCH_ROWS, INDEX_ROWS, CURRENT_ROWS, FED_ROWS, ODDITY_ROWS):
        assert all(why for _, why in rows.values())


def test_only_a_torn_tail_is_cut_and_nothing_is_removed() -> None:
    """A cut loses bytes, so this is the whole list of cases that lead to one."""
    everything = [
        *((case, action) for case, (action, _) in STRETCH_ROWS.items()),
        *((case, action) for case, (action, _) in INDEX_ROWS.items()),
        *((case, action) for case, (action, _) in ODDITY_ROWS.items()),
        *((row.verdict, row.action) for row in SNAPSHOT_ROWS),
    ]
    assert [case for case, action in everything if action is Action.CUT] == [StretchVerdict.TORN]
    assert not [case for case, action in everything if action is Action.REMOVE]


def test_a_damaged_snapshot_is_refused_only_where_nothing_stands_in_for_it() -> None:
    decide = partial(decide_snapshot, SnapshotVerdict.DAMAGED)
    assert decide(SnapshotStanding.SPARE).action is Action.QUARANTINE
    assert decide(SnapshotStanding.NEEDED).action is Action.REFUSE_DAMAGED
