"""The topic dialect: groups of WAL frames behind commit marks, in files made ahead.

Rotation order, each step durable before the next: old file synced; new file under its name;
directory synced; CURRENT replaced; first group. A crash between any two leaves a log that
recovery reads to the same end.

Keeps I2 (a group is whole or absent), I5 (marks witness what was synced), I12 (no room is found
out before anything is half done).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.disk import (
    NO_ROOM,
    Disk,
    File,
    OpenMode,
    plain_descriptor,
    replace_file,
    sync_file,
    sync_names,
    write_all,
)
from headwater.format.checksum import checksum64
from headwater.format.log_state import Current, encode_current
from headwater.format.mark import (
    FORMAT_VERSION,
    MARK_BYTES,
    MarkKind,
    chain_of,
    pack_mark,
)
from headwater.format.names import CURRENT_NAME, parse_wal_file_name, wal_file_name
from headwater.observe.waits import WaitCause
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import LogPosition
from headwater.wal.file_room import PreparedFile
from headwater.wal.ticket import Ticket

RequestPreparation = Callable[[PreparedFile], None]


class FrameLog:
    """One shard's files. Used by one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: WalSettings,
        clock: Clock,
        position: LogPosition,
        counters: WalCounters,
        request_preparation: RequestPreparation | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._prepared = PreparedFile(
            disk, directory, settings.file_bytes, settings.zero_chunk_bytes
        )
        self._request_preparation = request_preparation
        self._reserve = min(settings.reserve_bytes, settings.file_bytes // 16)
        self._next_frame = position.next_frame
        self._chain = position.chain
        self._log_id = position.log_id
        self._run = position.run
        self._oldest = position.oldest
        self._staged: tuple[File, int, PurePath] | None = None
        self._file: File | None = None
        self._number = 0
        self._file_bytes = 0
        self._offset = 0
        self._durable_offset = 0
        self._next_requested = False
        self.active_path = directory
        """Of the active file: it was made under another name."""
        if position.open_file is not None:
            self._number = position.open_file.number
            self.active_path = self._path_of(self._number)
            self._file_bytes = position.open_file.file_bytes
            self._offset = self._durable_offset = position.open_file.offset
            self._file = disk.open(self._path_of(self._number), OpenMode.UPDATE)
        self._prepared.discard()

    @property
    def name(self) -> str:
        return str(self._directory)

    @property
    def directory(self) -> PurePath:
        return self._directory

    @property
    def log_id(self) -> int:
        return self._log_id

    @property
    def active_number(self) -> int:
        return self._number

    @property
    def next_frame(self) -> int:
        return self._next_frame

    def open(self) -> None:
        """Make sure there is a file to write to, so that a bad disk shows at start.

        A full one does not keep anybody from reading and deleting: the first write finds out.
        """
        try:
            if self._file is None:
                self._rotate(0)
            else:
                self._replace_current()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def write_group(self, tickets: Sequence[Ticket], *, essential: bool) -> int:
        body = tickets[0].body if len(tickets) == 1 else b"".join([t.body for t in tickets])
        self._make_room_for(MARK_BYTES + len(body), essential)
        frame = self._next_frame  # the mark's own
        for ticket in tickets:
            frame += ticket.frame_count
            ticket.last_frame = frame
        written = self._write(body, frame - self._next_frame, MarkKind.GROUP)
        if not self._next_requested and self._offset > self._file_bytes // 2:
            self._request_next()
        return written

    def lend(self, writer: Any) -> bool:
        """Tell compiled code where to write groups. False when there is no such file.

        It stops where a group has to ask for the next file, and before the reserve.
        """
        descriptor = plain_descriptor(self._file)
        if descriptor is None:
            return False
        half, room = self._file_bytes // 2, self._file_bytes - self._reserve
        writer.lend(
            descriptor,
            self._offset,
            self._durable_offset,
            self._next_frame,
            self._chain,
            self._number,
            self._file_bytes,
            room if self._next_requested else half,
            self._run,
            self._log_id,
        )
        return True

    def take_back(self, writer: Any) -> None:
        """Go on from where it has written to."""
        self._offset, self._durable_offset = writer.offset, writer.durable_offset
        self._next_frame, self._chain = writer.next_frame, writer.chain

    def sync(self) -> None:
        if self._durable_offset == self._offset:
            return
        end = self._offset
        sync_file(self._active(), self.active_path)
        self._durable_offset = end

    def witness(self, *, clean_stop: bool) -> None:
        self.sync()
        self._make_room_for(MARK_BYTES, essential=True)
        self._write(b"", 0, MarkKind.CLEAN_STOP if clean_stop else MarkKind.IDLE)
        self.sync()
        if clean_stop:
            self._replace_current()

    def make_room(self) -> None:
        self._prepared.prepare()

    def release_before(self, frame: int) -> list[PurePath]:
        """Say durably that no frame before this one is needed; returns the files to delete.

        CURRENT first tells from where on files must be there, so a crash before the caller has
        deleted them leaves files that are merely too many. The active file is never among them.
        """
        numbers = self._numbers()
        to_delete = [
            number
            for number, following in itertools.pairwise(numbers)
            if following <= frame and number < self._number
        ]
        if to_delete:
            self._oldest = numbers[len(to_delete)]
            self._replace_current()
        return [self._path_of(number) for number in to_delete]

    def close(self) -> None:
        for file in (self._file, self._staged[0] if self._staged else None):
            if file is not None:
                file.close()
        self._file = self._staged = None
        self._prepared.discard()

    def _active(self) -> File:
        assert self._file is not None, "open() comes first"
        return self._file

    def _path_of(self, number: int) -> PurePath:
        return self._directory / wal_file_name(number)

    def _numbers(self) -> list[int]:
        numbers = map(parse_wal_file_name, self._disk.list_directory(self._directory))
        return sorted(number for number in numbers if number is not None)

    def _write(self, body: bytes, frame_count: int, kind: MarkKind) -> int:
        mark = pack_mark(
            self._clock.wall_ms(),
            FORMAT_VERSION,
            kind,
            frame_count,
            len(body),
            checksum64(body),
            self._run,
            self._log_id,
            self._number,
            self._file_bytes,
            self._next_frame,
            self._offset,
            self._durable_offset,
            self._chain,
        )
        written = write_all(self._active(), self._offset, [mark, body] if body else [mark])
        self._chain = chain_of(mark)
        self._offset += written
        self._next_frame += 1 + frame_count
        return written

    def _make_room_for(self, size: int, essential: bool) -> None:
        """Have a file with room for `size`, or raise ENOSPC with nothing changed.

        While the next file cannot be made, the end of this one is kept for essential groups.
        """
        left = self._file_bytes - self._offset
        if size <= left - self._reserve or (size <= left and (essential or self._prepared.ready)):
            return
        if size <= left:
            self._prepared.prepare()
            return
        self._rotate(size)

    def _rotate(self, size: int) -> None:
        with self._noted(WaitCause.NEW_FILE):
            self._go_on_in_new_file(size)

    def _go_on_in_new_file(self, size: int) -> None:
        if self._staged is not None and self._staged[1] < size:
            self._discard_staged()
        if self._file is not None:
            self.sync()
        target = self._path_of(self._next_frame)
        if self._staged is None:
            if self._prepared.ready:
                file, length = self._prepared.take(size, target)
            else:
                with self._noted(WaitCause.ZEROING):
                    file, length = self._prepared.take(size, target)
            self._staged = (file, length, target)
        file, length, path = self._staged
        if path != target:
            self._disk.rename(path, target)
            self._staged = (file, length, target)
        with self._noted(WaitCause.DIRECTORY):
            sync_names(self._disk, self._directory)
        oldest = self._oldest or self._next_frame
        self._replace_current(Current(self._next_frame, length, 0, oldest, self._log_id))
        # From here on CURRENT names the new file: nothing more may go into the old one.
        old, self._file, self._staged = self._file, file, None
        self.active_path = target
        self._number, self._file_bytes = self._next_frame, length
        self._offset = self._durable_offset = 0
        self._oldest = oldest
        self._next_requested = False
        if old is not None:
            self._counters.rotations += 1
            old.close()

    @contextmanager
    def _noted(self, cause: WaitCause) -> Iterator[None]:
        started_us = self._clock.monotonic_us()
        yield
        self._counters.waits.note(
            cause, started_us, self._clock.monotonic_us(), wal_file_name(self._next_frame)
        )

    def _discard_staged(self) -> None:
        """A rotation failed half way, and now a longer file is needed than was staged then."""
        assert self._staged is not None
        file, _, path = self._staged
        self._staged = None
        file.close()
        self._disk.unlink(path)

    def _replace_current(self, current: Current | None = None) -> None:
        if current is None:
            oldest = self._oldest or self._number
            current = Current(
                self._number, self._file_bytes, self._durable_offset, oldest, self._log_id
            )
        replace_file(self._disk, self._directory / CURRENT_NAME, encode_current(current))

    def _request_next(self) -> None:
        self._next_requested = True
        if self._request_preparation is not None:
            self._request_preparation(self._prepared)
