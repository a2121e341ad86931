"""What a survey of the topics' log can end with, and what is done about each."""

from __future__ import annotations

from enum import Enum
from typing import Final

from headwater.recovery.finding import ANY, Action, DecisionTable, Row


class FileVerdict(Enum):
    EMPTY = "empty"
    """Nothing but zeros: made ahead, never written to."""
    CLEAN = "clean"
    """Whole groups, then zeros to the end, or the end that the next file confirms."""
    TORN = "torn"
    """Whole groups, then an unfinished write that was never acknowledged."""
    DAMAGED = "damaged"
    """Bytes that were known to be synced are wrong or gone."""
    FOREIGN = "foreign"
    """Not written by this log."""
    NEWER = "newer"
    """Whole, but of a format this software does not know."""


class CurrentState(Enum):
    """What CURRENT says, compared with the files that are there."""

    ABSENT = "is not there"
    UNREADABLE = "is damaged"
    NAMES_LAST = "names the last file"
    NAMES_EARLIER = "names an earlier file"
    NAMES_MISSING = "names a file that is not there"
    OF_ANOTHER_LOG = "belongs to another log"


class LogOddity(Enum):
    """Things that may lie beside the log files."""

    LEFTOVER = "made but never used"
    UNTRIMMED = "older than CURRENT needs"
    FOREIGN_NAME = "not a name this software gives"
    OLDEST_MISSING = "the oldest file CURRENT needs is not there"
    REPAIRS_UNREADABLE = "REPAIRS cannot be read"


class FilePosition(Enum):
    EARLIER = "an earlier file"
    LAST = "the last file"


_LAST: Final = FilePosition.LAST
_EARLIER: Final = FilePosition.EARLIER

FILE_TABLE: Final = DecisionTable(
    (FileVerdict, FilePosition),
    Row((FileVerdict.CLEAN, ANY), Action.KEEP, "whole groups to the end"),
    Row((FileVerdict.EMPTY, _LAST), Action.KEEP, "made by a rotation, not yet written to"),
    Row((FileVerdict.EMPTY, _EARLIER), Action.REFUSE_DAMAGED, "what it held is gone"),
    Row((FileVerdict.TORN, _LAST), Action.CUT, "an unfinished write that was never acknowledged"),
    Row((FileVerdict.TORN, _EARLIER), Action.REFUSE_DAMAGED, "it was synced before the next"),
    Row((FileVerdict.DAMAGED, ANY), Action.REFUSE_DAMAGED, "synced bytes are wrong or gone"),
    Row((FileVerdict.FOREIGN, ANY), Action.REFUSE_FOREIGN, "not written by this log"),
    Row((FileVerdict.NEWER, ANY), Action.REFUSE_NEWER, "written by a newer version"),
)

CURRENT_TABLE: Final = DecisionTable(
    (CurrentState,),
    Row(CurrentState.NAMES_LAST, Action.KEEP, "it agrees with the files"),
    Row(
        CurrentState.NAMES_EARLIER,
        Action.REWRITE,
        "the files go further and their chain is whole",
    ),
    Row(CurrentState.ABSENT, Action.REWRITE, "the files show which is last"),
    Row(CurrentState.UNREADABLE, Action.REWRITE, "the files show which is last"),
    Row(
        CurrentState.OF_ANOTHER_LOG,
        Action.REFUSE_FOREIGN,
        "it would have the wrong files deleted",
    ),
    Row(
        CurrentState.NAMES_MISSING,
        Action.REFUSE_DAMAGED,
        "a file with acknowledged writes is gone",
    ),
)

ODDITY_TABLE: Final = DecisionTable(
    (LogOddity,),
    Row(LogOddity.LEFTOVER, Action.REMOVE, "an unfinished rotation or replacement"),
    Row(LogOddity.UNTRIMMED, Action.REMOVE, "an unfinished trim"),
    Row(
        LogOddity.FOREIGN_NAME,
        Action.REFUSE_FOREIGN,
        "nothing else may live in the log's directory",
    ),
    Row(LogOddity.OLDEST_MISSING, Action.REFUSE_DAMAGED, "a file that was not trimmed is gone"),
    Row(LogOddity.REPAIRS_UNREADABLE, Action.NOTE, "damage it covered, if any, shows again"),
)

TABLES: Final = {"file": FILE_TABLE, "CURRENT": CURRENT_TABLE, "oddity": ODDITY_TABLE}
