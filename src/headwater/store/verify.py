"""Every frame and every index entry of a topic's segments, compared with each other.

A fault is `bad` when an owner could not serve something because of it, or would refuse to start.
The rest is what an owner finishes by itself: work that was interrupted, bytes beyond a checkpoint.
Nothing is changed. A topic can be checked as a whole, or in parts: its names, each segment by
itself, and then whether the segments fit together.

A segment in the cold tier is compared with the index that points at it. The frames there are not
touched when a record is deleted, so what is deleted here and live there is as it should be.
Everything else must agree: lengths, offsets, times, flags, every checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import PurePath
from typing import Final, Protocol

import msgspec

from headwater.core.arrays import numpy
from headwater.core.errors import DamageError, ForeignFileError
from headwater.disk import Disk, read_all
from headwater.format.segment import (
    ENTRY_BYTES,
    FAULT_MEANING,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    FrameFault,
    Identity,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    bad_entries,
    frame_faults,
    index_flags,
    parse_segment_file,
    salt_of,
    segment_file_name,
    shared_shift,
)
from headwater.store.ownership import (
    cold_identity,
    foreign_data,
    is_older,
    older_than,
    pair_identity,
    read_head,
)
from headwater.store.pair import end_of, whole_entries
from headwater.store.segment_stores import SegmentStore
from headwater.store.tier import cold_end
from headwater.store.topic_directory import COLD, HOT, TopicDirectory

PROBLEMS_LISTED_MAX: Final = 20
"""Faults of one kind that are listed of one file; of the rest only the number is reported."""
_UNFINISHED_DELETES: Final = frozenset({FrameFault.DELETED, FrameFault.NOT_DELETED})

Advance = Callable[[int], None]


class FaultKind(Enum):
    NAME = "unknown name"
    UNFINISHED = "unfinished work"
    BEYOND = "beyond the checkpoint"
    MISSING = "missing file"
    INDEX = "index entry"
    FRAME = "frame"
    DELETE = "unfinished delete"
    CONTINUITY = "continuity"
    SNAPSHOT = "snapshot"
    TOPIC = "topic"
    CHANGED = "changed meanwhile"
    COLD = "cold tier"
    BATCH = "batch"
    CHECKPOINT = "checkpoint"
    ENTRY = "entry"
    CURRENT = "CURRENT"
    FOREIGN = "another's file"
    UNNAMED = "without an identity"


class VerifyFault(msgspec.Struct, frozen=True):
    """One thing that is wrong, with its file and offset."""

    path: PurePath
    offset: int | None
    what: str
    bad: bool
    kind: FaultKind = FaultKind.TOPIC


class Expected(msgspec.Struct, frozen=True):
    """What snapshot and log say about a topic's segments."""

    earliest_seq: int
    checkpointed_seq: int
    active_first_seq: int | None = None
    """The segment that the checkpoint knew as still appended to; 0 for none, None: not known."""
    flagged: Mapping[int, int] = msgspec.field(default_factory=dict)
    """First seq of a segment -> a seq whose delete its files are known to have."""


class SegmentRange(msgspec.Struct, frozen=True):
    """What a segment holds, up to the checkpoint."""

    first_seq: int
    end_seq: int
    live: int = 0
    """Records at or above the earliest live seq that are not deleted,"""
    live_bytes: int = 0
    """and the bytes of node, tag, data and meta in them."""


class TopicSegmentCheck(msgspec.Struct):
    faults: list[VerifyFault] = msgspec.field(default_factory=list)
    is_cold: bool = False
    """Its frames are in the cold tier; what is kept here is the index that leads to them."""
    is_named: bool = True
    """Its files say whose they are; those of earlier versions do not."""
    range: SegmentRange | None = None
    """None when nothing can be said about it, or nothing of it counts."""
    data_bytes: int = 0
    """How much was read."""


class ColdSource(Protocol):
    """What the cold tier has of one topic. Its maker reports a tier that does not answer."""

    def check(self, first_seq: int, pointer: PurePath) -> TopicSegmentCheck | None:
        """The frames that the index at `pointer` leads to; None when they could not be read."""

    def stored(self) -> dict[int, PurePath]:
        """The first seq of every copy, and what its data is called in a report."""


