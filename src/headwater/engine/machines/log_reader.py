"""Reading the log while it is written: plans made by the owner, carried out by any thread.

A plan ends where everything is committed when it is made, so it never sees bytes that may still
be refused. Segments may be compacted away under it; that is said, not hidden.

Entries are numbered without gaps, so a walk knows what it could not read whatever the cause: bytes
that are no entry, a segment that is gone, a stretch of zeros, an end that comes too early. Each is
a `LogGap` between the entries around it (I9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.disk import Disk, File, OpenMode
from headwater.format.machines.bodies import (
    Body,
    CreateInstanceEntry,
    InstanceBody,
    decode_body,
)
from headwater.format.machines.entry import (
    MAGIC_BYTES,
    OVERHEAD_BYTES,
    PAYLOAD_BYTES_MAX,
    EntryType,
    MachineEntry,
    decode_entry,
)
from headwater.format.machines.history import HistoryFile
from headwater.format.machines.names import (
    HISTORY_DIRECTORY,
    global_offset,
    history_name,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.recovery.history.machines import entry_before

WINDOW_BYTES: Final = 256 * 1024
ENTRY_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES


@dataclass(slots=True)
class ReadCounters:
    reads: int = 0
    bytes_read: int = 0


class WalEntry(NamedTuple):
    offset: int
    sequence: int
    kind: EntryType
    payload: bytes
    """JSON."""


class GapReason(Enum):
    """Why a reader does not get what is in a range of the log."""

    COMPACTED = "compacted"
    """It was deleted, in good order, before it was read."""
    DAMAGED = "damaged"
    """It cannot be read any more."""
    BEHIND = "behind"
    """It did not fit into a slow watcher's buffer; it is in the log."""


class LogGap(NamedTuple):
    """What a walk could not read: from `offset` up to `resume`."""

    offset: int
    resume: int
    reason: GapReason


class WalPage(NamedTuple):
    entries: list[WalEntry]
    next_offset: int
    """Where the next page begins."""
    has_more: bool
    damaged: list[LogGap]
    gone_before: int
    """The oldest offset there still is; a page requested from before it begins here."""


class LogFiles:
    """Segments opened for one reading. Close it."""

    def __init__(self, disk: Disk, directory: PurePath, counters: ReadCounters) -> None:
        self._disk = disk
        self._directory = directory
        self._counters = counters
        self._files: dict[int, File | None] = {}
        self._kept: dict[int, HistoryFile | None] = {}
        self._kept_files: list[File] = []

    def read(self, segment: int, offset: int, length: int) -> bytes | None:
        """None when the segment is gone."""
        if segment not in self._files:
            path = self._directory / segment_name(segment)
            try:
                self._files[segment] = self._disk.open(path, OpenMode.READ)
            except FileNotFoundError:
                self._files[segment] = None
        file = self._files[segment]
        if file is None:
            return None
        data = file.read(offset, length)
        self._counters.reads += 1
        self._counters.bytes_read += len(data)
        return data

    def entry_at(self, offset: int) -> MachineEntry | None:
        """The entry at an offset; None when its segment is gone. FormatError when it is damaged."""
        length = 4_096
        while True:
            data = self.read(segment_of(offset), within_segment(offset), length)
            if data is None:
                return None
            try:
                return decode_entry(data, 0, len(data))
            except FormatError:
                if len(data) < length or length >= ENTRY_BYTES_MAX:
                    raise
                length = ENTRY_BYTES_MAX

    def kept_entry_at(self, offset: int) -> MachineEntry | None:
        """An entry of a segment that is gone, if compaction kept it. FormatError: damaged."""
        segment = segment_of(offset)
        if segment not in self._kept:
            self._kept[segment] = self._open_kept(segment)
        kept = self._kept[segment]
        return None if kept is None else kept.entry_at(within_segment(offset))

    def _open_kept(self, segment: int) -> HistoryFile | None:
        path = self._directory.parent / HISTORY_DIRECTORY / history_name(segment)
        try:
            file = self._disk.open(path, OpenMode.READ)
        except FileNotFoundError:
            return None
        self._kept_files.append(file)
        return HistoryFile(file.read, file.size(), segment)

    def begins_entry(self, offset: int) -> bool:
        """Cheaper than to read the entry: false for nearly all offsets where none begins."""
        begin = self.read(segment_of(offset), within_segment(offset), len(MAGIC_BYTES))
        return begin == MAGIC_BYTES

    def sound_entry_at(self, offset: int) -> MachineEntry | None:
        """None when there is none, for whatever reason."""
        try:
            return self.entry_at(offset) if self.begins_entry(offset) else None
        except FormatError:
            return None

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()
        for kept in self._kept_files:
            kept.close()
        self._kept_files.clear()


