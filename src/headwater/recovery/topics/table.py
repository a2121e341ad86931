"""Decide: what is done about each thing that a survey of the topics' log can find."""

from __future__ import annotations

from enum import Enum
from typing import Final

from headwater.recovery.decision_table import ANY, DecisionTable, Row
from headwater.recovery.finding import Action
from headwater.recovery.topics.verdict import CurrentState, FileVerdict, LogOddity


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
