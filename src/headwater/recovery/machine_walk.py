"""From entry to entry through the machines' log; `machines` says what is decided at bad bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol

from headwater.core.errors import FormatError, NewerFormatError
from headwater.format.machines.entry import (
    MAGIC_BYTES,
    OVERHEAD_BYTES,
    Entry,
    decode_entry,
    is_newer,
)
from headwater.format.machines.names import global_offset, segment_of, within_segment
from headwater.wal.entry_log import EntryPosition

Deliver = Callable[[int, Entry], None]
"""Called with each entry and its global offset, in order, whole batches only."""


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
    first_sequences: dict[int, int] = field(default_factory=dict)
    """Number of the first entry of each segment that has one."""
    last_offset: int | None = None
    """Of the newest entry that was read."""

    @property
    def damaged_entries(self) -> int:
        return sum(each.entries for each in self.damage)


@dataclass(frozen=True, slots=True)
class Found:
    """Where sound entries begin again behind bad bytes, and what is known to have been synced."""

    resume: int | None
    sequence: int
    witness: int


class Segments(Protocol):
    """What a walk needs of the files."""

    @property
    def segments(self) -> Sequence[int]: ...

    def has(self, segment: int) -> bool: ...

    def bytes_of(self, segment: int) -> bytes: ...

    def path_of(self, segment: int) -> PurePath: ...

    def look_beyond(self, at: int, sequence: int) -> Found: ...


class MachineWalk:
    """From entry to entry. Batches are held until they are whole."""

    def __init__(self, reader: Segments, start: int, sequence: int, deliver: Deliver) -> None:
        self._reader = reader
        self._deliver = deliver
        self.at = start
        self._sequence = sequence
        self._held: list[tuple[int, Entry]] = []
        self._entries = 0
        self._last: int | None = None
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
            self._last = place
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
        return MachineLogReport(
            position, self._entries, self._damage, self._torn, last_offset=self._last
        )
