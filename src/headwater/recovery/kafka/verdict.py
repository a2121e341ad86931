"""What a survey of Kafka's directory can end with: one word for each file of it."""

from __future__ import annotations

from enum import Enum


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
