"""What a survey of the topics' log can end with, and what the scan of a file finds on the way."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath


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


@dataclass(slots=True)
class FileScan:
    """One file, read to where it makes sense."""

    path: PurePath
    number: int
    verdict: FileVerdict = FileVerdict.CLEAN
    end: int = 0
    """Where the last whole group ends."""
    witnessed: int = 0
    """How much of the file the last whole group's mark knew to be synced."""
    length: int = 0
    """Bytes in the file now."""
    file_bytes: int = 0
    """Bytes it was made with, as far as its marks tell."""
    reason: str = ""
    resume: int | None = None
    """After damage: where the next believable mark stands."""
    groups: int = 0
    frames: int = 0
    """Frames in whole groups, marks included."""
    frames_lost: int | None = None
    """After damage: frames between the last whole group and `resume`, when that can be told."""
    skipped: int = 0
    """Damaged stretches passed over because an operator agreed to lose them."""
    abandoned: bool = False
    """The rest of the file was given up; nothing may be written behind it."""
    clean_stop: bool = False
    """The last mark was written by a clean stop."""
    clean_runs: list[int] = field(default_factory=list)
    """Runs that ended in this file with a clean stop."""
    spans: array[int] = field(default_factory=lambda: array("Q"))
    """body start, body end, run and number of the mark of every group, flat."""


@dataclass(slots=True)
class MarkChain:
    """What the next mark must fit to, carried from file to file."""

    chain: int = 0
    next_frame: int = 1
    trusted: bool = False
    """False at the start and after a loss: the next mark is taken as it comes."""
    log_id: int | None = None
    run: int = 0
    """The largest run seen."""