def verify_segments(
    disk: Disk,
    path: PurePath,
    expected: Expected | None,
    advance: Advance,
    cold: ColdSource | None = None,
) -> Iterator[VerifyFault]:
    """All faults in one topic's directory, and in what `cold` has of the topic. FileNotFoundError
    when an owner removes a file just now: verify again."""
    faults, first_seqs = check_names(disk, path, expected)
    yield from faults
    ranges: list[SegmentRange] = []
    moved: set[int] = set()
    unnamed = 0
    for first_seq in first_seqs:
        check = verify_segment(disk, path, first_seq, expected)
        advance(check.data_bytes)
        yield from check.faults
        if check.range is not None:
            ranges.append(check.range)
        if check.is_cold:
            moved.add(first_seq)
        unnamed += not check.is_named
    yield from verify_continuity(path, ranges, expected)
    if unnamed:
        what = f"{unnamed} segments of an earlier version, which do not say whose they are"
        yield VerifyFault(path, None, what, False, FaultKind.UNNAMED)
    if cold is None:
        return
    for first_seq in sorted(moved):
        copy = cold.check(first_seq, path / segment_file_name(first_seq, SegmentFile.COLD))
        if copy is not None:
            advance(copy.data_bytes)
            yield from copy.faults
    gaps = _gaps(ranges, expected)
    if moved or gaps:
        yield from _copies_without_index(path, cold, moved, gaps)


def _copies_without_index(
    path: PurePath, cold: ColdSource, moved: set[int], gaps: Sequence[range]
) -> Iterator[VerifyFault]:
    """Copies in the cold tier that nothing leads to: the last ones of their seqs, or left over."""
    for first_seq, fault_path in sorted(cold.stored().items()):
        if any(first_seq in gap for gap in gaps):
            missing = path / segment_file_name(first_seq, SegmentFile.COLD)
            what = f"missing: {fault_path} is there; nothing says which of its records were deleted"
            yield VerifyFault(missing, None, what, True, FaultKind.MISSING)
        elif first_seq not in moved:
            what = "nothing leads to this copy; left by work that was interrupted or goes on"
            yield VerifyFault(fault_path, None, what, False, FaultKind.UNFINISHED)


def check_names(
    disk: Disk, path: PurePath, expected: Expected | None
) -> tuple[list[VerifyFault], list[int]]:
    """What the names in a topic's directory say, and the segments that are to be checked."""
    directory = TopicDirectory(disk, path)
    directory.scan()
    faults = []
    if disk.is_directory(path):
        for name in disk.list_directory(path):
            if parse_segment_file(name) is None:
                what = "not a name this software gives"
                faults.append(VerifyFault(path / name, None, what, False, FaultKind.NAME))
    first_seqs = []
    for first_seq, files in sorted(directory.segments.items()):
        for kind in sorted(files - HOT - COLD, key=lambda kind: kind.value):
            fault_path = directory.path_of(first_seq, kind)
            what = "left by work that was interrupted or goes on"
            faults.append(VerifyFault(fault_path, None, what, False, FaultKind.UNFINISHED))
        if SegmentFile.DROPPED in files:
            continue
        if expected is not None and first_seq > expected.checkpointed_seq:
            fault_path = directory.path_of(first_seq, SegmentFile.IDX)
            what = "behind the last checkpoint; the log has it"
            faults.append(VerifyFault(fault_path, None, what, False, FaultKind.BEYOND))
            continue
        first_seqs.append(first_seq)
    return faults, first_seqs