@dataclass(frozen=True, slots=True)
class CommittedLog:
    """Where the log is, and up to where it is committed."""

    disk: Disk
    directory: PurePath
    end: int
    sequence: int
    """The number of the entry that comes after the end."""
    oldest: int
    """The oldest segment."""
    oldest_now: Callable[[], int]
    """The same, at any later moment."""
    first_sequences: Mapping[int, int]
    """The number of the first entry of a segment, where it is known."""
    counters: ReadCounters

    def open(self) -> LogFiles:
        return LogFiles(self.disk, self.directory, self.counters)

    @property
    def begin(self) -> int:
        """The oldest offset there still is."""
        return global_offset(self.oldest, 0)

    def only(self, segment: int) -> CommittedLog:
        """The same, but of one segment."""
        following = global_offset(segment + 1, 0)
        if self.end <= following:
            return replace(self, oldest=segment)
        sequence = self.first_sequences.get(segment + 1, self.sequence)
        return replace(self, oldest=segment, end=following, sequence=sequence)

    def why_missing(self, offset: int) -> GapReason:
        """Why a segment is not there. Compaction moves `oldest_now` before it deletes."""
        gone = segment_of(offset) < self.oldest_now()
        return GapReason.COMPACTED if gone else GapReason.DAMAGED

    def walk(self, start: int, gaps: list[LogGap]) -> Iterator[tuple[int, MachineEntry]]:
        """Entries from `start` on, in order; what cannot be read is noted before what follows it.
        `start` may be anywhere; 0 begins with the oldest."""
        files = self.open()
        try:
            yield from _Walk(self, files, start, gaps).run()
        finally:
            files.close()


class _Walk:
    """One walk: where it is, and which number comes next."""

    def __init__(self, log: CommittedLog, files: LogFiles, start: int, gaps: list[LogGap]) -> None:
        self._log = log
        self._files = files
        self._start = max(start, log.begin)
        self._gaps = gaps
        self._read_upto = self._start
        """Everything before this offset was read, or is in a gap."""
        self._sequence: int | None = None
        """What the next entry's number must be; None while that is not known."""
        self._is_after_entry = False
        """The number is that of an entry which was read, not what was known at the start."""
        self._gap_reason: GapReason | None = None
        """What stands between the last entry and here."""
        if 0 < start < self._start:
            gaps.append(LogGap(start, self._start, GapReason.COMPACTED))

    def run(self) -> Iterator[tuple[int, MachineEntry]]:
        end = self._log.end
        at = self._first_offset() if self._start < end else end
        while at < end:
            segment = segment_of(at)
            stop = within_segment(end) if segment == segment_of(end) else 1 << 40
            yield from self._segment(segment, within_segment(at), stop)
            at = global_offset(segment + 1, 0)
        if self._read_upto < end:
            self._note_gap(self._log.sequence, end)

    def _first_offset(self) -> int:
        """Where to begin, so that nothing behind `start` is overlooked. Who has read an entry
        begins one behind its first byte."""
        start, files = self._start, self._files
        if within_segment(start):
            if files.sound_entry_at(start) is not None:
                return start
            before = files.sound_entry_at(start - 1)
            if before is not None:
                self._note_read(start - 1, before)
                return self._read_upto
        # The segment is read from its beginning: only so it is known where entries begin.
        segment = segment_of(start)
        self._sequence = self._log.first_sequences.get(segment)
        return global_offset(segment, 0)

    def _segment(self, segment: int, offset: int, stop: int) -> Iterator[tuple[int, MachineEntry]]:
        window = WINDOW_BYTES
        while offset < stop:
            data = self._files.read(segment, offset, min(window, stop - offset))
            if data is None:
                self._gap_reason = self._gap_reason or self._log.why_missing(
                    global_offset(segment, 0)
                )
            if not data:
                return
            at = 0
            whole = len(data) < window or offset + len(data) >= stop
            while at < len(data):
                try:
                    entry = decode_entry(data, at, len(data))
                except FormatError:
                    if not whole and len(data) - at < ENTRY_BYTES_MAX:
                        break  # perhaps only cut off by the window
                    following = data.find(MAGIC_BYTES, at + 1)
                    if self._gap_reason is None and data[at:].strip(b"\0"):
                        self._gap_reason = GapReason.DAMAGED
                    at = len(data) if following < 0 else following
                    continue
                here = global_offset(segment, offset + at)
                at += entry.size
                if self._take(here, entry):
                    yield here, entry
            window = WINDOW_BYTES if at else min(window * 8, ENTRY_BYTES_MAX)
            offset += at

    def _take(self, here: int, entry: MachineEntry) -> bool:
        """False for an entry that is passed over: it lies before the start, or was here before."""
        if self._sequence is not None and entry.sequence < self._sequence and self._is_after_entry:
            return False
        self._note_gap(entry.sequence, here)
        self._note_read(here, entry)
        return here >= self._start

    def _note_read(self, here: int, entry: MachineEntry) -> None:
        self._sequence, self._is_after_entry = entry.sequence + 1, True
        self._read_upto = max(self._read_upto, here + entry.size)

    def _note_gap(self, sequence: int, upto: int) -> None:
        """Here is the entry of this number, or the end: was anything before it not read?"""
        reason, self._gap_reason = self._gap_reason, None
        missing = self._sequence is not None and sequence != self._sequence
        if reason is not None and not self._is_after_entry:
            missing = True
        if missing and upto > self._read_upto:
            self._gaps.append(LogGap(self._read_upto, upto, reason or GapReason.DAMAGED))


