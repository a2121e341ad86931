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

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DamageError, FormatError, NewerFormatError
from headwater.disk import Disk, OpenMode, read_whole, replace_file, sync_file, write_all
from headwater.disk.whole import TEMPORARY_SUFFIX, sync_names
from headwater.format.machines.bodies import witness_of
from headwater.format.machines.current import (
    MACHINE_CURRENT_BYTES_MAX,
    MachineCurrent,
    decode_machine_current,
)
from headwater.format.machines.entry import (
    MAGIC_BYTES,
    OVERHEAD_BYTES,
    Entry,
    decode_entry,
    is_newer,
)
from headwater.format.machines.names import (
    global_offset,
    parse_segment_name,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.format.names import CURRENT_NAME, PREPARED_NAME, QUARANTINE_DIRECTORY
from headwater.wal.entry_log import EntryPosition

Deliver = Callable[[int, Entry], None]
"""Called with each entry and its global offset, in order, whole batches only."""
Progress = Callable[[float], None]
_NEW_LOG: Final = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that were known to be synced and are not what was written."""

    offset: int
    """Global, of the first bad byte."""
    resume: int
    """Global, where reading went on."""
    entries: int
    """How many entries are missing, by their sequence numbers; at least this many."""
    reason: str


@dataclass(frozen=True, slots=True)
class TornTail:
    offset: int
    bytes: int
    reason: str


@dataclass(slots=True)
class MachineLogReport:
    """What reading the log gave."""

    position: EntryPosition
    entries: int = 0
    damage: list[Damage] = field(default_factory=list)
    torn: TornTail | None = None
    segments: list[int] = field(default_factory=list)

    @property
    def damaged_entries(self) -> int:
        return sum(each.entries for each in self.damage)


@dataclass(frozen=True, slots=True)
class _Found:
    """Where sound entries begin again behind bad bytes, and what is known to have been synced."""

    resume: int | None
    sequence: int
    witness: int


class MachineLogReader:
    """One look at a directory of segments. Changes nothing until `repair`."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self._disk = disk
        self._directory = directory
        names = disk.list_directory(directory) if disk.is_directory(directory) else []
        self.segments = sorted(n for n in map(parse_segment_name, names) if n is not None)
        self.current = self._read_current(names)
        self._buffers: dict[int, bytes] = {}
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
        walk = _Walk(self, start or global_offset(_NEW_LOG, 0), sequence, deliver)
        last = self.segments[-1] if self.segments else _NEW_LOG
        while walk.step():
            segment = segment_of(walk.at)
            self._forget_before(segment)
            progress(min((segment - segment_of(start or 0)) / (last - segment_of(start) + 1), 1.0))
        report = walk.report(self.segments[0] if self.segments else _NEW_LOG)
        report.segments = self.segments
        return report

    def bytes_of(self, segment: int) -> bytes:
        found = self._buffers.get(segment)
        if found is None:
            file = self._disk.open(self._directory / segment_name(segment), OpenMode.READ)
            try:
                found = file.read(0, file.size())
            finally:
                file.close()
            self._buffers[segment] = found
        return found

    def has(self, segment: int) -> bool:
        return bool(self.segments) and self.segments[0] <= segment <= self.segments[-1]

    def path_of(self, segment: int) -> PurePath:
        return self._directory / segment_name(segment)

    def look_beyond(self, at: int, sequence: int) -> _Found:
        """From a bad place on: the next sound entry, and the furthest witness of all."""
        resume, found_sequence = None, 0
        witness = self._current_witness()
        segment, offset = segment_of(at), within_segment(at)
        while self.has(segment):
            buffer = self.bytes_of(segment)
            place = buffer.find(MAGIC_BYTES, offset)
            while place >= 0:
                try:
                    entry = decode_entry(buffer, place, len(buffer))
                except FormatError:
                    place = buffer.find(MAGIC_BYTES, place + 1)
                    continue
                if entry.sequence >= sequence:
                    here = global_offset(segment, place)
                    if resume is None:
                        resume, found_sequence = here, entry.sequence
                    if segment != segment_of(at):
                        witness = max(witness, global_offset(segment, 0))
                    # An entry cannot vouch for itself, nor for what comes after it.
                    witness = max(witness, min(witness_of(entry), here))
                place = buffer.find(MAGIC_BYTES, place + entry.size)
            segment, offset = segment + 1, 0
        return _Found(resume, found_sequence, witness)

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
        """CURRENT may name a first segment that the disk had no room for."""
        current = self.current
        return current is not None and current.active == segment and current.durable == 0

    def _unbroken(self, segment: int, there: set[int]) -> bool:
        return all(number in there for number in range(segment, max(there) + 1))

    def _forget_before(self, segment: int) -> None:
        for number in [number for number in self._buffers if number < segment]:
            del self._buffers[number]


class _Walk:
    """From entry to entry. Batches are held until they are whole."""

    def __init__(
        self, reader: MachineLogReader, start: int, sequence: int, deliver: Deliver
    ) -> None:
        self._reader = reader
        self._deliver = deliver
        self.at = start
        self._sequence = sequence
        self._held: list[tuple[int, Entry]] = []
        self._entries = 0
        self._damage: list[Damage] = []
        self._torn: TornTail | None = None

    def step(self) -> bool:
        """Read one segment, or up to bad bytes in it. False at the end of the log."""
        segment, offset = segment_of(self.at), within_segment(self.at)
        if not self._reader.has(segment):
            return False
        buffer = self._reader.bytes_of(segment)
        end = len(buffer)
        try:
            while buffer.startswith(MAGIC_BYTES, offset):
                entry = decode_entry(buffer, offset, end)
                if entry.sequence != self._sequence:
                    self._note_jump(entry, global_offset(segment, offset))
                self._take(global_offset(segment, offset), entry)
                offset += entry.size
        except FormatError as error:
            if is_newer(buffer, offset, end):
                raise NewerFormatError(
                    "an entry of a kind this version does not know",
                    path=self._reader.path_of(segment),
                    offset=offset,
                    advice="use the version of Headwater that wrote it",
                ) from error
            return self._bad_bytes(segment, offset, error.reason)
        self.at = global_offset(segment, offset)
        if buffer.count(0, offset) != end - offset:
            return self._bad_bytes(segment, offset, "no entry begins here")
        if self._reader.has(segment + 1):
            self.at = global_offset(segment + 1, 0)
            return True
        return self._end(segment, offset)

    def _end(self, segment: int, offset: int) -> bool:
        """Zeros from here on, and no segment behind. Whoever witnessed more has the last word."""
        found = self._reader.look_beyond(global_offset(segment, offset), self._sequence)
        if found.witness > global_offset(segment, offset):
            return self._bad_bytes(segment, offset, "entries that were synced are gone")
        if self._held:
            self._cut(self._held[0][0], "a batch does not end")
        return False

    def _take(self, place: int, entry: Entry) -> None:
        self._sequence = entry.sequence + 1
        self._held.append((place, entry))
        if not entry.more:
            self._release()

    def _release(self) -> None:
        for place, entry in self._held:
            self._deliver(place, entry)
        self._entries += len(self._held)
        self._held.clear()

    def _note_jump(self, entry: Entry, place: int) -> None:
        if entry.sequence < self._sequence:
            raise FormatError("an entry that was here before", within_segment(place))
        if self._held and not self._is_witnessed(place):
            raise FormatError("entries are missing in the middle of a batch", within_segment(place))
        if not self._is_witnessed(place):
            raise FormatError("entries are missing before this one", within_segment(place))
        missing = entry.sequence - self._sequence
        self._damage.append(Damage(place, place, missing, f"{missing} entries are missing here"))
        self._release()

    def _is_witnessed(self, place: int) -> bool:
        return self._reader.look_beyond(place, self._sequence).witness >= place

    def _bad_bytes(self, segment: int, offset: int, reason: str) -> bool:
        bad = global_offset(segment, offset)
        found = self._reader.look_beyond(bad, self._sequence)
        if found.witness <= bad:
            self._cut(self._held[0][0] if self._held else bad, reason)
            return False
        if found.resume is None or found.resume > found.witness:
            # All up to the witness is lost; what is behind it was never promised.
            lost = max((found.witness - bad) // OVERHEAD_BYTES, 1)
            self._damage.append(Damage(bad, found.witness, 1, reason))
            self._release()
            self._sequence += lost
            self._cut(found.witness, reason)
            return False
        missing = max(found.sequence - self._sequence, 1)
        self._damage.append(Damage(bad, found.resume, missing, reason))
        self._release()
        self._sequence = found.sequence
        self.at = found.resume
        return True

    def _cut(self, place: int, reason: str) -> None:
        if self._held:
            self._sequence = self._held[0][1].sequence
            self._held.clear()
        segment = segment_of(place)
        behind = len(self._reader.bytes_of(segment)[within_segment(place) :].rstrip(b"\0"))
        for later in range(segment + 1, self._reader.segments[-1] + 1):
            behind += len(self._reader.bytes_of(later).rstrip(b"\0"))
        if behind:
            self._torn = TornTail(place, behind, reason)
        self.at = place

    def report(self, oldest: int) -> MachineLogReport:
        segment, offset = segment_of(self.at), within_segment(self.at)
        length = len(self._reader.bytes_of(segment)) if self._reader.has(segment) else 0
        if offset > length:  # the segment itself was cut short: go on in a new one
            segment, offset, length = segment + 1, 0, 0
        position = EntryPosition(segment, offset, length, min(oldest, segment), self._sequence)
        return MachineLogReport(position, self._entries, self._damage, self._torn)
