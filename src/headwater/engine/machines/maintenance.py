"""Periodic work of machines: expiry, forgetting keys, compaction, deleting old files.

Compaction is a snapshot, the offset that is safe with it, and segments wholly before it deleted.
The maintenance thread does it, or the thread of a caller who requests it; never the owner. Only
capturing and noting run as the owner, and are short.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

from headwater.api.machine_requests import DeleteInstance, NoteSnapshot
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError, UnavailableError
from headwater.core.units import US_PER_MS
from headwater.disk import Disk
from headwater.engine.machines.answers import Compacted
from headwater.engine.machines.book import Book
from headwater.engine.machines.snapshots import Captured, SnapshotFiles
from headwater.engine.owner import Owner
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.format.machines.names import global_offset, segment_of, within_segment
from headwater.format.machines.snapshot import SnapshotHeading
from headwater.model.retention import MACHINES_LOG
from headwater.wal.committer import LogState
from headwater.wal.shard import Shard

EXPIRED_PER_ROUND: Final = 1_000
PRUNE_INTERVAL_MS: Final = 60_000


class Compactor:
    def __init__(
        self,
        disk: Disk,
        files: SnapshotFiles,
        book: Book,
        shard: Shard,
        owner: Owner,
        clock: Clock,
        settings: CompactionSettings,
        damaged_entries: int,
        holds: RetentionHolds,
    ) -> None:
        self._disk = disk
        self._files = files
        self._book = book
        self._shard = shard
        self._owner = owner
        self._clock = clock
        self._settings = settings
        self._damaged_entries = damaged_entries
        self._one_at_a_time = threading.Lock()
        self._last_us: int | None = clock.monotonic_us()
        """Since when the interval counts; None when the next need not wait for it."""
        self._snapshot_sequence = book.committed_sequence
        self._snapshot_offset = book.committed_offset
        self._unneeded_offset = 0
        """Before this offset a start did not need the log any more, at the last compaction."""
        self._snapshot: SnapshotHeading | None = None
        """The newest that is known to be whole."""
        self._holds = holds
        self.before_release: Callable[[int], None] | None = None
        """Called with the first segment that is not deleted, before any is."""
        self.count = 0
        self.error: Exception | None = None
        """Why the last one failed; None after a good one."""

    def started_from(self, heading: SnapshotHeading | None) -> None:
        """The snapshot this start began with; without one it was the log's first entry."""
        self._snapshot = heading
        self._snapshot_sequence = 1 if heading is None else heading.sequence
        self._snapshot_offset = global_offset(1, 0) if heading is None else heading.wal_offset
        if self._events() >= self._settings.events_threshold:
            # A process that is killed over and over, sooner than the interval is over, would have
            # more to replay each time.
            self._last_us = None

    def is_due(self) -> bool:
        """By events or by size, and not too often. As the owner."""
        settings = self._settings
        if not settings.enabled:
            return False
        if self._last_us is not None:
            passed_us = self._clock.monotonic_us() - self._last_us
            if passed_us < settings.min_interval_ms * US_PER_MS:
                return False
        events = self._events()
        return events >= settings.events_threshold or (
            events > 0 and self._log_bytes() >= settings.size_threshold_bytes
        )

    def _events(self) -> int:
        """Since the last snapshot, by this process or one before it."""
        return self._book.committed_sequence - self._snapshot_sequence

    def _log_bytes(self) -> int:
        """Since the last snapshot, by this process or one before it."""
        return self._bytes_between(self._snapshot_offset, self._book.committed_offset)

    def _bytes_between(self, begin: int, end: int) -> int:
        segments = segment_of(end) - segment_of(begin)
        return segments * self._book.segment_bytes + within_segment(end) - within_segment(begin)

    def compact(self) -> Compacted:
        """Not for the owner's own thread."""
        with self._one_at_a_time:
            try:
                done = self._compact()
                self.error = None
                return done
            except Exception as error:
                self.error = error
                raise
            finally:
                # Also when it failed: where there is no room for a snapshot, one is not written
                # over and over.
                self._last_us = self._clock.monotonic_us()

    def _compact(self) -> Compacted:
        captured = self._owner.call(self._capture)
        # What the snapshot covers must be in the log for good: a power loss must not leave a log
        # that ends before the snapshot does.
        self._sync()
        before = self._snapshot
        written = self._files.write(captured, before)
        heading = written.heading
        self._owner.call(lambda: self._note(heading.file, heading.wal_offset))
        self._snapshot = heading
        # The log from the snapshot before on stays: should the new one go bad, a start begins
        # there. Without one before, that is all of it.
        offset = self._held_at(0 if before is None else before.wal_offset)
        if self.before_release is not None:
            self.before_release(segment_of(offset))
        deleted = self._release(offset)
        self._snapshot_sequence, self._snapshot_offset = captured.sequence, captured.wal_offset
        self.count += 1
        return Compacted(
            heading.file, heading.wal_offset, heading.instance_count, written.bytes, deleted,
            deleted * self._book.segment_bytes,
        )  # fmt: skip

    def _held_at(self, offset: int) -> int:
        """What is before this offset is in a snapshot, and no consumer needs it any more."""
        self._unneeded_offset = offset
        self._holds.save(MACHINES_LOG)
        floor = self._holds.floor(MACHINES_LOG, self)
        return offset if floor is None else min(offset, floor)

    def held_bytes(self, position: int) -> int:
        """Of segments that a snapshot made unnecessary, and that are still there from a position
        on."""
        first = max(segment_of(position), self._book.oldest_segment)
        return max(0, segment_of(self._unneeded_offset) - first) * self._book.segment_bytes

    def behind_bytes(self, position: int) -> int:
        """Of log, from a position to its end."""
        return max(0, self._bytes_between(position, self._book.committed_offset))

    def _sync(self) -> None:
        log = self._book.log
        assert log is not None
        self._shard.call(log.sync).result()
        poison = self._shard.poison
        if poison is not None:
            raise poison

    def _capture(self) -> Captured:
        book, tables = self._book, self._book.tables
        return Captured(
            [each for versions in tables.machines.values() for each in versions.values()],
            list(tables.instances.values()),
            list(tables.keys.values()),
            list(tables.retired_ids),
            book.committed_offset,
            book.committed_sequence,
            self._clock.wall_ms(),
            tables.doubt_before,
            self._damaged_entries,
        )

    def _note(self, name: str, wal_offset: int) -> None:
        # It is for readers of the log; the snapshot counts without it, also on a full disk.
        with contextlib.suppress(UnavailableError):
            self._book.submit([NoteSnapshot(name, wal_offset)], essential=True)

    def _release(self, offset: int) -> int:
        log = self._book.log
        assert log is not None
        segment = segment_of(offset)
        paths = self._shard.call(lambda: log.release_before(segment)).result()
        if paths:
            # First, so that a reader who misses a file knows that it was not lost.
            self._owner.call(lambda: self._forget(segment))
        for path in paths:
            self._disk.unlink(path)
        if paths:
            self._disk.sync_directory(paths[0].parent)
        return len(paths)

    def _forget(self, segment: int) -> None:
        self._book.oldest_segment = max(self._book.oldest_segment, segment)
        for number in [number for number in self._book.first_sequence if number < segment]:
            del self._book.first_sequence[number]