def verify_segment(
    disk: Disk, path: PurePath, first_seq: int, expected: Expected | None
) -> TopicSegmentCheck:
    """One segment of a topic's directory. Of a cold one only what is kept here of it."""
    directory = TopicDirectory(disk, path)
    files = {
        kind
        for kind in (SegmentFile.DATA, SegmentFile.IDX, SegmentFile.COLD)
        if disk.exists(directory.path_of(first_seq, kind))
    }
    is_cold = SegmentFile.COLD in files and SegmentFile.IDX not in files
    check = TopicSegmentCheck(is_cold=is_cold)
    index_path = directory.path_of(first_seq, SegmentFile.COLD if is_cold else SegmentFile.IDX)
    for kind in () if is_cold else (SegmentFile.DATA, SegmentFile.IDX):
        if kind not in files:
            missing, what = (
                directory.path_of(first_seq, kind),
                "the other file of the pair is there",
            )
            check.faults.append(
                VerifyFault(missing, None, f"missing: {what}", True, FaultKind.MISSING)
            )
            return check
    contents = read_all(disk, index_path)
    entries = whole_entries(contents)
    try:
        identity = _identity(directory, first_seq, entries, is_cold)
    except ForeignFileError as error:
        where = index_path if error.path is None else PurePath(error.path)
        check.faults.append(VerifyFault(where, error.offset, error.what, True, FaultKind.FOREIGN))
        check.range = SegmentRange(first_seq, first_seq + max(len(entries) - is_cold, 1) - 1)
        return check
    check.is_named = identity is not None
    check.faults += _odd_end(index_path, contents, first_seq, is_cold)
    wrong = bad_entries(entries, first_seq, salt_of(identity))
    if is_cold:
        entries = entries[:-1]  # the last one says where the data ends
    elif expected is not None and first_seq + len(entries) - 1 > expected.checkpointed_seq:
        entries = entries[: expected.checkpointed_seq - first_seq + 1]
        what = "entries behind the last checkpoint"
        offset = len(entries) * ENTRY_BYTES
        check.faults.append(VerifyFault(index_path, offset, what, False, FaultKind.BEYOND))
    bad_rows = wrong[wrong < len(entries)].tolist()
    damaged = [(row * ENTRY_BYTES, "the entry is damaged") for row in bad_rows]
    check.faults += listed(index_path, damaged, FaultKind.INDEX)
    sound = numpy.ones(len(entries), numpy.bool_)
    sound[bad_rows] = False
    if not is_cold:
        data_path = directory.path_of(first_seq, SegmentFile.DATA)
        # Read, not mapped: a file that is cut under a map ends the process.
        data = memoryview(read_all(disk, data_path))
        check.data_bytes = len(data)
        sealed = expected is not None and expected.active_first_seq not in (None, first_seq)
        check.faults += _verify_frames(data_path, data, entries, sound, first_seq, sealed)
    flagged = None if expected is None else expected.flagged.get(first_seq)
    if is_older(entries, first_seq, flagged):
        what = older_than(flagged)
        check.faults.append(VerifyFault(index_path, None, what, True, FaultKind.FOREIGN))
    if len(entries):
        check.range = _range(entries, first_seq, expected)
    return check


def _identity(
    directory: TopicDirectory, first_seq: int, entries: Entries, is_cold: bool
) -> Identity | None:
    if is_cold:
        return cold_identity(directory, first_seq, entries[:-1], entries[-1:])
    head = read_head(directory.disk, directory.path_of(first_seq, SegmentFile.DATA))
    return pair_identity(directory, first_seq, head, entries)


def _range(entries: Entries, first_seq: int, expected: Expected | None) -> SegmentRange:
    last = first_seq + len(entries) - 1
    earliest = 0 if expected is None else expected.earliest_seq
    counted = entries[max(earliest - first_seq, 0) :]
    live = counted[index_flags(counted) & IndexFlag.DELETED == 0]
    size = int(live["len"].sum(dtype=numpy.int64)) - len(live) * SEGMENT_FRAME_BYTES_MIN
    return SegmentRange(first_seq, last, len(live), size)


def _odd_end(
    path: PurePath, contents: bytes, first_seq: int, is_cold: bool
) -> Iterator[VerifyFault]:
    """An index is whole entries; that of a cold segment ends with one that says so."""
    count = len(contents) // ENTRY_BYTES
    if not count:
        yield VerifyFault(path, 0, "there is no entry in it", True, FaultKind.INDEX)
    if len(contents) % ENTRY_BYTES:
        offset = count * ENTRY_BYTES
        yield VerifyFault(path, offset, "half an entry at the end", is_cold, FaultKind.INDEX)
    if is_cold:
        last = whole_entries(contents)[-1:]
        if cold_end(last, first_seq + count - 1) is None:
            offset = max(count - 1, 0) * ENTRY_BYTES
            what = "the entry that ends the index is damaged or missing"
            yield VerifyFault(path, offset, what, True, FaultKind.INDEX)


