"""Reading the machines' log at start: whole batches in order, damage told from a torn tail.

A walk goes from entry to entry. Where the bytes are no entry and not zeros to the end of their
segment, the rest of the log is searched for witnesses: entries and CURRENT say how far the log
was known to be synced when they were written, and a segment is synced before the next begins.

| what is found | what it is | what happens |
|---|---|---|
| bad bytes that begin before a witnessed place | damage | skipped, told, remembered |
| bad bytes that no witness knew of | torn tail | cut: copied to quarantine, zeros instead |
| a batch that does not end | torn tail | cut at the batch's first entry |
| a sequence number that skips some | damage | told, remembered |
| a segment that must be there is not | damage | refused |
| a sound header of an unknown kind | a newer version | refused |

Nothing that was acknowledged is cut: an acknowledged entry was synced before, and from the next
start at the latest CURRENT is its witness (I5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk, OpenMode, read_whole, replace_file, sync_file, write_all
from headwater.disk.whole import TEMPORARY_SUFFIX, sync_names
from headwater.format.machines.bodies import witness_of
from headwater.format.machines.current import (
    MACHINE_CURRENT_BYTES_MAX,
    MachineCurrent,
    decode_machine_current,
)
from headwater.format.machines.entry import (
    HEADER_BYTES,
    MAGIC_BYTES,
    Entry,
    decode_entry,
    sequence_in,
)
from headwater.format.machines.names import (
    global_offset,
    parse_segment_name,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.format.names import CURRENT_NAME, PREPARED_NAME, QUARANTINE_DIRECTORY
from headwater.recovery.machine_walk import (
    Damage,
    Deliver,
    Found,
    MachineLogReport,
    MachineWalk,
    TornTail,
)

Progress = Callable[[float], None]
_NEW_LOG: Final = 1


class MachineLogReader:
    """One look at a directory of segments. Changes nothing until `repair`."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self._disk = disk
        self._directory = directory
        names = disk.list_directory(directory) if disk.is_directory(directory) else []
        self.segments = sorted(n for n in map(parse_segment_name, names) if n is not None)
        self.current = self._read_current(names)
        self._buffers: dict[int, bytes] = {}
        self._witness: int | None = None
        self._refuse_foreign(names)

    @property
    def is_complete(self) -> bool:
        """True when the log reaches back to its very first entry."""
        return not self.segments or self.segments[0] == _NEW_LOG

    def read(
        self, start: int, sequence: int, deliver: Deliver, progress: Progress
    ) -> MachineLogReport:
        """Deliver every entry from `start` on, whose sequence number is `sequence`."""
        self._check_segments(start)
        walk = MachineWalk(self, start or global_offset(_NEW_LOG, 0), sequence, deliver)
        last = self.segments[-1] if self.segments else _NEW_LOG
        while walk.step():
            segment = segment_of(walk.at)
            self._forget_before(segment)
            progress(min((segment - segment_of(start or 0)) / (last - segment_of(start) + 1), 1.0))
        report = walk.report(self.segments[0] if self.segments else _NEW_LOG)
        report.segments = self.segments
        report.first_sequences = {
            number: first
            for number in self.segments
            if (first := self._first_sequence(number)) is not None
        }
        return report

    def _first_sequence(self, segment: int) -> int | None:
        file = self._disk.open(self.path_of(segment), OpenMode.READ)
        try:
            return sequence_in(file.read(0, HEADER_BYTES))
        finally:
            file.close()

    def bytes_of(self, segment: int) -> bytes:
        found = self._buffers.get(segment)
        if found is None:
            found = self._buffers[segment] = self._read(segment)
        return found

    def _read(self, segment: int) -> bytes:
        file = self._disk.open(self.path_of(segment), OpenMode.READ)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def has(self, segment: int) -> bool:
        return bool(self.segments) and self.segments[0] <= segment <= self.segments[-1]

    def path_of(self, segment: int) -> PurePath:
        return self._directory / segment_name(segment)

    def look_beyond(self, at: int, sequence: int) -> Found:
        """From a bad place on: the next sound entry, and the furthest witness of all.

        The first look goes to the end of the log. What it finds vouched for stays true, so later
        looks only go to the next sound entry: a log with many bad places is not read many times.
        """
        resume, found_sequence = None, 0
        looked, witness = self._witness is not None, self._witness or self._current_witness()
        for here, entry in self._sound_entries(at):
            if entry.sequence < sequence:
                continue
            if resume is None:
                resume, found_sequence = here, entry.sequence
            if looked:
                break
            if segment_of(here) != segment_of(at):
                witness = max(witness, global_offset(segment_of(here), 0))
            # An entry cannot vouch for itself, nor for what comes after it.
            witness = max(witness, min(witness_of(entry), here))
        self._witness = witness
        return Found(resume, found_sequence, witness)

    def _sound_entries(self, at: int) -> Iterator[tuple[int, Entry]]:
        """Every entry from here on that can be found, whatever is between them."""
        segment, offset = segment_of(at), within_segment(at)
        while self.has(segment):
            kept = segment == segment_of(at)  # the others are looked at one at a time
            buffer = self.bytes_of(segment) if kept else self._read(segment)
            place = buffer.find(MAGIC_BYTES, offset)
            while place >= 0:
                try:
                    entry = decode_entry(buffer, place, len(buffer))
                except FormatError:
                    place = buffer.find(MAGIC_BYTES, place + 1)
                    continue
                yield global_offset(segment, place), entry
                place = buffer.find(MAGIC_BYTES, place + entry.size)
            segment, offset = segment + 1, 0

    def repair(self, report: MachineLogReport) -> None:
        """Cut the torn tail, and write again what no witness vouches for.

        Bytes that a failed sync left in memory only look sound until the power goes; written and
        synced once more they are. After this CURRENT may say that everything is synced.
        """
        if report.torn is not None:
            self._cut(report.torn)
        position = report.position
        start = max(self._current_witness(), global_offset(position.segment, 0))
        at = within_segment(start) if segment_of(start) == position.segment else 0
        if position.file_bytes and at < position.offset:
            tail = self.bytes_of(position.segment)[at : position.offset]
            file = self._disk.open(self.path_of(position.segment), OpenMode.UPDATE)
            try:
                write_all(file, at, [tail])
                sync_file(file)
            finally:
                file.close()
        self._buffers.clear()

    def _cut(self, torn: TornTail) -> None:
        """Quarantine first, then the segments behind it, then zeros."""
        segment, offset = segment_of(torn.offset), within_segment(torn.offset)
        for later in [number for number in self.segments if number > segment]:
            self._keep_copy(later, 0)
            self._disk.unlink(self.path_of(later))
        self._keep_copy(segment, offset)
        bad = self.bytes_of(segment)[offset:].rstrip(b"\0")
        file = self._disk.open(self.path_of(segment), OpenMode.UPDATE)
        try:
            write_all(file, offset, [bytes(len(bad))])
            sync_file(file)
        finally:
            file.close()
        sync_names(self._disk, self._directory)
        self.segments = [number for number in self.segments if number <= segment]
        self._buffers.clear()

    def _keep_copy(self, segment: int, offset: int) -> None:
        bad = self.bytes_of(segment)[offset:].rstrip(b"\0")
        if not bad:
            return
        quarantine = self._directory / QUARANTINE_DIRECTORY
        self._disk.make_directory(quarantine)
        replace_file(self._disk, quarantine / f"{segment_name(segment)}.{offset}.torn", bad)

    def _current_witness(self) -> int:
        current = self.current
        return 0 if current is None else global_offset(current.active, current.durable)

    def _read_current(self, names: list[str]) -> MachineCurrent | None:
        if CURRENT_NAME not in names:
            return None
        path = self._directory / CURRENT_NAME
        try:
            return decode_machine_current(read_whole(self._disk, path, MACHINE_CURRENT_BYTES_MAX))
        except FormatError:
            return None  # a nuisance, not a loss: the segments tell which is last

    def _refuse_foreign(self, names: list[str]) -> None:
        known = {CURRENT_NAME, PREPARED_NAME, QUARANTINE_DIRECTORY, "LOCK"}
        for name in names:
            if (
                name not in known
                and parse_segment_name(name) is None
                and not name.endswith(TEMPORARY_SUFFIX)
            ):
                raise DamageError(
                    "a file that does not belong here",
                    path=self._directory / name,
                    advice="move it away",
                )

    def _check_segments(self, start: int) -> None:
        """Every segment from the first needed to the last known must be there."""
        first_needed = segment_of(start) or _NEW_LOG
        last = max([*self.segments, 0 if self.current is None else self.current.active])
        if not last and not start:
            return
        there = set(self.segments)
        for segment in range(first_needed, last + 1):
            if segment not in there and not (segment == last and self._may_be_unmade(segment)):
                raise DamageError(
                    "a segment of the log is missing",
                    path=self.path_of(segment),
                    advice="put it back, or restore a backup; nothing was changed",
                )
        if start and first_needed not in there:
            raise DamageError(
                "the segment a snapshot continues in is missing",
                path=self.path_of(first_needed),
                advice="put it back, or restore a backup; nothing was changed",
            )
        self.segments = [number for number in self.segments if self._unbroken(number, there)]

    def _may_be_unmade(self, segment: int) -> bool:
        """CURRENT may name a first segment that the disk had no room for. Any later one was made
        before CURRENT named it."""
        current = self.current
        named = current is not None and current.active == segment and current.durable == 0
        return named and segment == _NEW_LOG

    def _unbroken(self, segment: int, there: set[int]) -> bool:
        return all(number in there for number in range(segment, max(there) + 1))

    def _forget_before(self, segment: int) -> None:
        for number in [number for number in self._buffers if number < segment]:
            del self._buffers[number]


__all__ = ["Damage", "MachineLogReader", "MachineLogReport", "TornTail"]
