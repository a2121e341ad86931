"""Decide: what is done about each thing a survey of Kafka's log can see.

Nothing here reads a disk, and nothing is decided anywhere else. A test proves that every case has
exactly one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.recovery.finding import Action
from headwater.recovery.kafka.verdict import (
    CheckpointVerdict,
    CopyVerdict,
    IndexVerdict,
    LogVerdict,
    SegmentPosition,
    Stray,
)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    first: CheckpointVerdict
    copies: tuple[CopyVerdict, ...]
    entries: tuple[bool, ...]
    """Whether there are segments with entries."""
    action: Action
    why: str


@dataclass(frozen=True, slots=True)
class IndexRow:
    verdict: IndexVerdict
    positions: tuple[SegmentPosition, ...]
    action: Action
    why: str


@dataclass(frozen=True, slots=True)
class LogRow:
    verdict: LogVerdict
    positions: tuple[SegmentPosition, ...]
    action: Action
    why: str


_ANY_COPY: Final = tuple(CopyVerdict)
_NO_COPY: Final = (CopyVerdict.ABSENT, CopyVerdict.DAMAGED)
_NEWER_COPY: Final = (CopyVerdict.NEWER,)
_NEWER: Final = "written by a newer version"
_SOUND_COPY: Final = (CopyVerdict.SAME, CopyVerdict.OTHER)
_EITHER: Final = (False, True)
_EVERYWHERE: Final = tuple(SegmentPosition)
_FULL: Final = (SegmentPosition.LISTED, SegmentPosition.FOLLOWED)
_LAST: Final = (SegmentPosition.LAST,)

_SYNCED: Final = "synced bytes are wrong or gone"
_FROM_COPY: Final = "its copy is whole, and nothing was removed that only the copy knows"
_UNKNOWN_SEGMENTS: Final = "nothing else knows where the segments begin"

CHECKPOINT_ROWS: Final = (
    CheckpointRow(CheckpointVerdict.SOUND, _ANY_COPY, _EITHER, Action.KEEP, "it is whole"),
    CheckpointRow(
        CheckpointVerdict.NEWER,
        _ANY_COPY,
        _EITHER,
        Action.REFUSE_NEWER,
        _NEWER,
    ),
    CheckpointRow(CheckpointVerdict.ABSENT, _NEWER_COPY, _EITHER, Action.REFUSE_NEWER, _NEWER),
    CheckpointRow(CheckpointVerdict.DAMAGED, _NEWER_COPY, _EITHER, Action.REFUSE_NEWER, _NEWER),
    CheckpointRow(CheckpointVerdict.ABSENT, _SOUND_COPY, _EITHER, Action.REWRITE, _FROM_COPY),
    CheckpointRow(CheckpointVerdict.DAMAGED, _SOUND_COPY, _EITHER, Action.REWRITE, _FROM_COPY),
    CheckpointRow(
        CheckpointVerdict.ABSENT, (CopyVerdict.ABSENT,), (False,), Action.KEEP, "nothing yet"
    ),
    CheckpointRow(
        CheckpointVerdict.ABSENT,
        (CopyVerdict.ABSENT,),
        (True,),
        Action.REFUSE_DAMAGED,
        _UNKNOWN_SEGMENTS,
    ),
    CheckpointRow(
        CheckpointVerdict.ABSENT,
        (CopyVerdict.DAMAGED,),
        _EITHER,
        Action.REFUSE_DAMAGED,
        _UNKNOWN_SEGMENTS,
    ),
    CheckpointRow(
        CheckpointVerdict.DAMAGED, _NO_COPY, _EITHER, Action.REFUSE_DAMAGED, _UNKNOWN_SEGMENTS
    ),
)

COPY_ROWS: Final = {
    CopyVerdict.SAME: (Action.KEEP, "it is the checkpoint"),
    CopyVerdict.OTHER: (Action.REWRITE, "the checkpoint is newer"),
    CopyVerdict.ABSENT: (Action.REWRITE, "the checkpoint is whole"),
    CopyVerdict.DAMAGED: (Action.REWRITE, "the checkpoint is whole"),
    CopyVerdict.NEWER: (Action.REWRITE, "the checkpoint is whole"),
}
"""Once it is known what to go on from."""

INDEX_ROWS: Final = (
    IndexRow(IndexVerdict.SOUND, _EVERYWHERE, Action.KEEP, "nothing is missing"),
    IndexRow(IndexVerdict.MISSING, _EVERYWHERE, Action.REFUSE_DAMAGED, _SYNCED),
    IndexRow(IndexVerdict.SHORT, _EVERYWHERE, Action.REFUSE_DAMAGED, _SYNCED),
    IndexRow(IndexVerdict.CHANGED, _EVERYWHERE, Action.REFUSE_DAMAGED, _SYNCED),
    IndexRow(IndexVerdict.BEYOND, _FULL, Action.REFUSE_DAMAGED, "it was cut when it was full"),
    IndexRow(
        IndexVerdict.BEYOND, _LAST, Action.CUT, "an unfinished write that was never acknowledged"
    ),
)

LOG_ROWS: Final = (
    LogRow(LogVerdict.SOUND, _EVERYWHERE, Action.KEEP, "nothing is missing"),
    LogRow(LogVerdict.NEEDLESS, _FULL, Action.KEEP, "all its records are dead"),
    LogRow(LogVerdict.NEEDLESS, _LAST, Action.REFUSE_DAMAGED, "it is still written to"),
    LogRow(LogVerdict.AHEAD, _LAST, Action.KEEP, "room for what comes next"),
    LogRow(LogVerdict.AHEAD, _FULL, Action.REFUSE_DAMAGED, "it was cut when it was full"),
    LogRow(LogVerdict.MISSING, _EVERYWHERE, Action.REFUSE_DAMAGED, _SYNCED),
    LogRow(LogVerdict.SHORT, _EVERYWHERE, Action.REFUSE_DAMAGED, _SYNCED),
    LogRow(LogVerdict.LONG, _EVERYWHERE, Action.REFUSE_DAMAGED, "it was cut when it was full"),
    LogRow(LogVerdict.BEYOND, _LAST, Action.CUT, "an unfinished write that was never acknowledged"),
    LogRow(LogVerdict.BEYOND, _FULL, Action.REFUSE_DAMAGED, "it was cut when it was full"),
    LogRow(LogVerdict.TORN, _LAST, Action.CUT, "an unfinished write that was never acknowledged"),
    LogRow(LogVerdict.TORN, _FULL, Action.REFUSE_DAMAGED, "it was synced before the next"),
    LogRow(LogVerdict.DAMAGED, _EVERYWHERE, Action.REFUSE_DAMAGED, _SYNCED),
    LogRow(LogVerdict.UNFOLLOWED, _EVERYWHERE, Action.REFUSE_DAMAGED, "what it held is gone"),
    LogRow(LogVerdict.NEWER, _EVERYWHERE, Action.REFUSE_NEWER, _NEWER),
)

STRAY_ROWS: Final = {
    Stray.TEMPORARY: (Action.REMOVE, "it was never the file"),
    Stray.REWRITE: (Action.REMOVE, "its segment is whole without it"),
    Stray.LET_GO: (Action.REMOVE, "the checkpoint knew it and leads to it no more"),
    Stray.BEGUN: (Action.REMOVE, "there is nothing in it"),
    Stray.UNFINISHED: (Action.QUARANTINE, "nothing says that it was synced"),
    Stray.EMPTIED: (Action.REFUSE_DAMAGED, "its entries were synced"),
    Stray.FOREIGN_NAME: (Action.NOTE, "nothing of ours has such a name"),
}


def decide_checkpoint(
    first: CheckpointVerdict, copy: CopyVerdict, *, entries: bool
) -> CheckpointRow:
    return next(
        row
        for row in CHECKPOINT_ROWS
        if row.first is first and copy in row.copies and entries in row.entries
    )


def decide_index(verdict: IndexVerdict, position: SegmentPosition) -> IndexRow:
    return next(row for row in INDEX_ROWS if row.verdict is verdict and position in row.positions)


def decide_log(verdict: LogVerdict, position: SegmentPosition) -> LogRow:
    return next(row for row in LOG_ROWS if row.verdict is verdict and position in row.positions)
