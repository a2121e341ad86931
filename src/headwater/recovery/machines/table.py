"""Decide: rows of (what the survey found -> what is done). A test proves one row for each case.

Nothing here reads a disk, and nothing is decided anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from headwater.recovery.finding import Action
from headwater.recovery.machines.snapshot import IndexState, SnapshotVerdict
from headwater.recovery.machines.survey import SmallFile
from headwater.recovery.machines.verdict import StretchVerdict

Decision = tuple[Action, str]


class SnapshotStanding(Enum):
    """Whether a start can do without a snapshot."""

    SPARE = "another snapshot, or the whole log, has the same"
    NEEDED = "nothing else has what it held"


class MachineOddity(Enum):
    LEFTOVER = "left by work that was interrupted or goes on"
    FOREIGN_NAME = "not a name this software gives"
    FOREIGN_IN_LOG = "a file that does not belong here"
    SEGMENT_MISSING = "a segment of the log is missing"
    OLDER_MISSING = "a segment is missing that was kept for the snapshot before"
    NO_BEGINNING = "the log begins in the middle and there is no sound snapshot"


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    verdict: SnapshotVerdict
    standings: tuple[SnapshotStanding, ...]
    action: Action
    why: str


BOTH: Final = tuple(SnapshotStanding)
SPARE: Final = (SnapshotStanding.SPARE,)
NEEDED: Final = (SnapshotStanding.NEEDED,)

STRETCH_ROWS: Final[dict[StretchVerdict, Decision]] = {
    StretchVerdict.DAMAGED: (
        Action.SKIP,
        "synced entries are wrong; instances they may be about are in doubt",
    ),
    StretchVerdict.LOST_END: (
        Action.SKIP,
        "synced entries are gone; instances they may be about are in doubt",
    ),
    StretchVerdict.MISSING: (
        Action.SKIP,
        "synced entries are gone; instances they may be about are in doubt",
    ),
    StretchVerdict.TORN: (Action.CUT, "an unfinished write that was never acknowledged"),
    StretchVerdict.NEWER: (Action.REFUSE_NEWER, "written by a newer version"),
}

SNAPSHOT_ROWS: Final = (
    SnapshotRow(SnapshotVerdict.WHOLE, BOTH, Action.KEEP, "every block is as it was written"),
    SnapshotRow(
        SnapshotVerdict.DAMAGED,
        SPARE,
        Action.QUARANTINE,
        "the snapshot before it and the log behind that one have the same",
    ),
    SnapshotRow(
        SnapshotVerdict.DAMAGED,
        NEEDED,
        Action.REFUSE_DAMAGED,
        "the log before it was compacted away",
    ),
    SnapshotRow(
        SnapshotVerdict.MISSING,
        SPARE,
        Action.NOTE,
        "the snapshot before it and the log behind that one have the same",
    ),
    SnapshotRow(
        SnapshotVerdict.MISSING,
        NEEDED,
        Action.REFUSE_DAMAGED,
        "the log before it was compacted away",
    ),
    SnapshotRow(
        SnapshotVerdict.UNNAMED, BOTH, Action.NOTE, "the next compaction removes what it left"
    ),
    SnapshotRow(SnapshotVerdict.NEWER, BOTH, Action.REFUSE_NEWER, "written by a newer version"),
)

INDEX_ROWS: Final[dict[IndexState, Decision]] = {
    IndexState.SOUND: (Action.KEEP, "it agrees with the snapshots"),
    IndexState.ABSENT: (Action.KEEP, "nothing was compacted yet, or the log has everything"),
    IndexState.LOST: (Action.REWRITE, "each snapshot says itself what it is of"),
    IndexState.DAMAGED: (Action.REWRITE, "each snapshot says itself what it is of"),
}

CURRENT_ROWS: Final[dict[SmallFile, Decision]] = {
    SmallFile.SOUND: (Action.KEEP, "it says what was synced"),
    SmallFile.ABSENT: (Action.KEEP, "the segments show which is last"),
    SmallFile.DAMAGED: (Action.REWRITE, "the segments show which is last"),
}

FED_ROWS: Final[dict[SmallFile, Decision]] = {
    SmallFile.SOUND: (Action.KEEP, "it says how far transitions are in their topic"),
    SmallFile.ABSENT: (Action.KEEP, "the topic itself is read"),
    SmallFile.DAMAGED: (Action.NOTE, "the topic itself is read instead"),
}

ODDITY_ROWS: Final[dict[MachineOddity, Decision]] = {
    MachineOddity.LEFTOVER: (Action.NOTE, "it is never read, and the next write of it replaces it"),
    MachineOddity.FOREIGN_NAME: (Action.NOTE, "it is never read"),
    MachineOddity.FOREIGN_IN_LOG: (
        Action.REFUSE_FOREIGN,
        "nothing else may live in the log's directory",
    ),
    MachineOddity.SEGMENT_MISSING: (Action.REFUSE_DAMAGED, "it was made and synced"),
    MachineOddity.OLDER_MISSING: (Action.NOTE, "the newest snapshot does without it"),
    MachineOddity.NO_BEGINNING: (Action.REFUSE_DAMAGED, "what was before was compacted away"),
}


def decide_snapshot(verdict: SnapshotVerdict, standing: SnapshotStanding) -> SnapshotRow:
    return next(r for r in SNAPSHOT_ROWS if r.verdict is verdict and standing in r.standings)
