"""Deletes in files: flags flipped in place, data before index, both synced.

Only the state byte of a frame and the flags and check of an entry change, so a torn write damages
at most one entry, which is then read again from the data. The log keeps the delete until both are
durable, and flipping twice is the same as flipping once (I8).
"""

from __future__ import annotations

from pathlib import PurePath

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError, InvariantError
from headwater.disk import Disk, File, OpenMode, sync_file, write_all
from headwater.format.segment import (
    ENTRY_BYTES,
    MEMORY_FLAGS,
    Entries,
    FrameState,
    IndexFlag,
    index_flags,
    seal_checks,
)
from headwater.store.pair import with_file
from headwater.store.segment import Segment

_DELETED_STATE = bytes((FrameState.DELETED,))


def check_seqs(segment: Segment, entries: Entries, seqs: NDArray[numpy.int64]) -> None:
    first, last = int(seqs[0]), int(seqs[-1])
    if first < segment.first_seq or last > segment.end_seq or len(entries) != last - first + 1:
        raise InvariantError(
            f"entries of {len(entries)} records given for seqs {first} to {last} "
            f"of segment {segment.first_seq} to {segment.end_seq}"
        )


def flag_frames(disk: Disk, path: PurePath, entries: Entries, rows: NDArray[numpy.int64]) -> None:
    """Flip the state byte of these frames and sync."""
    readable = rows[(index_flags(entries[rows]) & IndexFlag.DAMAGED) == 0]
    ends = entries["offset"][readable].astype(numpy.int64) + entries["len"][readable]

    def work(file: File) -> None:
        _refuse_short(file, int(ends.max(initial=0)))
        for end in ends.tolist():
            write_all(file, end - 1, [_DELETED_STATE])
        sync_file(file)

    with_file(disk, path, OpenMode.UPDATE, work)


def flag_entries(
    disk: Disk,
    path: PurePath,
    segment: Segment,
    entries: Entries,
    seqs: NDArray[numpy.int64],
) -> None:
    """Set DELETED in the entries of these seqs and sync."""
    first = int(seqs[0])
    # A damaged entry gets a sound one that says no more than that its record is deleted: it would
    # come back with every start. The last one says where the data ends, and stays as it is.
    damaged = (index_flags(entries[seqs - first]) & IndexFlag.DAMAGED) != 0
    seqs = seqs[~(damaged & (seqs == segment.end_seq))]
    if not len(seqs):
        return
    flagged = entries.copy()
    flagged["flags_check"] &= numpy.uint32(0xFF & ~MEMORY_FLAGS)
    flagged["flags_check"] |= numpy.uint32(IndexFlag.DELETED)
    seal_checks(flagged, first, segment.salt)
    borders = numpy.flatnonzero(numpy.diff(seqs) > 1) + 1

    def work(file: File) -> None:
        _refuse_short(file, (int(seqs[-1]) - segment.first_seq + 1) * ENTRY_BYTES)
        for run in numpy.split(seqs, borders):
            low, high = int(run[0]), int(run[-1])
            changed = flagged[low - first : high - first + 1].tobytes()
            write_all(file, (low - segment.first_seq) * ENTRY_BYTES, [changed])
        sync_file(file)

    with_file(disk, path, OpenMode.UPDATE, work)


def _refuse_short(file: File, needed: int) -> None:
    there = file.size()
    if there < needed:
        raise DamageError(
            f"{needed - there} bytes are missing at the end", path=file.path, offset=there
        )
