"""The machine dialect: entries at offsets their owner chose, in segments made ahead.

A ticket says where its first byte goes, because answers name the offset before it is written. The
log checks that offsets follow each other without a gap; what goes behind a refused ticket is
refused too, so nothing is ever written after a hole.

Order at the border of two segments, each step durable before the next: old segment synced; new
segment under its name; directory synced; CURRENT replaced; first entry. All segments a group needs
are made before any of it is written, so a full disk is found out with nothing half done (I12).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from headwater.core.durability import Durability
from headwater.core.errors import InvariantError, StorageError
from headwater.disk import (
    NO_ROOM,
    Disk,
    File,
    OpenMode,
    replace_file,
    sync_file,
    sync_names,
    write_all,
)
from headwater.format.machines.current import MachineCurrent, encode_machine_current
from headwater.format.machines.names import (
    global_offset,
    parse_segment_name,
    segment_name,
    segment_of,
)
from headwater.format.names import CURRENT_NAME
from headwater.wal.counters import WalCounters
from headwater.wal.file_room import PreparedFile
from headwater.wal.ticket import Ticket, writers_of

RequestPreparation = Callable[[PreparedFile], None]
_ESSENTIAL_ONLY: Final = "behind a write that found no room"


class EntryTicket(Ticket):
    """Entries that go into the log together, and where."""

    def __init__(
        self,
        body: bytes,
        entries: int,
        offset: int,
        *,
        essential: bool = False,
        context: Any = None,
    ) -> None:
        # As its base does, without a call for it: there is one of these for each event.
        self.body = body
        self.frame_count = entries
        self.durability = Durability.FSYNC
        self.essential = essential
        self.context = context
        self.offset = offset
        """Global offset of the first byte."""


@dataclass(frozen=True, slots=True)
class EntryPosition:
    """Where to go on: what recovery hands to the log."""

    segment: int
    offset: int
    file_bytes: int
    """Length of the segment's file; 0 when it is still to be made."""
    oldest: int
    next_sequence: int = 1


