"""Reading the log while it is written: plans made by the owner, carried out by any thread.

A plan ends where everything is committed when it is made, so it never sees bytes that may still
be refused. Segments may be compacted away under it; that is said, not hidden.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.disk import Disk, File, OpenMode
from headwater.format.machines.bodies import (
    ApplyEvent,
    Body,
    CreateInstance,
    DeleteInstance,
    decode_body,
)
from headwater.format.machines.entry import (
    MAGIC_BYTES,
    OVERHEAD_BYTES,
    PAYLOAD_BYTES_MAX,
    Entry,
    EntryType,
    decode_entry,
)
from headwater.format.machines.names import (
    global_offset,
    segment_name,
    segment_of,
    within_segment,
)

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


class BadStretch(NamedTuple):
    """Bytes between two entries that are no entry."""

    offset: int
    resume: int


class WalPage(NamedTuple):
    entries: list[WalEntry]
    next_offset: int
    """Where the next page begins."""
    has_more: bool
    damaged: list[BadStretch]
    gone_before: int
    """The oldest offset there still is; asked for less, the page begins here."""


class LogFiles:
    """Segments opened for one reading. Close it."""

    def __init__(self, disk: Disk, directory: PurePath, counters: ReadCounters) -> None:
        self._disk = disk
        self._directory = directory
        self._counters = counters
        self._files: dict[int, File | None] = {}

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

    def entry_at(self, place: int) -> Entry | None:
        """The entry at a place; None when its segment is gone. FormatError when it is damaged."""
        length = 4_096
        while True:
            data = self.read(segment_of(place), within_segment(place), length)
            if data is None:
                return None
            try:
                return decode_entry(data, 0, len(data))
            except FormatError:
                if len(data) < length or length >= ENTRY_BYTES_MAX:
                    raise
                length = ENTRY_BYTES_MAX

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the log is, and up to where it is committed."""

    disk: Disk
    directory: PurePath
    end: int
    oldest: int
    """The oldest segment."""
    counters: ReadCounters

    def open(self) -> LogFiles:
        return LogFiles(self.disk, self.directory, self.counters)

    def walk(self, start: int, damaged: list[BadStretch]) -> Iterator[tuple[int, Entry]]:
        """Entries from `start` on, in order; bad bytes are noted and passed over."""
        place = max(start, global_offset(self.oldest, 0))
        files = self.open()
        try:
            while place < self.end:
                segment = segment_of(place)
                last = segment == segment_of(self.end)
                stop = within_segment(self.end) if last else 1 << 40
                yield from _walk_segment(files, segment, within_segment(place), stop, damaged)
                place = global_offset(segment + 1, 0)
        finally:
            files.close()


def _walk_segment(
    files: LogFiles, segment: int, offset: int, stop: int, damaged: list[BadStretch]
) -> Iterator[tuple[int, Entry]]:
    window, bad_from = WINDOW_BYTES, -1
    while offset < stop:
        data = files.read(segment, offset, min(window, stop - offset))
        if not data:
            break
        at = 0
        whole = len(data) < window or offset + len(data) >= stop
        while at < len(data):
            try:
                entry = decode_entry(data, at, len(data))
            except FormatError:
                if not whole and len(data) - at < ENTRY_BYTES_MAX:
                    break  # perhaps only cut off by the window
                following = data.find(MAGIC_BYTES, at + 1)
                if bad_from < 0 and data[at:].strip(b"\0"):
                    bad_from = offset + at
                at = len(data) if following < 0 else following
                continue
            if bad_from >= 0:
                damaged.append(
                    BadStretch(
                        global_offset(segment, bad_from), global_offset(segment, offset + at)
                    )
                )
                bad_from = -1
            yield global_offset(segment, offset + at), entry
            at += entry.size
        window = WINDOW_BYTES if at else min(window * 8, ENTRY_BYTES_MAX)
        offset += at
    if bad_from >= 0:
        damaged.append(BadStretch(global_offset(segment, bad_from), global_offset(segment + 1, 0)))


@dataclass(frozen=True, slots=True)
class WalReadPlan:
    """Entries from an offset on, whatever they are about."""

    place: LogPlace
    start: int
    limit: int
    newest: bool = False
    """The last entries of all instead, up to the limit; `start` is not looked at."""

    def read(self) -> WalPage:
        if self.newest:
            return WalReadPlan(self.place, self._newest_start(), self.limit).read()
        entries: list[WalEntry] = []
        damaged: list[BadStretch] = []
        next_offset, has_more = max(self.start, global_offset(self.place.oldest, 0)), False
        for offset, entry in self.place.walk(self.start, damaged):
            if len(entries) == self.limit:
                next_offset, has_more = offset, True
                break
            entries.append(WalEntry(offset, entry.sequence, entry.kind, entry.payload))
            next_offset = offset + entry.size
        else:
            next_offset = max(next_offset, self.place.end)
        gone_before = global_offset(self.place.oldest, 0)
        return WalPage(entries, next_offset, has_more, damaged, gone_before)

    def _newest_start(self) -> int:
        """Where the last entries begin: a segment says where its own are only by being read."""
        place, found = self.place, deque[int]()
        for segment in range(segment_of(place.end), place.oldest - 1, -1):
            offsets = deque[int](maxlen=self.limit - len(found))
            upper = min(place.end, global_offset(segment + 1, 0))
            part = replace(place, oldest=segment, end=upper)
            for offset, _ in part.walk(global_offset(segment, 0), []):
                offsets.append(offset)
            found.extendleft(reversed(offsets))
            if len(found) >= self.limit:
                break
        return found[0] if found else place.end


class HistoryEntry(NamedTuple):
    offset: int
    sequence: int
    body: CreateInstance | ApplyEvent | DeleteInstance


class History(NamedTuple):
    entries: list[HistoryEntry]
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

    place: LogPlace
    last_offset: int
    limit: int
    doubtful: bool

    def read(self) -> History:
        found: list[HistoryEntry] = []
        offset = self.last_offset
        gone: int | None = None
        damaged: int | None = None
        files = self.place.open()
        try:
            while offset and len(found) < self.limit:
                try:
                    entry = files.entry_at(offset)
                    body = None if entry is None else decode_body(entry)
                except FormatError:
                    damaged = offset
                    break
                if entry is None or not isinstance(body, _OF_AN_INSTANCE):
                    gone = global_offset(segment_of(offset) + 1, 0)
                    break
                found.append(HistoryEntry(offset, entry.sequence, body))
                offset = 0 if isinstance(body, CreateInstance) else body.previous
        finally:
            files.close()
        found.reverse()
        complete = bool(found) and isinstance(found[0].body, CreateInstance)
        return History(found, complete, gone, damaged, self.doubtful)


_OF_AN_INSTANCE: Final = (CreateInstance, ApplyEvent, DeleteInstance)


def body_of(entry: Entry) -> Body | None:
    """None for a sound entry whose JSON is none; it is passed over."""
    try:
        return decode_body(entry)
    except FormatError:
        return None
