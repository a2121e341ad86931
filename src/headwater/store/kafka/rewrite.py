"""What of a segment is still alive, and the segment without the rest: a new log and a new index.

Both are whole and synced before any reader knows of them. The rename of the index is the moment at
which the rewrite has happened: before it the old log is read, after it the new one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.core.units import MIB
from headwater.disk import (
    Buffer,
    Disk,
    File,
    OpenMode,
    opened,
    sync_file,
    sync_names,
    write_all,
    write_new_file,
)
from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import RewriteMeta
from headwater.format.kafka.entry import (
    PREFIX_BYTES,
    Entries,
    Runs,
    find_runs,
    group_by_key,
    holes_in,
)
from headwater.format.kafka.names import REWRITE_SUFFIX, index_name, log_name


class LiveBatches(NamedTuple):
    runs: Runs
    live: NDArray[numpy.bool_]
    """Of each run."""
    live_bytes: int
    stored_bytes: int
    """What the log holds, dead or alive."""
    has_holes: bool
    """There are holes that readers may still come upon: they say which offsets are taken."""

    @property
    def is_needed(self) -> bool:
        return self.has_holes or bool(self.live.any())

    @property
    def dead_ratio(self) -> float:
        return 1 - self.live_bytes / self.stored_bytes if self.stored_bytes else 0.0


def keys_in(entries: Entries) -> list[bytes]:
    return [key for key, _ in group_by_key(find_runs(entries))]


def strangers(living: LiveBatches, log_number: int, log_bytes: int) -> bool:
    """Whether an entry that lives leads to another log, or behind the end of this one."""
    entries = living.runs.entries[living.live]
    ends = entries["physical_offset"].astype(numpy.int64) + entries["length"] + PREFIX_BYTES
    return bool((entries["segment_id"] != log_number).any() or (ends > log_bytes).any())


def find_live_batches(
    entries: Entries, base_id: int, first_live: Mapping[bytes, int]
) -> LiveBatches:
    """A batch lives as long as one of its ids does: from the first live one of its key on."""
    runs = find_runs(entries)
    live = numpy.zeros(len(runs.starts), numpy.bool_)
    last_ids = base_id + runs.starts + runs.counts - 1
    for key, members in group_by_key(runs):
        live[members] = last_ids[members] >= first_live[key]
    has_holes = bool((live & holes_in(runs.entries)).any())
    stored = runs.entries["length"] > 0
    live &= stored
    sizes = runs.entries["length"].astype(numpy.int64) + PREFIX_BYTES
    return LiveBatches(runs, live, int(sizes[live].sum()), int(sizes[stored].sum()), has_holes)


_WRITE_BYTES: Final = 4 * MIB
_BUFFERS_MAX: Final = 512


def write_live_batches(
    disk: Disk,
    directory: PurePath,
    number: int,
    log_number: int,
    log: memoryview,
    living: LiveBatches,
) -> RewriteMeta:
    """Write log `log_number` with what lives of segment `number`, and an index beside the old.

    An error leaves neither behind. The log gets its name when the index that leads to it is there:
    so a start can tell what a crash leaves of either from a segment that was begun.
    """
    new_entries, spans, size = _moved(log_number, living)
    contents = new_entries.tobytes()
    new_log = log_name(log_number) + REWRITE_SUFFIX
    names: dict[str, Iterator[Sequence[Buffer]]] = {
        new_log: _writes(log, spans),
        index_name(log_number): iter(()),
        index_name(number) + REWRITE_SUFFIX: iter([[contents]]),
    }
    try:
        for name, writes in names.items():
            with opened(disk, directory / name, OpenMode.CREATE) as file:
                _write(file, writes)
                sync_file(file)
        sync_names(disk, directory)
        disk.rename(directory / new_log, directory / log_name(log_number))
        sync_names(disk, directory)
    except Exception:
        for name in (*names, log_name(log_number)):
            with contextlib.suppress(OSError):
                disk.unlink(directory / name)
        raise
    return RewriteMeta(checksum64(contents), log_number, size)


def swap_index(disk: Disk, directory: PurePath, number: int) -> None:
    """The new index takes the place of the old one: from here on the rewrite has happened."""
    path = directory / index_name(number)
    disk.rename(path.with_name(path.name + REWRITE_SUFFIX), path)
    sync_names(disk, directory)


def write_index_again(disk: Disk, directory: PurePath, number: int, contents: bytes) -> None:
    """The same index under the same name, in a file of its own."""
    write_new_file(disk, directory / (index_name(number) + REWRITE_SUFFIX), contents)
    swap_index(disk, directory, number)


def _moved(log_number: int, living: LiveBatches) -> tuple[Entries, list[tuple[int, int]], int]:
    """The entries after the rewrite, what is copied (from, to), and how long the new log is."""
    runs, live = living.runs, living.live
    sizes = numpy.where(live, runs.entries["length"].astype(numpy.int64) + PREFIX_BYTES, 0)
    offsets = numpy.cumsum(sizes) - sizes
    new = runs.entries.copy()
    new["segment_id"][live] = log_number
    new["physical_offset"][live] = offsets[live]
    new["length"][~live] = 0
    begins = runs.entries["physical_offset"][live].astype(numpy.int64)
    ends = begins + sizes[live]
    # Neighbours in the old log are copied together.
    breaks = numpy.flatnonzero(begins[1:] != ends[:-1]) + 1
    firsts = begins[numpy.concatenate(([0], breaks))] if len(begins) else begins
    lasts = ends[numpy.concatenate((breaks - 1, [len(ends) - 1]))] if len(ends) else ends
    spans = list(zip(firsts.tolist(), lasts.tolist(), strict=True))
    return numpy.repeat(new, runs.counts), spans, int(sizes.sum())


def _writes(log: memoryview, spans: list[tuple[int, int]]) -> Iterator[list[memoryview]]:
    """The spans in writes of a reasonable size."""
    group: list[memoryview] = []
    size = 0
    for begin, end in spans:
        for at in range(begin, end, _WRITE_BYTES):
            chunk = log[at : min(at + _WRITE_BYTES, end)]
            group.append(chunk)
            size += len(chunk)
            if size >= _WRITE_BYTES or len(group) >= _BUFFERS_MAX:
                yield group
                group, size = [], 0
    if group:
        yield group


def _write(file: File, writes: Iterator[Sequence[Buffer]]) -> None:
    at = 0
    for buffers in writes:
        at += write_all(file, at, buffers)
