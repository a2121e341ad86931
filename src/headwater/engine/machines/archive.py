"""Histories of instances outlive the log: what compaction keeps of the segments it deletes.

For each of them one file with the entries of instances that were living then: of each instance the
newest up to a count, none beyond an age. Nothing about it is in memory. A history is walked back
from entry to entry by offset, and an entry of a segment that is gone is read from the file of that
segment. A start does not read these files, and does without them.

Bounded by bytes as well: the oldest files go first, and those whose entries are all too old.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.config.machines import HistorySettings
from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.disk import (
    NO_ROOM,
    Disk,
    OpenMode,
    have_directory,
    new_file,
    opened,
    write_all,
)
from headwater.disk.whole_files import sync_names
from headwater.engine.machines.log_reader import CommittedLog, LogGap
from headwater.engine.owner import Owner
from headwater.format.machines.entry import MachineEntry, encode_entry
from headwater.format.machines.history import (
    HISTORY_FOOTER,
    decode_footer,
    encode_ending,
    encode_index_entry,
)
from headwater.format.machines.names import (
    global_offset,
    history_name,
    parse_history_name,
    within_segment,
)
from headwater.recovery.history.machines import OF_INSTANCES, EntryAbout, about

IDS_AT_ONCE: Final = 1_000
WRITE_BYTES: Final = MIB
_log = logging.getLogger("headwater.machines")


Living = Callable[[Sequence[str]], list[str]]
"""Those of the ids that are of living instances. As the owner."""


class Archive:
    """The directory of kept entries. For the maintenance thread."""

    def __init__(self, disk: Disk, directory: PurePath, settings: HistorySettings) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings

    def keep(
        self, log: CommittedLog, segments: Iterable[int], owner: Owner, living: Living, now_ms: int
    ) -> None:
        """Before these segments are deleted. Where there is no room it is said, and done without:
        compaction has to make room."""
        if not self._settings.transitions_max:
            return
        for segment in segments:
            try:
                self._keep(_ArchivedSegment(log, segment), owner, living, now_ms)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                _log.warning("no room to keep histories of segment %s: %s", segment, error)

    def _keep(self, segment: _ArchivedSegment, owner: Owner, living: Living, now_ms: int) -> None:
        age_ms = self._settings.age_ms
        oldest_ms = now_ms - age_ms if age_ms else 0
        left: dict[str, int] = {}
        for _, _, told in segment.rows():
            if told.at >= oldest_ms:
                left[told.instance_id] = left.get(told.instance_id, 0) + 1
        left = {name: left[name] for name in _living(list(left), owner, living)}

        def kept() -> Iterator[tuple[int, MachineEntry, int]]:
            """Counted down: what is left of an instance when it comes is how new it is."""
            for offset, entry, told in segment.rows():
                count = left.get(told.instance_id, 0)
                if told.at < oldest_ms or not count:
                    continue
                left[told.instance_id] = count - 1
                if count <= self._settings.transitions_max:
                    yield offset, entry, told.at

        if left:
            self._write(segment.number, kept())

    def _write(self, segment: int, rows: Iterable[tuple[int, MachineEntry, int]]) -> None:
        have_directory(self._disk, self._directory)
        with new_file(self._disk, self._directory / history_name(segment)) as file:
            index, waiting = bytearray(), bytearray()
            size = newest_ms = 0
            for offset, entry, at in rows:
                index += encode_index_entry(offset, size + len(waiting))
                waiting += encode_entry(entry.kind, entry.sequence, entry.payload)
                newest_ms = max(newest_ms, at)
                if len(waiting) >= WRITE_BYTES:
                    size += write_all(file, size, [waiting])
                    waiting = bytearray()
            write_all(file, size, [waiting, encode_ending(segment, bytes(index), newest_ms)])

    def prune(self, now_ms: int) -> None:
        """Files whose entries are all too old, and the oldest beyond the bytes."""
        if not self._disk.is_directory(self._directory):
            return
        age_ms, total, removed = self._settings.age_ms, 0, 0
        for segment in reversed(self._segments()):
            path = self._directory / history_name(segment)
            size, newest_ms = self._measure(path, segment)
            total += size
            if total > self._settings.bytes_max or (age_ms and newest_ms < now_ms - age_ms):
                self._disk.unlink(path)
                removed += 1
        if removed:
            sync_names(self._disk, self._directory)

    def _measure(self, path: PurePath, segment: int) -> tuple[int, int]:
        """Its bytes, and when its newest entry was made; a damaged file is as new as can be."""
        with opened(self._disk, path, OpenMode.READ) as file:
            size = file.size()
            end = max(size - HISTORY_FOOTER.size, 0)
            try:
                footer = decode_footer(file.read(end, HISTORY_FOOTER.size), size, segment)
            except FormatError:
                return size, 1 << 62
            return size, footer.newest_ms

    def _segments(self) -> list[int]:
        numbers = map(parse_history_name, self._disk.list_directory(self._directory))
        return sorted(number for number in numbers if number is not None)


@dataclass(frozen=True, slots=True)
class _ArchivedSegment:
    """One segment of the log, still there."""

    log: CommittedLog
    number: int

    def rows(self) -> Iterator[tuple[int, MachineEntry, EntryAbout]]:
        """Entries about instances, by offset in the segment. What cannot be read is passed over:
        it was reported before."""
        gaps: list[LogGap] = []
        for offset, entry in self.log.only(self.number).walk(global_offset(self.number, 0), gaps):
            if entry.kind in OF_INSTANCES:
                try:
                    told = about(entry.payload)
                except FormatError:
                    continue
                yield within_segment(offset), entry, told


def _living(ids: list[str], owner: Owner, living: Living) -> Iterator[str]:
    for at in range(0, len(ids), IDS_AT_ONCE):
        some = ids[at : at + IDS_AT_ONCE]
        yield from owner.call(lambda some=some: living(some))  # type: ignore[misc]
