"""What a survey of the machines' files can end with, and what is done about each."""

from __future__ import annotations

from enum import Enum
from typing import Final

from headwater.recovery.finding import ANY, Action, DecisionTable, Row


class StretchVerdict(Enum):
    """Of a stretch of the log where entries do not follow each other."""

    DAMAGED = "damaged"
    """Bytes that were known to be synced are no entries; sound ones follow."""
    LOST_END = "damaged to the end"
    """The same, and nothing sound follows that was promised."""
    MISSING = "entries missing"
    """Sound entries, and the numbers of some before them are nowhere."""
    TORN = "torn"
    """An unfinished write that was never acknowledged."""
    NEWER = "newer"
    """A sound header of a kind that this software does not know."""


class SnapshotVerdict(Enum):
    WHOLE = "whole"
    DAMAGED = "damaged"
    MISSING = "missing"
    """index.json names it, and it is not there."""
    UNNAMED = "not named"
    """index.json is sound and does not name it: unfinished work."""
    NEWER = "newer"


class SnapshotStanding(Enum):
    """Whether a start can do without a snapshot."""

    SPARE = "another snapshot, or the whole log, has the same"
    NEEDED = "nothing else has what it held"


class IndexState(Enum):
    ABSENT = "is not there"
    LOST = "is not there, and snapshots are"
    SOUND = "says what the snapshots say"
    DAMAGED = "is damaged"


class SmallFile(Enum):
    """CURRENT and FED: one line each, that proves itself."""

    ABSENT = "is not there"
    SOUND = "is sound"
    DAMAGED = "is damaged"


class MachineOddity(Enum):
    LEFTOVER = "left by work that was interrupted or goes on"
    FOREIGN_NAME = "not a name this software gives"
    FOREIGN_IN_LOG = "a file that does not belong here"
    SEGMENT_MISSING = "a segment of the log is missing"
    OLDER_MISSING = "a segment is missing that was kept for the snapshot before"
    NO_BEGINNING = "the log begins in the middle and there is no sound snapshot"


_SPARE: Final = SnapshotStanding.SPARE
_NEEDED: Final = SnapshotStanding.NEEDED
_IN_DOUBT: Final = "synced entries are gone; instances they may be about are in doubt"
_SAME: Final = "the snapshot before it and the log behind that one have the same"
_COMPACTED: Final = "the log before it was compacted away"
_NEWER: Final = "written by a newer version"

STRETCH_TABLE: Final = DecisionTable(
    (StretchVerdict,),
    Row(
        StretchVerdict.DAMAGED,
        Action.SKIP,
        "synced entries are wrong; instances they may be about are in doubt",
    ),
    Row(StretchVerdict.LOST_END, Action.SKIP, _IN_DOUBT),
    Row(StretchVerdict.MISSING, Action.SKIP, _IN_DOUBT),
    Row(StretchVerdict.TORN, Action.CUT, "an unfinished write that was never acknowledged"),
    Row(StretchVerdict.NEWER, Action.REFUSE_NEWER, _NEWER),
)

SNAPSHOT_TABLE: Final = DecisionTable(
    (SnapshotVerdict, SnapshotStanding),
    Row((SnapshotVerdict.WHOLE, ANY), Action.KEEP, "every block is as it was written"),
    Row((SnapshotVerdict.DAMAGED, _SPARE), Action.QUARANTINE, _SAME),
    Row((SnapshotVerdict.DAMAGED, _NEEDED), Action.REFUSE_DAMAGED, _COMPACTED),
    Row((SnapshotVerdict.MISSING, _SPARE), Action.NOTE, _SAME),
    Row((SnapshotVerdict.MISSING, _NEEDED), Action.REFUSE_DAMAGED, _COMPACTED),
    Row((SnapshotVerdict.UNNAMED, ANY), Action.NOTE, "the next compaction removes what it left"),
    Row((SnapshotVerdict.NEWER, ANY), Action.REFUSE_NEWER, _NEWER),
)

INDEX_TABLE: Final = DecisionTable(
    (IndexState,),
    Row(IndexState.SOUND, Action.KEEP, "it agrees with the snapshots"),
    Row(IndexState.ABSENT, Action.KEEP, "nothing was compacted yet, or the log has everything"),
    Row(IndexState.LOST, Action.REWRITE, "each snapshot says itself what it is of"),
    Row(IndexState.DAMAGED, Action.REWRITE, "each snapshot says itself what it is of"),
)

CURRENT_TABLE: Final = DecisionTable(
    (SmallFile,),
    Row(SmallFile.SOUND, Action.KEEP, "it says what was synced"),
    Row(SmallFile.ABSENT, Action.KEEP, "the segments show which is last"),
    Row(SmallFile.DAMAGED, Action.REWRITE, "the segments show which is last"),
)

FED_TABLE: Final = DecisionTable(
    (SmallFile,),
    Row(SmallFile.SOUND, Action.KEEP, "it says how far transitions are in their topic"),
    Row(SmallFile.ABSENT, Action.KEEP, "the topic itself is read"),
    Row(SmallFile.DAMAGED, Action.NOTE, "the topic itself is read instead"),
)

ODDITY_TABLE: Final = DecisionTable(
    (MachineOddity,),
    Row(
        MachineOddity.LEFTOVER,
        Action.NOTE,
        "it is never read, and the next write of it replaces it",
    ),
    Row(MachineOddity.FOREIGN_NAME, Action.NOTE, "it is never read"),
    Row(
        MachineOddity.FOREIGN_IN_LOG,
        Action.REFUSE_FOREIGN,
        "nothing else may live in the log's directory",
    ),
    Row(MachineOddity.SEGMENT_MISSING, Action.REFUSE_DAMAGED, "it was made and synced"),
    Row(MachineOddity.OLDER_MISSING, Action.NOTE, "the newest snapshot does without it"),
    Row(MachineOddity.NO_BEGINNING, Action.REFUSE_DAMAGED, "what was before was compacted away"),
)

TABLES: Final = {
    "stretch": STRETCH_TABLE,
    "snapshot": SNAPSHOT_TABLE,
    "index": INDEX_TABLE,
    "CURRENT": CURRENT_TABLE,
    "FED": FED_TABLE,
    "oddity": ODDITY_TABLE,
}
