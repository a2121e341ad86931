"""The Kafka dialect: record batches of all topics in one `.log`, their entries in one `.oidx`.

Both files grow ahead of what is written, by zeros, so that a sync needs no work on the file
system's journal and a full disk shows before anything is written. Zeros mean end. A full segment is
synced, cut to its length and synced again before the next one gets its names, so every segment
but the last is whole.

Now and then a group begins with an event of the log's own, which says how much of the segment was
synced before. It is written with the group, so it costs no write, no sync and no wake-up.

Keeps I5 (what may be cut is only ever behind the last sync), I12.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

from headwater.config.kafka import KafkaSettings
from headwater.core.clock import Clock
from headwater.core.durability import Durability
from headwater.core.errors import StorageError, SyncError
from headwater.core.units import KIB, US_PER_MS
from headwater.disk import (
    NO_ROOM,
    Disk,
    OpenMode,
    sync_names,
    sync_together,
)
from headwater.format.checksum import RunningChecksum
from headwater.format.kafka.checkpoint import SegmentMeta
from headwater.format.kafka.entry import ENTRY_BYTES, PREFIX_BYTES, pack_entries
from headwater.format.kafka.events import INTERNAL_KEY, AnyEvent, SegmentBegun, Synced, encode_event
from headwater.format.kafka.names import index_name, log_name
from headwater.wal.counters import WalCounters
from headwater.wal.file_room import GrowingFile
from headwater.wal.ticket import Ticket

JOINED_BYTES_MAX: Final = 4 * KIB
"""Bodies that are shorter than this, as they come, are joined before they are written: the copy
costs less than a vector of them."""


class BatchAddress(NamedTuple):
    """Whose records a batch of a ticket has."""

    entry_key: bytes
    size: int
    """Of the batch in the ticket, with the prefix."""
    records: int


class KeyedBatches(Protocol):
    """What a ticket's context tells this log."""

    @property
    def batches(self) -> Iterable[BatchAddress]:
        """Of the ticket, in the order of its body."""


class _Own:
    """The context of a ticket that is the log's own."""

    def __init__(self, size: int) -> None:
        self.batches = (BatchAddress(INTERNAL_KEY, size, 1),)


@dataclass(slots=True)
class _ActiveSegment:
    number: int
    base_id: int
    log: GrowingFile
    index: GrowingFile
    checksum: RunningChecksum
    witnessed_us: int
    witnessed_end: int = 0
    """Bytes of the log that the last event, or the start, says were synced."""

    @property
    def synced_entries(self) -> int:
        """Entries that are on stable storage, with their batches."""
        return self.index.synced_end // ENTRY_BYTES

    def files(self) -> tuple[GrowingFile, GrowingFile]:
        return self.log, self.index

    def sync(self) -> None:
        """Both files. Entries may be on stable storage before their batches are, as they may be
        whenever the kernel writes by itself: no answer names either before both are."""
        log, index = self.files()
        if log.synced_end == log.end or index.synced_end == index.end:
            log.sync()
            index.sync()
            return
        ends = log.end, index.end
        sync_together(log.file, index.file)
        log.synced_end, index.synced_end = ends

    def make_room(self, log_bytes: int, index_bytes: int, *, essential: bool) -> None:
        self.log.make_room(log_bytes, essential=essential)
        self.index.make_room(index_bytes, essential=essential)

    def meta(self) -> SegmentMeta:
        return SegmentMeta(
            self.number,
            self.base_id,
            self.index.end // ENTRY_BYTES,
            self.log.end,
            self.checksum.value(),
            self.number,
        )


