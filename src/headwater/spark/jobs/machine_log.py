"""The machines' log as rows for Spark: which files count, up to where, and what is in them.

Everything is verified first. Damage ends the job with file and offset: a damaged log
does not say what an instance was. A torn tail, which was never acknowledged, is left out.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Final

import msgspec
import pyarrow as pa

from headwater.core.errors import DamageError, FormatError, RequestError, UnavailableError
from headwater.core.units import MS_PER_S
from headwater.disk import Disk, PosixDisk, read_all
from headwater.format.machines.entry import MAGIC_BYTES, decode_entry
from headwater.format.machines.names import (
    MACHINES_DIRECTORY,
    SNAPSHOTS_DIRECTORY,
    global_offset,
    segment_of,
    within_segment,
)
from headwater.recovery.history.machines import OF_INSTANCES, about
from headwater.recovery.machines.segment import MachineScan, scan_machine_segment
from headwater.recovery.machines.snapshot import load_machine_snapshot
from headwater.recovery.machines.survey import MachineSurvey, begin_survey
from headwater.recovery.machines.verify import machine_faults
from headwater.spark.jobs.job import MapAll
from headwater.spark.runtime.arrow_schema import in_batches
from headwater.store.verify import FaultKind, VerifyFault

ROWS: Final = pa.schema(
    [
        pa.field("instance_id", pa.string(), nullable=False),
        pa.field("wal_offset", pa.int64(), nullable=False),
        pa.field("kind", pa.int32(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
FROM_SNAPSHOT: Final = 0
"""In place of an entry's type: the body is an instance as a snapshot has it."""
_EVER: Final = 2**63 - 1
_SCANS_MAX: Final = 3


class MachineSplit(msgspec.Struct, frozen=True):
    """One file, or part of one."""

    path: str
    segment: int
    """0 for a snapshot."""
    begin: int
    end: int
    """Global offsets: entries at or after the one and before the other count."""
    at_max: int
    """And none that is younger, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class MachineLogView:
    splits: list[MachineSplit]
    end: int
    """Behind the last entry that counts."""
    snapshot: str | None
    entries: int


def view_machine_log(
    disk: Disk,
    directory: PurePath,
    map_all: MapAll,
    until: int | None = None,
    at_ms: int | None = None,
) -> MachineLogView:
    """What gives the instances as they were after the entry at `until`, and not after `at_ms`."""
    directory_of_log = directory / MACHINES_DIRECTORY
    if not disk.is_directory(directory_of_log):
        raise RequestError(f"{directory} has no machines: there is no {MACHINES_DIRECTORY}/ in it")
    plan, scans, faults = _scan_log(disk, directory_of_log, map_all)
    for fault in faults:
        if fault.bad:
            raise DamageError(
                fault.what,
                path=fault.path,
                offset=fault.offset,
                advice="`headwater verify` shows everything; restore a backup",
            )
    end = _end(plan, scans, faults)
    if until is not None:
        end = min(end, until + 1)
    at_max = _EVER if at_ms is None else at_ms
    known = [each.heading for each in plan.snapshots.whole() if each.heading is not None]
    usable = [h for h in known if h.wal_offset <= end and _ms_after(h.timestamp) <= at_max]
    heading = usable[0] if usable else None
    if heading is None and known and (not scans or scans[0].number != 1):
        raise RequestError(
            "the log does not reach back so far: what was before the snapshot of "
            f"{known[-1].timestamp} was compacted away"
        )
    begin = 0 if heading is None else heading.wal_offset
    flushes = [at for scan in scans for at, when in scan.flushes if at < end and when <= at_max]
    begin = max([begin, *flushes])
    splits = [
        MachineSplit(segment.path, segment.number, begin, end, at_max)
        for segment in plan.segments
        if segment_of(begin) <= segment.number <= segment_of(end)
    ]
    if heading is not None and begin == heading.wal_offset:
        path = directory_of_log / SNAPSHOTS_DIRECTORY / heading.file
        splits.append(MachineSplit(str(path), 0, 0, _EVER, _EVER))
    entries = sum(scan.entries for scan in scans if scan.number >= segment_of(begin))
    return MachineLogView(splits, end, None if heading is None else heading.file, entries)


def _scan_log(
    disk: Disk, directory_of_log: PurePath, map_all: MapAll
) -> tuple[MachineSurvey, list[MachineScan], list[VerifyFault]]:
    """Once more when an owner compacts the log just now."""
    for _ in range(_SCANS_MAX):
        try:
            plan = begin_survey(disk, directory_of_log)
        except FileNotFoundError:
            continue
        scans = map_all(partial(scan_machine_segment, disk), plan.segments)
        faults = machine_faults(plan, scans)
        if not any(fault.kind is FaultKind.CHANGED for fault in faults):
            return plan, scans, faults
    raise UnavailableError(f"{directory_of_log} changes faster than it can be scanned; try again")


def _end(plan: MachineSurvey, scans: Sequence[MachineScan], faults: Sequence[VerifyFault]) -> int:
    """Behind the last whole batch."""
    ends = [global_offset(scan.number, scan.end) for scan in scans if scan.entries]
    end = max(ends, default=0 if plan.heading is None else plan.heading.wal_offset)
    numbers = {PurePath(scan.path): scan.number for scan in scans}
    torn = [
        global_offset(numbers[fault.path], fault.offset)
        for fault in faults
        if fault.path in numbers and fault.offset is not None
    ]
    opened = [
        global_offset(scan.number, scan.open_batch)
        for scan in scans[-1:]
        if scan.open_batch is not None
    ]
    return min([end, *torn, *opened])


def _ms_after(timestamp: str) -> int:
    """A snapshot names its second: it has nothing that is younger than the end of it."""
    moment = datetime.datetime.fromisoformat(timestamp)
    return int(moment.timestamp()) * MS_PER_S + MS_PER_S - 1


def read_split(split: MachineSplit) -> Iterator[pa.RecordBatch]:
    """In a task."""
    return in_batches(split_rows(PosixDisk(), split), ROWS)


def split_rows(disk: Disk, split: MachineSplit) -> Iterator[tuple[str, int, int, bytes]]:
    contents = read_all(disk, PurePath(split.path))
    if not split.segment:
        for instance in load_machine_snapshot(contents).instances:
            body = msgspec.msgpack.encode(instance)
            yield instance.id, instance.last_wal_offset, FROM_SNAPSHOT, body
        return
    at, size = 0, len(contents)
    if segment_of(split.begin) == split.segment:
        at = within_segment(split.begin)
    while contents.startswith(MAGIC_BYTES, at) and global_offset(split.segment, at) < split.end:
        try:
            entry = decode_entry(contents, at, size)
        except FormatError as error:  # changed since it was scanned
            raise DamageError(error.reason, path=split.path, offset=at) from error
        if entry.kind in OF_INSTANCES:
            told = about(entry.payload)
            if told.at <= split.at_max:
                here = global_offset(split.segment, at)
                yield told.instance_id, here, int(entry.kind), entry.payload
        at += entry.size
