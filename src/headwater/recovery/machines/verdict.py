"""What a survey of the machines' files can end with: one word for each thing it can find."""

from __future__ import annotations

from enum import Enum


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