class BatchLog:
    """The files of the shared log. Used by one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: KafkaSettings,
        clock: Clock,
        counters: WalCounters,
        take_number: Callable[[], int],
        on_sealed: Callable[[SegmentMeta, int], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._take_number = take_number
        self._on_sealed = on_sealed
        self._on_idle = on_idle
        self._segment: _ActiveSegment | None = None
        self._closed_meta: SegmentMeta | None = None
        self._failed_sync: SyncError | None = None
        self._saved: SegmentMeta | None = None

    @property
    def name(self) -> str:
        return str(self._directory)

    def go_on(self, segment: SegmentMeta, checksum: RunningChecksum) -> None:
        """Write behind what recovery found, which is synced and where both files end."""
        number = segment.number
        self._segment = self._open(number, OpenMode.UPDATE, segment.base_id, checksum)
        self._segment.log.end = self._segment.log.synced_end = segment.log_bytes
        self._segment.witnessed_end = segment.log_bytes
        end = segment.entries * ENTRY_BYTES
        self._segment.index.end = self._segment.index.synced_end = end

    def begin(self, base_id: int) -> SegmentMeta:
        """Make the first segment."""
        self._segment = self._create(base_id)
        return self._segment.meta()

    def write_group(self, tickets: Sequence[Ticket], *, essential: bool) -> int:
        self._refuse_after_a_failed_sync()
        size = sum([len(ticket.body) for ticket in tickets])
        segment = self._segment_for(size)
        event = None if essential else self._own_event(segment, size)
        if event is not None:
            tickets = [event, *tickets]
            size += len(event.body)
        bodies = [ticket.body for ticket in tickets]
        if size < len(bodies) * JOINED_BYTES_MAX:
            bodies = [b"".join(bodies)]
        records = sum([ticket.frame_count for ticket in tickets])
        segment.make_room(size, records * ENTRY_BYTES, essential=essential)
        number, offset = segment.number, segment.log.end
        frame = segment.base_id + segment.index.end // ENTRY_BYTES
        parts: list[bytes] = []
        for ticket in tickets:
            context: KeyedBatches = ticket.context
            for key, length, count in context.batches:
                parts.append(pack_entries(number, offset, length - PREFIX_BYTES, key, count))
                offset += length
            frame += ticket.frame_count
            ticket.last_frame = frame
        entries = b"".join(parts)
        ends = segment.log.end, segment.index.end
        try:
            segment.log.append(bodies)
            segment.index.append([entries])
        except OSError as error:
            if error.errno in NO_ROOM:
                self._take_back(segment, *ends)
            raise
        segment.checksum.update(entries)
        if event is not None:
            segment.witnessed_end = segment.log.synced_end
            segment.witnessed_us = self._clock.monotonic_us()
        return size + len(entries)

    def sync(self) -> None:
        self._refuse_after_a_failed_sync()
        segment = self._active()
        try:
            segment.sync()
        except SyncError as error:
            self._failed_sync = error
            raise

    def _refuse_after_a_failed_sync(self) -> None:
        """A checkpoint syncs too, outside of any group: the next group must not succeed either."""
        if self._failed_sync is not None:
            raise self._failed_sync

    def witness(self, *, clean_stop: bool) -> None:
        self.sync()
        if clean_stop:
            for file in self._active().files():
                file.trim()
        else:
            self._on_idle()

    def make_room(self) -> None:
        settings, segment = self._settings, self._segment_for(PREFIX_BYTES)
        # As much as the files grow by: what is left of their room let a small group in and the
        # next one not, and the log would be full and not full by turns.
        sizes = settings.log_ahead_bytes, settings.index_ahead_bytes
        segment.make_room(*sizes, essential=False)

    def synced_meta(self) -> SegmentMeta:
        """Sync, and say how far the active segment is. On the log's thread, or after `close`."""
        if self._closed_meta is not None:
            return self._closed_meta
        self.sync()
        return self._active().meta()

    def seal(self, number: int) -> bool:
        """End the active segment before it is full, if it is this one. On the log's thread."""
        self._refuse_after_a_failed_sync()
        if self._active().number != number or not self._active().log.end:
            return False
        try:
            self._rotate()
        except SyncError as error:
            self._failed_sync = error
            raise
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._rotate(roomy=False)  # what is given back then makes room for it
        return True

    def note_saved(self, segment: SegmentMeta) -> None:
        """A checkpoint covers this much from now on. Called on any thread."""
        self._saved = segment

    def close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            self._closed_meta = segment.meta()
            for file in segment.files():
                file.file.close()

    def _active(self) -> _ActiveSegment:
        assert self._segment is not None, "begin() or go_on() comes first"
        return self._segment

    def _segment_for(self, log_bytes: int) -> _ActiveSegment:
        """The segment that takes so many bytes more, a new one when the old one is full."""
        segment = self._active()
        if segment.log.end and segment.log.end + log_bytes > self._settings.segment_bytes:
            segment = self._rotate()
        return segment

    def _own_event(self, segment: _ActiveSegment, size: int) -> Ticket | None:
        """What the log itself has to say before a group of this size."""
        event: AnyEvent | None
        if segment.index.end == 0 and segment.base_id:
            event = SegmentBegun(segment.base_id)
        else:
            event = self._synced_event(segment)
        if event is None:
            return None
        batch = encode_event(event, self._clock.wall_ms())
        body = len(batch).to_bytes(PREFIX_BYTES, "little") + batch
        if segment.log.end and segment.log.end + len(body) + size > self._settings.segment_bytes:
            return None  # the next group begins a segment, and then this one is whole
        return Ticket(body, 1, Durability.DISK, context=_Own(len(body)))

    def _synced_event(self, segment: _ActiveSegment) -> Synced | None:
        """How far we synced, when it is time to say so.

        Only what a sync that returned has covered: of everything later a crash may take any part
        and leave this event.
        """
        settings, saved = self._settings, self._saved
        witnessed = segment.witnessed_end
        if saved is not None and saved.number == segment.number:
            witnessed = max(witnessed, saved.log_bytes)
        unwitnessed = segment.log.synced_end - witnessed
        if unwitnessed <= 0:
            return None
        if unwitnessed < settings.synced_event_bytes:
            due_us = segment.witnessed_us + settings.synced_event_interval_ms * US_PER_MS
            if self._clock.monotonic_us() < due_us:
                return None
        return Synced(segment.synced_entries)

    def _take_back(self, segment: _ActiveSegment, log_end: int, index_end: int) -> None:
        """A file system that finds no room only now: none of the group may ever be seen."""
        try:
            segment.index.cut(index_end)
            segment.log.cut(log_end)
        except OSError as error:
            raise StorageError(
                f"a refused group cannot be taken back: {error.strerror}", path=self.name
            ) from error

    def _rotate(self, *, roomy: bool = True) -> _ActiveSegment:
        old = self._active()
        self.sync()
        for file in old.files():
            file.trim()
        meta = old.meta()
        new = self._create(meta.base_id + meta.entries, roomy=roomy)
        self._segment = new
        self._counters.rotations += 1
        self._on_sealed(meta, new.number)
        for file in old.files():
            file.file.close()
        return new

    def _create(self, base_id: int, *, roomy: bool = True) -> _ActiveSegment:
        """A new segment whose names are durable, or an OSError and no trace of it."""
        number = self._take_number()
        try:
            segment = self._open(number, OpenMode.CREATE, base_id, RunningChecksum())
            for file in segment.files():
                file.make_room(0, essential=not roomy)
        except OSError:
            for name in (log_name(number), index_name(number)):
                with contextlib.suppress(OSError):
                    self._disk.unlink(self._directory / name)
            raise
        sync_names(self._disk, self._directory)
        return segment

    def _open(
        self, number: int, mode: OpenMode, base_id: int, checksum: RunningChecksum
    ) -> _ActiveSegment:
        settings = self._settings
        log = self._disk.open(self._directory / log_name(number), mode)
        index = self._disk.open(self._directory / index_name(number), mode)
        reserve = settings.reserve_bytes
        return _ActiveSegment(
            number,
            base_id,
            GrowingFile(log, 0, settings.log_ahead_bytes, reserve),
            GrowingFile(index, 0, settings.index_ahead_bytes, reserve),
            checksum,
            self._clock.monotonic_us(),
        )
