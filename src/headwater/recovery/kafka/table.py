"""What a survey of Kafka's directory can end with, and what is done about each of it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from headwater.recovery.finding import ANY, Action, DecisionTable, Row


class CheckpointVerdict(Enum):
    SOUND = "whole"
    ABSENT = "not there"
    DAMAGED = "damaged"
    NEWER = "of a newer version"


class CopyVerdict(Enum):
    """The second checkpoint file, compared with the one a start goes on from."""

    SAME = "the same"
    OTHER = "another one: a crash came between the two"
    ABSENT = "not there"
    DAMAGED = "damaged"
    NEWER = "of a newer version"


class SegmentPosition(Enum):
    """Where a segment stands."""

    LISTED = "the checkpoint knows that it is full"
    FOLLOWED = "another one follows"
    LAST = "the last one"


class IndexVerdict(Enum):
    SOUND = "all entries that were synced"
    MISSING = "not there"
    SHORT = "ends before entries that were synced"
    CHANGED = "the entries are not those that were synced"
    BEYOND = "bytes behind the last entry"


class LogVerdict(Enum):
    SOUND = "whole batches to the end"
    AHEAD = "whole batches, then zeros"
    NEEDLESS = "no entry leads into it any more"
    MISSING = "not there"
    SHORT = "ends before batches that were synced"
    LONG = "longer than it was when it was full"
    BEYOND = "bytes behind the last batch"
    TORN = "a batch that is not whole, and nothing says that it was synced"
    DAMAGED = "a batch that was synced is not whole"
    UNFOLLOWED = "the segment before it is missing"
    NEWER = "an event of a newer version"


class Stray(Enum):
    """Files that nothing leads to."""

    TEMPORARY = "an unfinished replacement"
    REWRITE = "an unfinished rewrite"
    LET_GO = "left by a rewrite or a deletion that the checkpoint knows of"
    BEGUN = "a segment that was begun and never written to"
    UNFINISHED = "a segment without an entry, with bytes in its log"
    EMPTIED = "a segment without an entry whose log says that it had some"
    FOREIGN_NAME = "not a name this software gives"


_UNREADABLE: Final = (CheckpointVerdict.ABSENT, CheckpointVerdict.DAMAGED)
_SOUND_COPY: Final = (CopyVerdict.SAME, CopyVerdict.OTHER)
_NO_COPY: Final = (CopyVerdict.ABSENT, CopyVerdict.DAMAGED)
_FULL: Final = (SegmentPosition.LISTED, SegmentPosition.FOLLOWED)
_LAST: Final = SegmentPosition.LAST

_SYNCED: Final = "synced bytes are wrong or gone"
_NOTHING_MISSING: Final = "nothing is missing"
_WAS_CUT: Final = "it was cut when it was full"
_UNFINISHED: Final = "an unfinished write that was never acknowledged"
_NEWER: Final = "written by a newer version"
_FROM_COPY: Final = "its copy is whole, and nothing was removed that only the copy knows"
_UNKNOWN_SEGMENTS: Final = "nothing else knows where the segments begin"

CHECKPOINT_TABLE: Final = DecisionTable(
    (CheckpointVerdict, CopyVerdict, (False, True)),
    Row((CheckpointVerdict.SOUND, ANY, ANY), Action.KEEP, "it is whole"),
    Row((CheckpointVerdict.NEWER, ANY, ANY), Action.REFUSE_NEWER, _NEWER),
    Row((_UNREADABLE, CopyVerdict.NEWER, ANY), Action.REFUSE_NEWER, _NEWER),
    Row((_UNREADABLE, _SOUND_COPY, ANY), Action.REWRITE, _FROM_COPY),
    Row((CheckpointVerdict.ABSENT, CopyVerdict.ABSENT, False), Action.KEEP, "nothing yet"),
    Row(
        (CheckpointVerdict.ABSENT, CopyVerdict.ABSENT, True),
        Action.REFUSE_DAMAGED,
        _UNKNOWN_SEGMENTS,
    ),
    Row(
        (CheckpointVerdict.ABSENT, CopyVerdict.DAMAGED, ANY),
        Action.REFUSE_DAMAGED,
        _UNKNOWN_SEGMENTS,
    ),
    Row((CheckpointVerdict.DAMAGED, _NO_COPY, ANY), Action.REFUSE_DAMAGED, _UNKNOWN_SEGMENTS),
)
"""The last of the three: whether there are segments with entries."""

COPY_TABLE: Final = DecisionTable(
    (CopyVerdict,),
    Row(CopyVerdict.SAME, Action.KEEP, "it is the checkpoint"),
    Row(CopyVerdict.OTHER, Action.REWRITE, "the checkpoint is newer"),
    Row(CopyVerdict.ABSENT, Action.REWRITE, "the checkpoint is whole"),
    Row(CopyVerdict.DAMAGED, Action.REWRITE, "the checkpoint is whole"),
    Row(CopyVerdict.NEWER, Action.REWRITE, "the checkpoint is whole"),
)
"""Once it is known what to go on from."""

INDEX_TABLE: Final = DecisionTable(
    (IndexVerdict, SegmentPosition),
    Row((IndexVerdict.SOUND, ANY), Action.KEEP, _NOTHING_MISSING),
    Row((IndexVerdict.MISSING, ANY), Action.REFUSE_DAMAGED, _SYNCED),
    Row((IndexVerdict.SHORT, ANY), Action.REFUSE_DAMAGED, _SYNCED),
    Row((IndexVerdict.CHANGED, ANY), Action.REFUSE_DAMAGED, _SYNCED),
    Row((IndexVerdict.BEYOND, _FULL), Action.REFUSE_DAMAGED, _WAS_CUT),
    Row((IndexVerdict.BEYOND, _LAST), Action.CUT, _UNFINISHED),
)

LOG_TABLE: Final = DecisionTable(
    (LogVerdict, SegmentPosition),
    Row((LogVerdict.SOUND, ANY), Action.KEEP, _NOTHING_MISSING),
    Row((LogVerdict.NEEDLESS, _FULL), Action.KEEP, "all its records are dead"),
    Row((LogVerdict.NEEDLESS, _LAST), Action.REFUSE_DAMAGED, "it is still written to"),
    Row((LogVerdict.AHEAD, _LAST), Action.KEEP, "room for what comes next"),
    Row((LogVerdict.AHEAD, _FULL), Action.REFUSE_DAMAGED, _WAS_CUT),
    Row((LogVerdict.MISSING, ANY), Action.REFUSE_DAMAGED, _SYNCED),
    Row((LogVerdict.SHORT, ANY), Action.REFUSE_DAMAGED, _SYNCED),
    Row((LogVerdict.LONG, ANY), Action.REFUSE_DAMAGED, _WAS_CUT),
    Row((LogVerdict.BEYOND, _LAST), Action.CUT, _UNFINISHED),
    Row((LogVerdict.BEYOND, _FULL), Action.REFUSE_DAMAGED, _WAS_CUT),
    Row((LogVerdict.TORN, _LAST), Action.CUT, _UNFINISHED),
    Row((LogVerdict.TORN, _FULL), Action.REFUSE_DAMAGED, "it was synced before the next"),
    Row((LogVerdict.DAMAGED, ANY), Action.REFUSE_DAMAGED, _SYNCED),
    Row((LogVerdict.UNFOLLOWED, ANY), Action.REFUSE_DAMAGED, "what it held is gone"),
    Row((LogVerdict.NEWER, ANY), Action.REFUSE_NEWER, _NEWER),
)

STRAY_TABLE: Final = DecisionTable(
    (Stray,),
    Row(Stray.TEMPORARY, Action.REMOVE, "it was never the file"),
    Row(Stray.REWRITE, Action.REMOVE, "its segment is whole without it"),
    Row(Stray.LET_GO, Action.REMOVE, "the checkpoint knew it and leads to it no more"),
    Row(Stray.BEGUN, Action.REMOVE, "there is nothing in it"),
    Row(Stray.UNFINISHED, Action.QUARANTINE, "nothing says that it was synced"),
    Row(Stray.EMPTIED, Action.REFUSE_DAMAGED, "its entries were synced"),
    Row(Stray.FOREIGN_NAME, Action.NOTE, "nothing of ours has such a name"),
)

TABLES: Final = {
    "checkpoint": CHECKPOINT_TABLE,
    "copy": COPY_TABLE,
    "index": INDEX_TABLE,
    "log": LOG_TABLE,
    "stray": STRAY_TABLE,
}
