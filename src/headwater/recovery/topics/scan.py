"""The one reader of log files: recovery, verify, the command line and the tests all use it.

It walks from mark to mark. A group counts when the mark stands where it says, belongs to this
log, continues the chain, and the bytes behind it hash to what it promised. Where that ends, the
witnesses decide what the rest is (I5): a later mark, or CURRENT, that knew those bytes to be
synced makes it damage; without a witness it is a torn tail.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import UnknownFrameError, decode_frame, skim_frames
from headwater.format.mark import MARK_BYTES, CommitMark, MarkKind, chain_of, decode_mark, find_mark
from headwater.recovery.topics.table import FileVerdict


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


END_OF_FILE = -1


class CoveredFrames(NamedTuple):
    """Every frame up to this one of this log is known from elsewhere."""

    log_id: int
    frame: int


NOTHING_COVERED = CoveredFrames(0, 0)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known about a file from outside of it."""

    next_number: int | None = None
    """Number of the next file: the frame this file must end before. None: this is the last."""
    next_chain: int | None = None
    """The chain value in the first mark of the next file, when it can be read."""
    witnessed: int = 0
    """Bytes that CURRENT knew to be synced; 0 when CURRENT does not name this file."""
    made_bytes: int | None = None
    """Length the file was made with, as CURRENT tells; None when CURRENT does not name it."""
    skips: Mapping[int, int] = field(default_factory=dict)
    """Agreed losses: offset of the damage -> offset to go on at, or END_OF_FILE."""
    deep: bool = False
    """Check every frame's own checksum too, not only the group's hash."""
    skim: bool = True
    """False: the caller checks the frames of each group itself, many at a time."""
    covered: CoveredFrames = NOTHING_COVERED
    """What a snapshot has: of such groups only the marks are read."""


class _Stop(Exception):
    """The walk cannot go on here."""

    def __init__(self, verdict: FileVerdict, reason: str, *, mark_is_sound: bool = False) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.mark_is_sound = mark_is_sound
        """The mark here is sound, only what came before it is missing."""


def scan_file(buffer: memoryview, scan: FileScan, chain: MarkChain, around: Surroundings) -> None:
    """Fill in `scan` and move `chain` on. Never raises for what the bytes say."""
    scan.length = len(buffer)
    at = 0
    while True:
        at, stop = _walk(buffer, at, scan, chain, around)
        if stop is None:
            break
        skip_to = around.skips.get(at)
        if skip_to is None or (skip_to == at and not chain.trusted):
            break
        if skip_to != END_OF_FILE and not at <= skip_to <= len(buffer):
            break  # agreed to for another file: going back would never end
        scan.skipped += 1
        chain.trusted = False
        if skip_to == END_OF_FILE:
            scan.abandoned = True
            stop = None
            break
        at = skip_to
    scan.end = at
    if stop is not None:
        _judge(buffer, scan, chain, around, stop)


def scan_on(buffer: memoryview, scan: FileScan, chain: MarkChain, start: int) -> None:
    """Whole groups from `start` on, for a reader that follows a log that is being written.

    What ends the walk may be half a write, so it is reported and not judged.
    """
    scan.end, stop = _walk(buffer, start, scan, chain, Surroundings())
    scan.length = len(buffer)
    if stop is not None:
        scan.verdict, scan.reason = stop.verdict, stop.reason


def _walk(
    buffer: memoryview, at: int, scan: FileScan, chain: MarkChain, around: Surroundings
) -> tuple[int, _Stop | None]:
    """Read whole groups from `at` on; returns where it ended and why (None: where it should)."""
    while not _complete(chain, around):
        if at >= len(buffer):
            return at, _cut_short(scan, len(buffer), around)
        try:
            mark = _read_group(buffer, at, scan.number, chain, around)
        except _Stop as stop:
            return at, stop
        chain.chain = chain_of(buffer[at : at + MARK_BYTES])
        chain.next_frame = mark.frame + 1 + mark.frame_count
        chain.trusted = True
        chain.log_id = mark.log_id
        chain.run = max(chain.run, mark.run)
        scan.file_bytes = mark.file_bytes
        scan.witnessed = mark.durable_offset
        scan.groups += 1
        scan.frames += 1 + mark.frame_count
        scan.clean_stop = bool(mark.kind & MarkKind.CLEAN_STOP)
        if scan.clean_stop:
            scan.clean_runs.append(mark.run)
        if mark.frame_count:
            scan.spans.extend((mark.body_at, mark.end, mark.run, mark.frame))
        at = mark.end
    return at, None


def _complete(chain: MarkChain, around: Surroundings) -> bool:
    """True when the next file takes over exactly here; what follows in this one does not matter."""
    return (
        around.next_number is not None
        and chain.trusted
        and chain.next_frame == around.next_number
        and (around.next_chain is None or chain.chain == around.next_chain)
    )


def _cut_short(scan: FileScan, length: int, around: Surroundings) -> _Stop | None:
    """The walk used up the file: right for one that is full, a loss for one that was longer."""
    if around.next_number is not None:
        return _Stop(FileVerdict.DAMAGED, "groups are missing at the end of the file")
    if length < max(scan.file_bytes, around.made_bytes or 0):
        return _Stop(FileVerdict.DAMAGED, "the file was cut; what it held from here on is gone")
    return None


