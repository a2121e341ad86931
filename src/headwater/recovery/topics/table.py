"""Decide: rows of (what the survey found -> what is done). A test proves one row for each case.

Nothing here reads a disk, and nothing is decided anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from headwater.recovery.finding import Action
from headwater.recovery.topics.survey import CurrentState
from headwater.recovery.topics.verdict import FileVerdict


class FilePosition(Enum):
    EARLIER = "an earlier file"
    LAST = "the last file"


class LogOddity(Enum):
    """Things that may lie beside the log files."""

    LEFTOVER = "made but never used"
    UNTRIMMED = "older than CURRENT needs"
    FOREIGN_NAME = "not a name this software gives"
    OLDEST_MISSING = "the oldest file CURRENT needs is not there"
    REPAIRS_UNREADABLE = "REPAIRS cannot be read"


@dataclass(frozen=True, slots=True)
class FileRow:
    verdict: FileVerdict
    positions: tuple[FilePosition, ...]
    action: Action
    why: str


BOTH: Final = tuple(FilePosition)

FILE_ROWS: Final = (
    FileRow(FileVerdict.CLEAN, BOTH, Action.KEEP, "whole groups to the end"),
    FileRow(
        FileVerdict.EMPTY,
        (FilePosition.LAST,),
        Action.KEEP,
        "made by a rotation, not yet written to",
    ),
    FileRow(
        FileVerdict.EMPTY, (FilePosition.EARLIER,), Action.REFUSE_DAMAGED, "what it held is gone"
    ),
    FileRow(
        FileVerdict.TORN,
        (FilePosition.LAST,),
        Action.CUT,
        "an unfinished write that was never acknowledged",
    ),
    FileRow(
        FileVerdict.TORN,
        (FilePosition.EARLIER,),
        Action.REFUSE_DAMAGED,
        "it was synced before the next",
    ),
    FileRow(FileVerdict.DAMAGED, BOTH, Action.REFUSE_DAMAGED, "synced bytes are wrong or gone"),
    FileRow(FileVerdict.FOREIGN, BOTH, Action.REFUSE_FOREIGN, "not written by this log"),
    FileRow(FileVerdict.NEWER, BOTH, Action.REFUSE_NEWER, "written by a newer version"),
)

CURRENT_ROWS: Final = {
    CurrentState.NAMES_LAST: (Action.KEEP, "it agrees with the files"),
    CurrentState.NAMES_EARLIER: (Action.REWRITE, "the files go further and their chain is whole"),
    CurrentState.ABSENT: (Action.REWRITE, "the files show which is last"),
    CurrentState.UNREADABLE: (Action.REWRITE, "the files show which is last"),
    CurrentState.OF_ANOTHER_LOG: (Action.REFUSE_FOREIGN, "it would have the wrong files deleted"),
    CurrentState.NAMES_MISSING: (Action.REFUSE_DAMAGED, "a file with acknowledged writes is gone"),
}

ODDITY_ROWS: Final = {
    LogOddity.LEFTOVER: (Action.REMOVE, "an unfinished rotation or replacement"),
    LogOddity.UNTRIMMED: (Action.REMOVE, "an unfinished trim"),
    LogOddity.FOREIGN_NAME: (Action.REFUSE_FOREIGN, "nothing else may live in the log's directory"),
    LogOddity.OLDEST_MISSING: (Action.REFUSE_DAMAGED, "a file that was not trimmed is gone"),
    LogOddity.REPAIRS_UNREADABLE: (Action.NOTE, "damage it covered, if any, shows again"),
}


def decide_file(position: FilePosition, verdict: FileVerdict) -> FileRow:
    return next(row for row in FILE_ROWS if row.verdict is verdict and position in row.positions)