@dataclass(frozen=True, slots=True)
class WalReadPlan:
    """Entries from an offset on, whatever they are about."""

    log: CommittedLog
    start: int
    limit: int
    newest: bool = False
    """The last entries of all instead, up to the limit; `start` is ignored."""
    bytes_max: int | None = None
    """Of JSON in one page; an entry that is longer by itself is a page."""

    def read(self) -> WalPage:
        if self.newest:
            return replace(self, start=self._newest_start(), newest=False).read()
        entries: list[WalEntry] = []
        gaps: list[LogGap] = []
        gone_before = self.log.begin
        next_offset, has_more = max(self.start, gone_before), False
        room = self.bytes_max
        for offset, entry in self.log.walk(self.start, gaps):
            if room is not None:
                room -= len(entry.payload)
            if len(entries) == self.limit or (room is not None and room < 0 and entries):
                next_offset, has_more = offset, True
                break
            entries.append(WalEntry(offset, entry.sequence, entry.kind, entry.payload))
            next_offset = offset + entry.size
        else:
            next_offset = max(next_offset, self.log.end)
        damaged = [gap for gap in gaps if gap.offset >= gone_before]
        return WalPage(entries, next_offset, has_more, damaged, gone_before)

    def _newest_start(self) -> int:
        """Where the last entries begin: the entries of a segment are known only by reading it."""
        log, newest = self.log, deque[int]()
        for segment in range(segment_of(log.end), log.oldest - 1, -1):
            offsets = deque[int](maxlen=self.limit - len(newest))
            for offset, _ in log.only(segment).walk(global_offset(segment, 0), []):
                offsets.append(offset)
            newest.extendleft(reversed(offsets))
            if len(newest) >= self.limit:
                break
        return newest[0] if newest else log.end


class InstanceHistoryEntry(NamedTuple):
    offset: int
    sequence: int
    body: InstanceBody


class History(NamedTuple):
    entries: list[InstanceHistoryEntry]
    """Oldest first."""
    complete: bool
    """True when the first one is the creation."""
    gone_before: int | None
    """Entries before this offset were compacted away."""
    damaged_at: int | None
    """Where an entry of the instance could not be read; what is older is not shown."""
    doubtful: bool
    """An entry about this instance was lost, or may have been."""


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """One instance's entries, newest first on the way, each telling where the one before is."""

    log: CommittedLog
    last_offset: int
    limit: int
    doubtful: bool
    kept_max: int = 0
    """Of what the log has no more, so much is shown that they are this many in all."""

    def read(self) -> History:
        entries: list[InstanceHistoryEntry] = []
        offset = self.last_offset
        gone: int | None = None
        damaged: int | None = None
        files = self.log.open()
        try:
            while offset and len(entries) < self.limit:
                try:
                    entry = files.entry_at(offset)
                    if entry is None and len(entries) < self.kept_max:
                        entry = files.kept_entry_at(offset)
                    body = None if entry is None else decode_body(entry)
                except FormatError:
                    damaged = offset
                    break
                if entry is None and self.log.why_missing(offset) is GapReason.DAMAGED:
                    damaged = offset
                    break
                if entry is None or not isinstance(body, InstanceBody):
                    gone = (
                        entries[-1].offset if entries else global_offset(segment_of(offset) + 1, 0)
                    )
                    break
                entries.append(InstanceHistoryEntry(offset, entry.sequence, body))
                offset = entry_before(body)
        finally:
            files.close()
        entries.reverse()
        complete = bool(entries) and isinstance(entries[0].body, CreateInstanceEntry)
        return History(entries, complete, gone, damaged, self.doubtful)


def body_of(entry: MachineEntry) -> Body | None:
    """None for a sound entry whose JSON is none; it is passed over."""
    try:
        return decode_body(entry)
    except FormatError:
        return None