def _read_group(
    buffer: memoryview, at: int, number: int, chain: MarkChain, around: Surroundings
) -> CommitMark:
    """The mark at `at`, after checking its place, its chain and the bytes it promises."""
    try:
        mark = decode_mark(buffer, at, len(buffer))
    except UnknownFrameError as error:
        raise _Stop(FileVerdict.NEWER, error.reason) from error
    except FormatError as error:
        raise _Stop(FileVerdict.TORN, error.reason) from error
    if mark.file_frame != number or (chain.log_id is not None and mark.log_id != chain.log_id):
        raise _Stop(FileVerdict.FOREIGN, "the mark belongs to another log or file")
    if mark.offset != at:
        raise _Stop(FileVerdict.DAMAGED, f"the mark was written for byte {mark.offset}")
    if at == 0 and mark.frame != number:
        raise _Stop(FileVerdict.FOREIGN, f"the file begins with frame {mark.frame}")
    if chain.trusted and mark.frame != chain.next_frame:
        raise _Stop(
            FileVerdict.DAMAGED,
            f"frame {chain.next_frame} should follow, found frame {mark.frame}",
            mark_is_sound=True,
        )
    if chain.trusted and mark.chain != chain.chain:
        raise _Stop(
            FileVerdict.DAMAGED, "the mark does not continue the one before", mark_is_sound=True
        )
    if mark.end > len(buffer):
        raise _Stop(FileVerdict.TORN, "the group runs past the end of the file")
    if (
        mark.log_id == around.covered.log_id
        and mark.frame + mark.frame_count <= around.covered.frame
    ):
        return mark
    body = buffer[mark.body_at : mark.end]
    if checksum64(body) != mark.body_hash:
        raise _Stop(FileVerdict.TORN, _first_bad_frame(buffer, mark))
    if around.deep or (around.skim and mark.frame_count):
        _check_frames(buffer, mark, around.deep)
    return mark


def _check_frames(buffer: memoryview, mark: CommitMark, deep: bool) -> None:
    """A frame this version does not know must stop the log, not be passed over."""
    at = mark.body_at
    try:
        if not deep:
            skim_frames(buffer, at, mark.end)
            return
        while at < mark.end:
            at += decode_frame(buffer, at, mark.end).size
    except UnknownFrameError as error:
        raise _Stop(FileVerdict.NEWER, error.reason) from error
    except FormatError as error:
        raise _Stop(FileVerdict.DAMAGED, error.reason) from error


def _first_bad_frame(buffer: memoryview, mark: CommitMark) -> str:
    at = mark.body_at
    try:
        while at < mark.end:
            at += decode_frame(buffer, at, mark.end).size
    except FormatError as error:
        return f"frame at byte {at}: {error.reason}"
    return "the group's hash does not match"


def _judge(
    buffer: memoryview, scan: FileScan, chain: MarkChain, around: Surroundings, stop: _Stop
) -> None:
    """The walk stopped inside the file: decide what the rest of it is."""
    at = scan.end
    scan.verdict, scan.reason = stop.verdict, stop.reason
    zeros = is_zero(buffer[at:])
    search_from = at if stop.mark_is_sound else at + 1
    later = None if zeros else find_mark(buffer, search_from, chain.log_id)
    if later is not None:
        scan.resume = later.offset
        scan.frames_lost = later.frame - chain.next_frame if chain.trusted else None
    if stop.verdict not in (FileVerdict.TORN, FileVerdict.CLEAN):
        return
    if around.next_number is not None:
        scan.verdict = FileVerdict.DAMAGED
        scan.reason = "groups are missing at the end of the file" if zeros else stop.reason
        return
    witnessed = max(around.witnessed, _highest_witness(buffer, chain.log_id, later))
    shortened = len(buffer) < max(scan.file_bytes, around.made_bytes or 0)
    if witnessed > at:
        scan.verdict = FileVerdict.DAMAGED
        scan.reason = f"{stop.reason}, in bytes known synced up to {witnessed}"
    elif zeros:
        scan.verdict = FileVerdict.CLEAN if scan.groups or scan.skipped else FileVerdict.EMPTY
    elif shortened:
        scan.verdict = FileVerdict.DAMAGED
        scan.reason = "the file was cut in the middle of a group"
    elif not scan.groups and not scan.skipped and around.made_bytes != len(buffer):
        scan.verdict = FileVerdict.FOREIGN
        scan.reason = "not a log file of this software"


def _highest_witness(buffer: memoryview, log_id: int | None, later: CommitMark | None) -> int:
    """The furthest byte that this mark, or any believable one behind it, knew to be synced."""
    highest = 0
    while later is not None:
        highest = max(highest, later.durable_offset)
        later = find_mark(buffer, later.offset + 1, log_id)
    return highest


def is_zero(buffer: memoryview) -> bool:
    return not numpy.frombuffer(buffer, dtype=numpy.uint8).any()