def _verify_frames(
    path: PurePath,
    data: memoryview,
    entries: Entries,
    sound: numpy.typing.NDArray[numpy.bool_],
    first_seq: int,
    sealed: bool,
) -> Iterator[VerifyFault]:
    yield from frame_findings(path, data, entries, sound, first_seq)
    end = end_of(entries) if len(entries) and sound[-1] else len(data)
    if len(data) > end:
        what = f"{len(data) - end} bytes behind the last checkpoint or index entry"
        yield VerifyFault(path, end, what, sealed, FaultKind.BEYOND)


def frame_findings(
    path: PurePath,
    data: memoryview,
    entries: Entries,
    sound: numpy.typing.NDArray[numpy.bool_],
    first_seq: int,
    bad_kind: FaultKind = FaultKind.FRAME,
) -> Iterator[VerifyFault]:
    """Every frame against its entry, as far as the entry is sound."""
    faults = frame_faults(data, entries, first_seq)
    by_fault: dict[FrameFault, list[tuple[int, str]]] = {}
    for position in numpy.flatnonzero(faults.astype(bool) & sound).tolist():
        fault = FrameFault(int(faults[position]))
        what = f"seq {first_seq + position}: {FAULT_MEANING[fault]}"
        by_fault.setdefault(fault, []).append((int(entries["offset"][position]), what))
    for fault, problems in by_fault.items():
        unfinished = fault in _UNFINISHED_DELETES
        kind = FaultKind.DELETE if unfinished else bad_kind
        yield from listed(path, problems, kind, bad=not unfinished)


def listed(
    path: PurePath, problems: list[tuple[int, str]], kind: FaultKind, *, bad: bool = True
) -> Iterator[VerifyFault]:
    """A fault for each problem, but not thousands of one kind in one file."""
    for offset, what in problems[:PROBLEMS_LISTED_MAX]:
        yield VerifyFault(path, offset, what, bad, kind)
    if len(problems) > PROBLEMS_LISTED_MAX:
        more = f"{len(problems) - PROBLEMS_LISTED_MAX} more of this kind from here on"
        yield VerifyFault(path, problems[PROBLEMS_LISTED_MAX][0], more, bad, kind)


def verify_continuity(
    path: PurePath, ranges: Sequence[SegmentRange], expected: Expected | None
) -> Iterator[VerifyFault]:
    """Each seq is in one segment, and each that should be is in one."""
    behind = {each.first_seq for each in ranges}
    for gap in _gaps(ranges, expected):
        what = f"seqs {gap.start} to {gap.stop - 1} are in no segment"
        fault_path = path
        if gap.stop in behind:
            fault_path = path / segment_file_name(gap.stop, SegmentFile.IDX)
        yield VerifyFault(fault_path, None, what, True, FaultKind.CONTINUITY)
    for one, other in pairwise(ranges):
        if other.first_seq <= one.end_seq:
            fault_path = path / segment_file_name(other.first_seq, SegmentFile.IDX)
            what = f"seq {other.first_seq} is in two segments"
            yield VerifyFault(fault_path, 0, what, True, FaultKind.CONTINUITY)


def _gaps(ranges: Sequence[SegmentRange], expected: Expected | None) -> list[range]:
    """The seqs from the earliest live one up to the checkpoint that no segment has."""
    if expected is None:
        return []
    gaps: list[range] = []
    following = max(expected.earliest_seq, 1)
    for each in ranges:
        if each.first_seq > following:
            gaps.append(range(following, each.first_seq))
        following = max(following, each.end_seq + 1)
    if following <= expected.checkpointed_seq:
        gaps.append(range(following, expected.checkpointed_seq + 1))
    return gaps


FOREIGN_INDEX: Final = "this is the index of another segment"
_DELETED: Final = int(IndexFlag.DELETED)


