"""Log files with room ahead of what is written, so that a sync has no work on the journal.

Kafka's files grow ahead of their end (`GrowingFile`). For topics and machines the next file is made
ahead (`PreparedFile`): full length, zeros written and synced, before it is needed.

Zeros are really written. Space that is only reserved makes the file system convert extents on
first use, which costs journal work inside every commit (see docs/decisions).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from headwater.core.clock import Clock, Doorbell
from headwater.core.units import MIB
from headwater.disk import NO_ROOM, Buffer, Disk, File, OpenMode, sync_file, write_all
from headwater.format.names import PREPARED_NAME
from headwater.observe.waits import Waits

SMALL_GROUPS: Final = 4
"""Zeros are written ahead only for groups of which so many fit into them: a large group hides what
the journal costs, and zeros in front of it would be written for nothing."""
ZEROS_UNSYNCED_MAX: Final = MIB
"""Of a file that is made ahead: a sync of the log waits behind so much at most."""


class GrowingFile:
    """A file that has room ahead of its end. `room` bytes of it are ours to write."""

    def __init__(self, file: File, end: int, ahead: int, reserve: int) -> None:
        self.file = file
        self.end = end
        self._ahead = ahead
        self._reserve = reserve
        self._room = file.size()
        self.synced_end = end

    def make_room(self, size: int, *, essential: bool) -> None:
        """Have room for so many more bytes, or raise ENOSPC with nothing changed.

        Ordinary groups leave the reserve alone; it is what essential ones live on.
        """
        wanted = self.end + size + (0 if essential else self._reserve)
        if wanted <= self._room:
            return
        room = wanted + self._ahead
        try:
            self.file.allocate(room)
        except OSError as error:
            if error.errno in NO_ROOM:
                with contextlib.suppress(OSError):
                    self.file.truncate(self._room)
            raise
        if size * SMALL_GROUPS <= self._ahead:
            write_all(self.file, self._room, [bytes(room - self._room)])
        self._room = room

    def append(self, buffers: Sequence[Buffer]) -> None:
        self.end += write_all(self.file, self.end, buffers)

    def sync(self) -> None:
        if self.synced_end != self.end:
            end = self.end
            sync_file(self.file)
            self.synced_end = end

    def cut(self, end: int) -> None:
        self.file.truncate(end)
        self.end = self._room = end

    def trim(self) -> None:
        """No room any more: the file ends where its contents do."""
        if self._room != self.end:
            self.file.truncate(self.end)
            self._room = self.end
            sync_file(self.file)


class PreparedFile:
    """At most one file waiting under a fixed name. Its taker says its real name."""

    def __init__(self, disk: Disk, directory: PurePath, file_bytes: int, chunk_bytes: int) -> None:
        self._disk = disk
        self._path = directory / PREPARED_NAME
        self._file_bytes = file_bytes
        self._zeros = bytes(chunk_bytes)
        self._lock = threading.Lock()
        self._file: File | None = None
        self._length = 0

    @property
    def ready(self) -> bool:
        return self._file is not None

    def prepare(self, bytes_min: int = 0) -> None:
        """Make the file unless a long enough one is there. OSError when there is no room."""
        with self._lock:
            self._prepare(max(bytes_min, self._file_bytes))

    def take(self, bytes_min: int, target: PurePath) -> tuple[File, int]:
        """The file and its length, renamed to `target`; made now if it was not made ahead.

        Renamed under the lock and before it is handed out: until then it is ours, and the thread
        that prepares the one after it cannot take it for a leftover.
        """
        with self._lock:
            self._prepare(max(bytes_min, self._file_bytes))
            self._disk.rename(self._path, target)
            file, self._file = self._file, None
            assert file is not None
            return file, self._length

    def discard(self) -> None:
        """Remove what is prepared. Something left by an earlier process counts too."""
        with self._lock:
            self._discard()

    def _prepare(self, length: int) -> None:
        if self._file is not None and self._length >= length:
            return
        self._discard()
        file = self._disk.open(self._path, OpenMode.CREATE)
        try:
            unsynced = 0
            file.allocate(length)  # a full disk says so here, before any work
            for at in range(0, length, len(self._zeros)):
                write_all(file, at, [self._zeros[: length - at]])
                unsynced += len(self._zeros)
                if unsynced >= ZEROS_UNSYNCED_MAX:
                    file.sync_data()
                    unsynced = 0
            file.sync_data()
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path)
            raise
        self._file, self._length = file, length

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._disk.exists(self._path):
            self._disk.unlink(self._path)


class Preparer:
    """One thread that keeps the next file of every shard ready, away from the commit path."""

    def __init__(self, clock: Clock, waits: Waits) -> None:
        self._clock = clock
        self._waits = waits
        self._doorbell = Doorbell()
        self._wanted: list[PreparedFile] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="headwater-preparer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request(self, prepared: PreparedFile) -> None:
        self._wanted.append(prepared)
        self._doorbell.ring()

    def stop(self) -> None:
        self._stopping = True
        self._doorbell.ring()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._clock.wait(self._doorbell, None)
            if self._stopping:
                return
            while self._wanted:
                # A full disk is noticed and handled by the log when it comes to rotate.
                with contextlib.suppress(OSError), self._waits.activity("zeroing of the next file"):
                    self._wanted.pop().prepare()
