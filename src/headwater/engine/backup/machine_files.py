"""State machines in a backup: snapshot, log and positions, as one moment had them.

In two steps, around the view of the topics, because every transition is also a record of a topic:

1. Before the view: the positions of the topic and the webhooks, the snapshots, and every segment
   that is written to no more. A segment goes only after index.json names a newer snapshot, so an
   index that is the same afterwards proves that all its snapshot needs was there.
2. After it: CURRENT, then the other segments. The newest is measured first: where it has bytes, all
   that stands before them was written already. So the log reaches as far as CURRENT promises, and
   at least as far as the topic. What is written meanwhile is left out.

Something that is gone in between, because the owner compacted, begins it again; segments that were
copied once are not copied again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from headwater.config.machines import MachineSettings
from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk, OpenMode, file_bytes, opened, read_all
from headwater.engine.backup.archive import CHUNK_BYTES, ArchiveWriter, read_chunks
from headwater.engine.machines.recovery import (
    inspect_machines,
    snapshots_directory,
    wal_directory,
)
from headwater.format.backup import BackupMember, is_member_name
from headwater.format.machines.current import decode_machine_current
from headwater.format.machines.names import (
    FED_NAME,
    HISTORY_DIRECTORY,
    INDEX_NAME,
    MACHINES_DIRECTORY,
    SNAPSHOTS_DIRECTORY,
    WEBHOOKS_DIRECTORY,
    parse_segment_name,
    segment_name,
)
from headwater.format.names import CURRENT_NAME, WAL_DIRECTORY
from headwater.recovery.machines.segment import scan_machine_segment
from headwater.recovery.machines.survey import begin_survey
from headwater.recovery.machines.verify import machine_faults
from headwater.store.segment import SegmentChangedError

_TRIES_MAX: Final = 20

Pause = Callable[[], None]
Members = list[BackupMember]


def machine_bytes(disk: Disk, directory: PurePath) -> int:
    """About how long the files are; segments are made ahead, so mostly less."""
    machines_directory = directory / MACHINES_DIRECTORY
    total = 0
    folders = (
        wal_directory(machines_directory),
        snapshots_directory(machines_directory),
        machines_directory / HISTORY_DIRECTORY,
    )
    for folder in folders:
        for name in _names(disk, folder):
            try:
                total += file_bytes(disk, folder / name)
            except (FileNotFoundError, IsADirectoryError):
                continue
    return total


class MachineCopier:
    """Copies of one backup; each pass makes both steps."""

    def __init__(self, disk: Disk, archive: ArchiveWriter, directory: PurePath) -> None:
        self._disk = disk
        self._archive = archive
        self._directory = directory / MACHINES_DIRECTORY
        self._log = wal_directory(self._directory)
        self._sealed: dict[int, BackupMember] = {}
        """Segments that are copied and never change."""
        self._snapshots: tuple[bytes | None, Members] | None = None
        """index.json as it was, and the copies that belong to it."""
        self._numbers: list[int] = []
        self._positions: Members = []

    def copy_before(self, pause: Pause) -> None:
        """Step 1."""
        for _ in range(_TRIES_MAX - 1):
            try:
                self._copy_before()
            except (SegmentChangedError, FileNotFoundError):
                if self._archive.failed:
                    raise
                pause()
            else:
                return
        self._copy_before()

    def _copy_before(self) -> None:
        index = self._index()
        self._positions = self._copy_positions()
        if self._snapshots is None or self._snapshots[0] != index:
            self._snapshots = (index, self._copy_snapshots(index))
        active = self._active()
        self._numbers = self._segments()
        for number in self._numbers:
            if number < active and number not in self._sealed:
                self._sealed[number] = self._copy_segment(number, self._measure(number))
        if self._index() != index:
            self._snapshots = None
            raise SegmentChangedError("the machines were compacted meanwhile")

    def copy_after(self) -> Members:
        """Step 2; gives everything that counts, of both steps."""
        assert self._snapshots is not None, "copy_before comes first"
        current = self._current()
        first = self._numbers[0] if self._numbers else 0
        present = [number for number in self._segments() if number >= first]
        numbers = sorted({*present, *(n for n in self._sealed if n >= first)})
        if numbers != list(range(first, first + len(numbers))):
            raise SegmentChangedError("segments of the machines' log were removed meanwhile")
        ends = {n: self._measure(n) for n in reversed(numbers) if n not in self._sealed}
        members = [*self._positions, *self._snapshots[1]]
        if current is not None:
            members.append(self._add(f"{WAL_DIRECTORY}/{CURRENT_NAME}", current))
        for number in numbers:
            sealed = self._sealed.get(number)
            members.append(sealed or self._copy_segment(number, ends[number]))
        return members

    def _copy_positions(self) -> Members:
        names = [FED_NAME] if self._disk.exists(self._directory / FED_NAME) else []
        webhooks = _names(self._disk, self._directory / WEBHOOKS_DIRECTORY)
        names += [f"{WEBHOOKS_DIRECTORY}/{name}" for name in webhooks]
        return [self._copy_small(name) for name in names if _is_ours(name)]

    def _copy_snapshots(self, index: bytes | None) -> Members:
        """All that are there: which one counts is for a start to find, by the index. With them
        what compaction kept of the log before, which changes when they do."""
        members = []
        if index is not None:
            members.append(self._add(f"{SNAPSHOTS_DIRECTORY}/{INDEX_NAME}", index))
        snapshots = set(_names(self._disk, snapshots_directory(self._directory))) - {INDEX_NAME}
        names = [f"{SNAPSHOTS_DIRECTORY}/{name}" for name in sorted(snapshots)]
        kept = _names(self._disk, self._directory / HISTORY_DIRECTORY)
        names += [f"{HISTORY_DIRECTORY}/{name}" for name in kept]
        return members + [self._copy_file(name, None) for name in names if _is_ours(name)]

    def _index(self) -> bytes | None:
        path = snapshots_directory(self._directory) / INDEX_NAME
        return read_all(self._disk, path) if self._disk.exists(path) else None

    def _current(self) -> bytes | None:
        path = self._log / CURRENT_NAME
        return read_all(self._disk, path) if self._disk.exists(path) else None

    def _active(self) -> int:
        """Segments before this one are synced and never written to again."""
        try:
            return decode_machine_current(self._current() or b"").active
        except FormatError:
            return 0  # a start does without it, too

    def _segments(self) -> list[int]:
        numbers = map(parse_segment_name, _names(self._disk, self._log))
        return sorted(number for number in numbers if number is not None)

    def _measure(self, number: int) -> int:
        """The end of the last byte that is no zero; it searches from the end."""
        with opened(self._disk, self._log / segment_name(number), OpenMode.READ) as file:
            high = file.size()
            while high:
                low = max(high - CHUNK_BYTES, 0)
                length = len(file.read(low, high - low).rstrip(b"\0"))
                if length:
                    return low + length
                high = low
            return 0

    def _copy_segment(self, number: int, end: int) -> BackupMember:
        return self._copy_file(f"{WAL_DIRECTORY}/{segment_name(number)}", end)

    def _copy_file(self, name: str, end: int | None) -> BackupMember:
        with opened(self._disk, self._directory / name, OpenMode.READ) as file:
            length = file.size()
            size = length if end is None else end
            whole = f"{MACHINES_DIRECTORY}/{name}"
            return self._archive.add(whole, read_chunks(file, 0, size), size, length)

    def _copy_small(self, name: str) -> BackupMember:
        return self._add(name, read_all(self._disk, self._directory / name))

    def _add(self, name: str, contents: bytes) -> BackupMember:
        return self._archive.add(f"{MACHINES_DIRECTORY}/{name}", [contents], len(contents))


def _is_ours(name: str) -> bool:
    """Not what is being written just now, under its temporary name."""
    return is_member_name(f"{MACHINES_DIRECTORY}/{name}")


def _names(disk: Disk, path: PurePath) -> list[str]:
    return disk.list_directory(path) if disk.is_directory(path) else []


# -- the way back


def check_machines(disk: Disk, directory: PurePath) -> None:
    """Read what was restored as a start would, and change nothing; what it refuses is an error."""
    machines_directory = directory / MACHINES_DIRECTORY
    if disk.is_directory(machines_directory):
        inspect_machines(disk, machines_directory, MachineSettings())


def read_every_entry(disk: Disk, directory: PurePath) -> int:
    """Check the checksums of every entry and snapshot. Gives the number of entries."""
    plan = begin_survey(disk, directory / MACHINES_DIRECTORY)
    scans = [scan_machine_segment(disk, segment) for segment in plan.segments]
    for fault in machine_faults(plan, scans):
        if fault.bad:
            raise DamageError(fault.what, path=fault.path, offset=fault.offset)
    return sum(scan.entries for scan in scans)