def verify_cold_segment(
    disk: Disk, path: PurePath, first_seq: int, store: SegmentStore, store_path: PurePath
) -> TopicSegmentCheck:
    """`path` is the topic's directory, `store_path` what a report calls the store.

    A store that refuses or does not answer is an error of its own: that is no damage.
    """
    local = whole_entries(read_all(disk, path / segment_file_name(first_seq, SegmentFile.COLD)))
    check = TopicSegmentCheck()
    try:
        check.faults += _compare(local, first_seq, store, store_path, check)
    except DamageError as error:
        where = store_path / segment_file_name(first_seq, SegmentPart.DATA)
        where = where if error.path is None else PurePath(error.path)
        check.faults.append(VerifyFault(where, error.offset, error.what, True, FaultKind.COLD))
    return check


def _compare(
    local: Entries,
    first_seq: int,
    store: SegmentStore,
    store_path: PurePath,
    check: TopicSegmentCheck,
) -> Iterator[VerifyFault]:
    end = cold_end(local[-1:], first_seq + len(local) - 1)
    local = local[:-1]
    salt = salt_of(None if end is None else end.identity)
    paths = {part: store_path / segment_file_name(first_seq, part) for part in SegmentPart}
    there = {part: store.len(first_seq, part) for part in SegmentPart}
    if end is not None:
        wanted = {SegmentPart.IDX: len(local) * ENTRY_BYTES, SegmentPart.DATA: end.data_bytes}
        for part in SegmentPart:
            if there[part] != wanted[part]:
                what = f"has {there[part]} bytes; the index that points here says {wanted[part]}"
                yield VerifyFault(
                    paths[part], min(there[part], wanted[part]), what, True, FaultKind.COLD
                )
    count = there[SegmentPart.IDX] // ENTRY_BYTES
    stored = whole_entries(store.read_range(first_seq, SegmentPart.IDX, 0, count * ENTRY_BYTES))
    sound = numpy.ones(len(stored), numpy.bool_)
    wrong = bad_entries(stored, first_seq, salt)
    sound[wrong] = False
    damaged = [(position * ENTRY_BYTES, "the entry is damaged") for position in wrong.tolist()]
    if len(stored) > 1 and end is not None and shared_shift(stored, first_seq) not in (None, salt):
        yield VerifyFault(paths[SegmentPart.IDX], 0, FOREIGN_INDEX, True, FaultKind.FOREIGN)
    else:
        yield from listed(paths[SegmentPart.IDX], damaged, FaultKind.COLD)
    yield from _different(local, stored, sound, first_seq, salt, paths[SegmentPart.IDX])
    data = store.read_range(first_seq, SegmentPart.DATA, 0, there[SegmentPart.DATA])
    check.data_bytes = len(data)
    foreign = foreign_data(data, first_seq, None if end is None else end.identity)
    if foreign is not None:
        yield VerifyFault(paths[SegmentPart.DATA], 0, foreign, True, FaultKind.FOREIGN)
        return
    yield from frame_findings(
        paths[SegmentPart.DATA], memoryview(data), stored, sound, first_seq, FaultKind.COLD
    )


def _different(
    local: Entries,
    stored: Entries,
    sound: numpy.typing.NDArray[numpy.bool_],
    first_seq: int,
    salt: int,
    path: PurePath,
) -> Iterator[VerifyFault]:
    """Two sound entries of one seq that do not say the same, but for a later delete."""
    count = min(len(local), len(stored))
    mine, theirs = local[:count], stored[:count]
    readable = sound[:count].copy()
    readable[bad_entries(mine, first_seq, salt)] = False
    unlike = numpy.zeros(count, numpy.bool_)
    for name in ("offset", "len", "ts"):
        unlike |= mine[name] != theirs[name]
    unlike |= (index_flags(mine) | _DELETED) != (index_flags(theirs) | _DELETED)
    unlike |= (index_flags(theirs) & _DELETED) > (index_flags(mine) & _DELETED)
    problems = [
        (row * ENTRY_BYTES, f"seq {first_seq + row}: not what the index that points here says")
        for row in numpy.flatnonzero(unlike & readable).tolist()
    ]
    yield from listed(path, problems, FaultKind.COLD)
