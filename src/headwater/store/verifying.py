"""Every frame and every index entry of a topic's segments, held against each other.

A fault is `bad` when an owner could not serve something because of it, or would refuse to start.
The rest is what an owner settles by itself: work that was interrupted, bytes beyond a checkpoint.
Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Final

import numpy

from headwater.disk import Disk, File, OpenMode
from headwater.format.segment import (
    ENTRY_BYTES,
    FAULT_MEANING,
    Entries,
    FrameFault,
    SegmentFile,
    bad_entries,
    frame_faults,
    parse_segment_file,
)
from headwater.store.pair import end_of, read_all, whole_entries, with_file
from headwater.store.settling import COLD, HOT, TopicDirectory

PLACES_MAX: Final = 20
"""Faults of one kind that are listed of one file; of the rest only the number is told."""
_UNFINISHED_DELETES: Final = frozenset({FrameFault.DELETED, FrameFault.NOT_DELETED})

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was seen at one place."""

    path: PurePath
    offset: int | None
    what: str
    bad: bool


@dataclass(frozen=True, slots=True)
class Expected:
    """What snapshot and log say about a topic's segments."""

    earliest_seq: int
    checkpointed_seq: int


@dataclass(frozen=True, slots=True)
class _Range:
    first_seq: int
    end_seq: int


def verify_segments(
    disk: Disk, path: PurePath, expected: Expected | None, advance: Advance
) -> Iterator[Fault]:
    """All faults in one topic's directory. FileNotFoundError when an owner removes a file just
    now: look again."""
    directory = TopicDirectory(disk, path)
    directory.look()
    if disk.is_directory(path):
        for name in disk.list_directory(path):
            if parse_segment_file(name) is None:
                yield Fault(path / name, None, "not a name this software gives", bad=False)
    ranges: list[_Range] = []
    for first_seq, files in sorted(directory.segments.items()):
        unfinished = files - HOT - COLD
        for kind in sorted(unfinished, key=lambda kind: kind.value):
            place = directory.path_of(first_seq, kind)
            yield Fault(place, None, "left by work that was interrupted or goes on", bad=False)
        if SegmentFile.DROPPED in files:
            continue
        if expected is not None and first_seq > expected.checkpointed_seq:
            place = directory.path_of(first_seq, SegmentFile.IDX)
            yield Fault(place, None, "behind the last checkpoint; the log has it", bad=False)
            continue
        count = yield from _verify_segment(directory, first_seq, expected, advance)
        if count:
            ranges.append(_Range(first_seq, first_seq + count - 1))
    yield from _verify_continuity(directory, ranges, expected)


def _verify_segment(
    directory: TopicDirectory, first_seq: int, expected: Expected | None, advance: Advance
) -> Generator[Fault, None, int]:
    """Yields faults; returns how many seqs the segment holds, up to the checkpoint."""
    files = directory.segments[first_seq]
    is_cold = SegmentFile.COLD in files and SegmentFile.IDX not in files
    index_path = directory.path_of(first_seq, SegmentFile.COLD if is_cold else SegmentFile.IDX)
    for kind in () if is_cold else (SegmentFile.DATA, SegmentFile.IDX):
        if kind not in files:
            path = directory.path_of(first_seq, kind)
            yield Fault(path, None, "missing: the other file of the pair is there", bad=True)
            return 0
    contents = read_all(directory.disk, index_path)
    entries = whole_entries(contents)
    if len(contents) % ENTRY_BYTES:
        offset = len(contents) - len(contents) % ENTRY_BYTES
        yield Fault(index_path, offset, "half an entry at the end", bad=False)
    wrong = bad_entries(entries, first_seq)
    if is_cold:
        entries = entries[:-1]  # the last one tells where the data ends
    elif expected is not None:
        entries = entries[: max(expected.checkpointed_seq - first_seq + 1, 0)]
    places = wrong[wrong < len(entries)].tolist()
    yield from _listed(index_path, [(p * ENTRY_BYTES, "the entry is damaged") for p in places])
    if not is_cold:
        path = directory.path_of(first_seq, SegmentFile.DATA)
        sound = numpy.ones(len(entries), numpy.bool_)
        sound[places] = False
        yield from _verify_frames(directory.disk, path, entries, sound, first_seq, advance)
    return len(entries)


def _verify_frames(
    disk: Disk,
    path: PurePath,
    entries: Entries,
    sound: numpy.typing.NDArray[numpy.bool_],
    first_seq: int,
    advance: Advance,
) -> Iterator[Fault]:
    data = with_file(disk, path, OpenMode.READ, _contents)
    advance(len(data))
    faults = frame_faults(data, entries, first_seq)
    found: dict[FrameFault, list[tuple[int, str]]] = {}
    for position in numpy.flatnonzero(faults.astype(bool) & sound).tolist():
        fault = FrameFault(int(faults[position]))
        what = f"seq {first_seq + position}: {FAULT_MEANING[fault]}"
        found.setdefault(fault, []).append((int(entries["offset"][position]), what))
    for fault, places in found.items():
        yield from _listed(path, places, bad=fault not in _UNFINISHED_DELETES)
    end = end_of(entries) if len(entries) and sound[-1] else len(data)
    if len(data) > end:
        what = f"{len(data) - end} bytes behind the last checkpoint or index entry"
        yield Fault(path, end, what, bad=False)


def _contents(file: File) -> memoryview:
    # Read, not mapped: a file that is cut under a map ends the process.
    return memoryview(file.read(0, file.size()))


def _listed(path: PurePath, places: list[tuple[int, str]], *, bad: bool = True) -> Iterator[Fault]:
    for offset, what in places[:PLACES_MAX]:
        yield Fault(path, offset, what, bad)
    if len(places) > PLACES_MAX:
        more = len(places) - PLACES_MAX
        yield Fault(path, places[PLACES_MAX][0], f"{more} more of this kind from here on", bad)


def _verify_continuity(
    directory: TopicDirectory, ranges: list[_Range], expected: Expected | None
) -> Iterator[Fault]:
    """Each seq is in one segment, and each that should be is in one."""
    following = expected.earliest_seq if expected is not None else 0
    for each in ranges:
        path = directory.path_of(each.first_seq, SegmentFile.IDX)
        if following and each.first_seq > following and expected is not None:
            what = f"seqs {following} to {each.first_seq - 1} are in no segment"
            yield Fault(path, None, what, bad=True)
        following = max(following, each.end_seq + 1)
    for one, other in pairwise(ranges):
        if other.first_seq <= one.end_seq:
            path = directory.path_of(other.first_seq, SegmentFile.IDX)
            yield Fault(path, 0, f"seq {other.first_seq} is in two segments", bad=True)
    if expected is not None and following <= expected.checkpointed_seq:
        what = f"seqs {following} to {expected.checkpointed_seq} are in no segment"
        yield Fault(directory.path, None, what, bad=True)