class MachineMaintenance:
    def __init__(
        self,
        book: Book,
        compactor: Compactor,
        files: SnapshotFiles,
        owner: Owner,
        clock: Clock,
        settings: MachineSettings,
    ) -> None:
        self._book = book
        self._compactor = compactor
        self._files = files
        self._owner = owner
        self._clock = clock
        self._pruned_us: int | None = None
        self._settings = settings

    def round(self) -> None:
        """On the maintenance thread."""
        while self._owner.call(self._expire) == EXPIRED_PER_ROUND:
            continue
        if self._owner.call(self._compactor.is_due) and not self._is_poisoned():
            self._compactor.compact()
        self._prune()

    def _prune(self) -> None:
        """Snapshots of single instances that are too old or too many."""
        now_us = self._clock.monotonic_us()
        last_us = self._pruned_us
        if last_us is not None and now_us - last_us < PRUNE_INTERVAL_MS * US_PER_MS:
            return
        self._pruned_us = now_us
        settings = self._settings
        age_ms = settings.instance_snapshots_age_ms
        before_ms = self._owner.call(self._book.now_ms) - age_ms if age_ms else 0
        self._files.prune_instances(settings.instance_snapshots_max, before_ms)

    def _is_poisoned(self) -> bool:
        """A full disk is no reason to wait: compaction makes room."""
        return self._book.shard is None or self._book.shard.state is LogState.POISONED

    def _expire(self) -> int:
        book = self._book
        now_ms = book.now_ms()
        book.tables.forget_keys(now_ms - self._settings.idempotency_window_ms)
        names = book.tables.expired(now_ms, EXPIRED_PER_ROUND)
        for index, name in enumerate(names):
            try:
                book.submit([DeleteInstance(name, reason="ttl")], essential=True)
            except HeadwaterError:  # full, or many writes under way: the next round tries again
                for left in names[index:]:
                    book.tables.expire_again(left)
                return 0
        return len(names)