class EntryLog:
    """The segments of one directory. Used by one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        position: EntryPosition,
        counters: WalCounters,
        *,
        segment_bytes: int,
        reserve_bytes: int,
        zero_chunk_bytes: int,
        syncs_when_idle: bool = True,
        writes_at_risk: int | None = None,
        request_preparation: RequestPreparation | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._counters = counters
        self._segment_bytes = segment_bytes
        self._reserve = min(reserve_bytes, segment_bytes // 16)
        self._prepared = PreparedFile(disk, directory, segment_bytes, zero_chunk_bytes)
        self._syncs_when_idle = syncs_when_idle
        self._writes_at_risk = writes_at_risk
        self._unsynced_writes = 0
        self._request_preparation = request_preparation
        self._next_requested = False
        self._oldest = position.oldest
        self._segment = position.segment
        self._offset = self._durable = position.offset
        self._file_bytes = position.file_bytes
        self._entries = position.next_sequence - 1
        self._staged: dict[int, tuple[File, int]] = {}
        self._file: File | None = None
        if position.file_bytes:
            self._file = disk.open(self._path_of(position.segment), OpenMode.UPDATE)
        self.synced_offset = global_offset(position.segment, position.offset)
        """Everything before this offset is on stable storage. Read by any thread."""
        self._prepared.discard()

    @property
    def name(self) -> str:
        return str(self._directory)

    @property
    def end_offset(self) -> int:
        """Where the next entry goes."""
        return global_offset(self._segment, self._offset)

    def open(self) -> None:
        """Have a segment to write to, so that a bad disk shows at start; a full one later."""
        try:
            if self._file is None:
                self._stage(self._segment, 0)
                sync_names(self._disk, self._directory)
                self._file, self._file_bytes = self._staged.pop(self._segment)
            self._replace_current()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def write_group(self, tickets: Sequence[Ticket], *, essential: bool) -> int:
        runs = self._runs(tickets)
        self._make_room(runs, essential)
        try:
            written = sum([self._write_run(offset, bodies) for offset, bodies in runs])
        except OSError as error:
            # The segments were made ahead, so this is no full disk that was found out in time:
            # part of the group may be there, and must not be taken for refused.
            raise StorageError("writing failed half way", path=self._directory) from error
        for ticket in tickets:
            self._entries += ticket.frame_count
            ticket.last_frame = self._entries
        self._unsynced_writes += writers_of(tickets)
        if self._writes_at_risk is not None and self._unsynced_writes >= self._writes_at_risk:
            # Before any ticket of this group is answered: a large one would be too many at once.
            self.sync()
        if not self._next_requested and self._offset > self._file_bytes // 2:
            self._request_next()
        return written

    def _write_run(self, offset: int, bodies: Sequence[bytes]) -> int:
        if segment_of(offset) != self._segment or self._file is None:
            self._enter(segment_of(offset))
        size = write_all(self._active(), self._offset, [b"".join(bodies)])
        self._offset += size
        return size

    def sync(self) -> None:
        self._unsynced_writes = 0
        if self._durable == self._offset:
            return
        end = self._offset
        sync_file(self._active(), self._path_of(self._segment))
        self._durable = end
        self.synced_offset = global_offset(self._segment, end)

    def witness(self, *, clean_stop: bool) -> None:
        """CURRENT tells what is synced, for the time when no later entry can."""
        if not clean_stop and not self._syncs_when_idle:
            return
        if self._file is not None:
            self.sync()
            self._replace_current()

    def make_room(self) -> None:
        self._prepared.prepare()

    def release_before(self, segment: int) -> list[PurePath]:
        """Say durably that segments before this one are not needed; returns those to delete."""
        numbers = map(parse_segment_name, self._disk.list_directory(self._directory))
        limit = min(segment, self._segment)
        to_delete = sorted(number for number in numbers if number is not None and number < limit)
        if limit > self._oldest:
            self._oldest = limit
            self._replace_current()
        return [self._path_of(number) for number in to_delete]

    def close(self) -> None:
        for file in (self._file, *(file for file, _ in self._staged.values())):
            if file is not None:
                file.close()
        self._file = None
        self._staged.clear()
        self._prepared.discard()

    def _active(self) -> File:
        assert self._file is not None, "open() comes first"
        return self._file

    def _path_of(self, segment: int) -> PurePath:
        return self._directory / segment_name(segment)

    def _runs(self, tickets: Sequence[Ticket]) -> list[tuple[int, list[bytes]]]:
        """The bodies by segment, each with its offset, after checking that offsets are gapless."""
        runs: list[tuple[int, list[bytes]]] = []
        expected, segment = self.end_offset, self._segment
        for ticket in tickets:
            assert isinstance(ticket, EntryTicket)
            offset = ticket.offset
            if offset == expected and runs:
                runs[-1][1].append(ticket.body)
            elif offset in (expected, global_offset(segment + 1, 0)):
                runs.append((offset, [ticket.body]))
                segment = segment_of(offset)
            elif offset > expected:
                raise OSError(errno.ENOSPC, _ESSENTIAL_ONLY, str(self._directory))
            else:
                raise InvariantError(
                    f"an entry was given offset {offset}, but the log is at {expected}"
                )
            expected = offset + len(ticket.body)
        return runs

    def _make_room(self, runs: Sequence[tuple[int, list[bytes]]], essential: bool) -> None:
        for offset, bodies in runs:
            size = sum(map(len, bodies))
            segment = segment_of(offset)
            if segment != self._segment or self._file is None:
                if segment not in self._staged or self._staged[segment][1] < size:
                    self._discard_staged(segment)
                    self._stage(segment, size)
                continue
            left = self._file_bytes - self._offset - size
            if left < 0 and not self._offset:
                self._stage(segment, size)  # under its name: nothing is in the one that had it
                self._active().close()
                self._file = None
                continue
            if left < 0:
                raise InvariantError(f"entries were placed behind the end of segment {segment}")
            if left < self._reserve and not essential and not self._prepared.ready:
                self._prepared.prepare()
        if self._staged:
            sync_names(self._disk, self._directory)

    def _stage(self, segment: int, size: int) -> None:
        """A segment of zeros under its own name; a reader finds it empty."""
        self._staged[segment] = self._prepared.take(size, self._path_of(segment))

    def _discard_staged(self, segment: int) -> None:
        if segment in self._staged:
            file, _ = self._staged.pop(segment)
            file.close()
            if segment != self._segment:  # CURRENT names that one: it is replaced, never missing
                self._disk.unlink(self._path_of(segment))

    def _enter(self, segment: int) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._counters.rotations += 1
        self._file, self._file_bytes = self._staged.pop(segment)
        self._segment, self._offset, self._durable = segment, 0, 0
        self._next_requested = False
        self.synced_offset = global_offset(segment, 0)
        try:
            self._replace_current()
        except OSError as error:
            # Part of the group may be written already. A CURRENT that lags behind is no loss: it
            # promises less than is there.
            if error.errno not in NO_ROOM:
                raise

    def _replace_current(self) -> None:
        current = MachineCurrent(self._segment, self._durable, min(self._oldest, self._segment))
        replace_file(self._disk, self._directory / CURRENT_NAME, encode_machine_current(current))

    def _request_next(self) -> None:
        self._next_requested = True
        if self._request_preparation is not None:
            self._request_preparation(self._prepared)
