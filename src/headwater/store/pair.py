"""The two files of a hot segment: reading facts of them, appending, repairing an index.

Data is always durable before the index that points at it. Reads check the checksums: what is
damaged is reported and left out, the rest is served. A bad sealed frame is reported, never served
and never silently dropped (I6).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError, FormatError
from headwater.disk import Buffer, Disk, OpenMode, opened, sync_file, write_all, write_new_file
from headwater.format.segment import (
    ENTRY_BYTES,
    FAULT_MEANING,
    INDEX_ENTRY,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    FrameFault,
    IndexFlag,
    bad_entries,
    frame_faults,
    index_flags,
    rebuild_entries,
    seal_checks,
)
from headwater.native import compiled
from headwater.store.segment import SegmentSlice

_NOT_SERVED: Final = int(IndexFlag.DELETED | IndexFlag.DAMAGED)


@dataclass(frozen=True, slots=True)
class RecordDamage:
    """One damaged record, or several in a row: enough for an operator to find them."""

    path: PurePath
    offset: int
    seq: int
    reason: str
    repaired: bool = False
    """True when the damage was in an index and could be read again from the data."""
    last_seq: int | None = None
    """The last of several seqs that one damage concerns; None where it is one record."""

    @property
    def end_seq(self) -> int:
        return self.seq if self.last_seq is None else self.last_seq

    def __str__(self) -> str:
        done = " (repaired)" if self.repaired else ""
        which = (
            f"seq {self.seq}" if self.last_seq is None else f"seqs {self.seq} to {self.last_seq}"
        )
        return f"{which}: {self.reason} in {self.path} at byte {self.offset}{done}"


def good_positions(
    stored: SegmentSlice, entries: Entries, first_seq: int
) -> tuple[NDArray[numpy.bool_], list[RecordDamage]]:
    """Which of these entries may be served, and a finding for each that is damaged.

    Dead records are not checked. A live entry whose frame says deleted is left out without a
    finding: the record was deleted after these entries were copied, or a crash came between
    the two flags and the log finishes the delete (I8).
    """
    flags = index_flags(entries)
    good: NDArray[numpy.bool_] = (flags & _NOT_SERVED) == 0
    faults = frame_faults(stored.buffer, entries, first_seq, stored.base)
    if not faults.any():
        return good, []
    bad = numpy.flatnonzero(good & (faults != FrameFault.NONE))
    good[bad] = False
    findings = [
        RecordDamage(
            stored.path,
            int(entries["offset"][position]),
            first_seq + position,
            FAULT_MEANING[FrameFault(int(faults[position]))],
        )
        for position in bad.tolist()
        if faults[position] != FrameFault.DELETED
    ]
    return good, findings


_native = compiled("entries")


def append_bytes(disk: Disk, path: PurePath, length: int, data: Buffer) -> None:
    """Write at `length`, the end of what counts, and sync. What a failed try left there goes."""
    with opened(disk, path, OpenMode.UPDATE) as file:
        there = file.size()
        if there < length:
            raise DamageError(
                f"{length - there} bytes are missing at the end", path=path, offset=there
            )
        if there > length:
            file.truncate(length)
        write_all(file, length, [data])
        sync_file(file)


def create_file(disk: Disk, path: PurePath, data: Buffer) -> None:
    """Write a new file and sync its bytes; what an earlier try left under the name goes."""
    if disk.exists(path):
        disk.unlink(path)
    write_new_file(disk, path, data)


def whole_entries(buffer: bytes, count: int | None = None) -> Entries:
    """A writable copy of the entries in a buffer, without a broken one at its end."""
    there = len(buffer) // ENTRY_BYTES
    return numpy.frombuffer(buffer, INDEX_ENTRY.dtype, there if count is None else count).copy()


def end_of(entries: Entries) -> int:
    """Where the data of these entries ends."""
    return int(entries["offset"][-1]) + int(entries["len"][-1]) if len(entries) else 0


def repair_entries(
    entries: Entries, first_seq: int, data: memoryview, path: PurePath, salt: int = 0
) -> tuple[Entries, list[RecordDamage]]:
    """Entries with the bad ones read again from the data; a finding for each that was bad.

    What cannot be read again is marked DAMAGED, which is never served.
    """
    findings: list[RecordDamage] = []
    for run in _stretches(bad_entries(entries, first_seq, salt)):
        low, high = int(run[0]), int(run[-1]) + 1
        start = end_of(entries[:low])
        rebuilt, _ = rebuild_entries(data, first_seq + low, start, high - low)
        seal_checks(rebuilt, first_seq + low, salt)
        entries[low : low + len(rebuilt)] = rebuilt
        lost = entries[low + len(rebuilt) : high]
        lost["offset"], lost["len"] = end_of(entries[: low + len(rebuilt)]), SEGMENT_FRAME_BYTES_MIN
        lost["ts"], lost["flags_check"] = 0, IndexFlag.DAMAGED
        if len(lost) and high < len(entries):
            # All that lies before the next frame: a reader that goes on from here finds that one.
            gap = int(entries["offset"][high]) - int(lost["offset"][-1])
            lost["len"][-1] = max(gap, SEGMENT_FRAME_BYTES_MIN)
        for row in range(low, high):
            repaired = row < low + len(rebuilt)
            reason = "the index entry is damaged" + ("" if repaired else ", and so is the frame")
            findings.append(
                RecordDamage(path, row * ENTRY_BYTES, first_seq + row, reason, repaired)
            )
    return entries, findings


def extend_entries(
    entries: Entries, first_seq: int, data: memoryview, path: PurePath, salt: int = 0
) -> tuple[Entries, list[RecordDamage]]:
    """Entries for the frames behind the last entry; FormatError when they are not sound."""
    start = end_of(entries)
    rebuilt, ended = rebuild_entries(data, first_seq + len(entries), start)
    if ended is not None:
        raise FormatError(ended.reason, ended.offset)
    seal_checks(rebuilt, first_seq + len(entries), salt)
    findings = [
        RecordDamage(path, row * ENTRY_BYTES, first_seq + row, "the index entry is missing", True)
        for row in range(len(entries), len(entries) + len(rebuilt))
    ]
    return numpy.concatenate((entries, rebuilt)), findings


def _stretches(positions: NDArray[numpy.int64]) -> list[NDArray[numpy.int64]]:
    """The positions in groups of neighbours."""
    if not len(positions):
        return []
    return numpy.split(positions, numpy.flatnonzero(numpy.diff(positions) > 1) + 1)


def readable_span(entries: Entries) -> tuple[int, int]:
    """Where the first frame of these begins and the last one ends, damaged ones left out."""
    if _native is not None:
        span: tuple[int, int] = _native.readable_span(numpy.ascontiguousarray(entries))
        return span
    readable = entries[(index_flags(entries) & IndexFlag.DAMAGED) == 0]
    if not len(readable):
        return 0, 0
    ends = readable["offset"].astype(numpy.int64) + readable["len"]
    return int(readable["offset"].min()), int(ends.max())
