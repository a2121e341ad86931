"""What a crash can leave of a segment's files, and how each case is finished: a table.

Every change that touches two files passes through a name of its own, and the name says how far
it came. `settle` brings a set of files to rest:

| files that are there | what it was | what is done |
|---|---|---|
| `.dropped` | a drop that had begun | remove the rest, `.dropped` last |
| `.data.new`, with or without `.idx.new` | a rewrite before its swap | remove the new ones |
| `.idx.new` alone | a rewrite in the middle of its swap | give the index its name |
| `.idx` and `.cold` | a relocation before its flip, or a rewrite into hot | remove `.cold` |
| `.cold` and `.data` | a relocation that had flipped the pointer | remove `.data` |
| `*.tmp` | a replacement before its rename | remove it |

At rest a segment is `.data` and `.idx` (hot) or `.cold` (cold). Names made durable in between keep
the cases apart: see `reclaim` and `tier`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

import msgspec

from headwater.disk import Disk, file_bytes, sync_names
from headwater.format.segment import (
    SegmentFile,
    parse_segment_file,
    parse_topic_directory_name,
    segment_file_name,
)

Files = set[SegmentFile]

_TEMPORARY = frozenset(
    {SegmentFile.TEMPORARY_DATA, SegmentFile.TEMPORARY_IDX, SegmentFile.TEMPORARY_COLD}
)
HOT = frozenset({SegmentFile.DATA, SegmentFile.IDX})
COLD = frozenset({SegmentFile.COLD})


class TopicDirectory(msgspec.Struct):
    """The names of segment files in one directory. Names of other kinds are not touched."""

    disk: Disk
    path: PurePath
    segments: dict[int, Files] = msgspec.field(default_factory=dict)
    """First seq -> which of its files are there."""

    @property
    def topic_id(self) -> int | None:
        """Whose directory it is; None when the name does not say."""
        return parse_topic_directory_name(self.path.name)

    def scan(self) -> None:
        self.segments.clear()
        if not self.disk.is_directory(self.path):
            return
        for name in self.disk.list_directory(self.path):
            parsed = parse_segment_file(name)
            if parsed is not None:
                self.segments.setdefault(parsed[0], set()).add(parsed[1])

    def rescan(self, first_seq: int) -> None:
        """Which files of one segment are there by now."""
        names = {kind: segment_file_name(first_seq, kind) for kind in SegmentFile}
        there = set(self.disk.list_directory(self.path))
        self.segments[first_seq] = {kind for kind, name in names.items() if name in there}

    def hot_bytes(self) -> list[int]:
        """The sizes of the data files of hot segments, as far as they are known."""
        hot = [first for first, files in self.segments.items() if SegmentFile.DATA in files]
        paths = [self.path_of(first, SegmentFile.DATA) for first in hot]
        return [file_bytes(self.disk, path) for path in paths]

    def path_of(self, first_seq: int, kind: SegmentFile) -> PurePath:
        return self.path / segment_file_name(first_seq, kind)

    def remove(self, first_seq: int, *kinds: SegmentFile) -> None:
        """Unlink those of the files that are there, and make that durable."""
        files = self.segments[first_seq]
        present = [kind for kind in kinds if kind in files]
        for kind in present:
            self.disk.unlink(self.path_of(first_seq, kind))
            files.discard(kind)
        if present:
            sync_names(self.disk, self.path)

    def rename(self, first_seq: int, source: SegmentFile, target: SegmentFile) -> None:
        files = self.segments[first_seq]
        self.disk.rename(self.path_of(first_seq, source), self.path_of(first_seq, target))
        sync_names(self.disk, self.path)
        files.discard(source)
        files.add(target)


def finish_interrupted(
    directory: TopicDirectory, first_seq: int, drop_cold: Callable[[int], bool] | None = None
) -> None:
    """Finish what was interrupted, so that a second crash in here is no worse than the first.

    `drop_cold` removes the cold copy of a segment that is being dropped; while it answers False
    the drop stays unfinished and is tried again next time.
    """
    files = directory.segments[first_seq]
    if files in (HOT, COLD):
        return
    # A process that was killed leaves names that no power loss has tested. What is decided here
    # rests on them, so they are made durable first.
    sync_names(directory.disk, directory.path)
    directory.remove(first_seq, *(_TEMPORARY & files))
    if SegmentFile.DROPPED in files:
        rest = files - {SegmentFile.DROPPED}
        directory.remove(first_seq, *rest)
        if drop_cold is None or drop_cold(first_seq):
            directory.remove(first_seq, SegmentFile.DROPPED)
        return
    if SegmentFile.NEW_DATA in files:
        # The index goes first: alone it would look like a swap that had begun.
        directory.remove(first_seq, SegmentFile.NEW_IDX)
        directory.remove(first_seq, SegmentFile.NEW_DATA)
    elif SegmentFile.NEW_IDX in files:
        directory.rename(first_seq, SegmentFile.NEW_IDX, SegmentFile.IDX)
    if SegmentFile.COLD in files:
        surplus = SegmentFile.COLD if SegmentFile.IDX in files else SegmentFile.DATA
        directory.remove(first_seq, surplus)
