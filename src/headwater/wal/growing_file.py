"""A file that grows ahead of what is written, so that a sync has no work on the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from headwater.disk import Buffer, File, sync_file, write_all
from headwater.wal.dialect import NO_ROOM

SMALL_GROUPS: Final = 4
"""Zeros are written ahead only for groups of which so many fit into them: a large group hides what
the journal costs, and zeros in front of it would be written for nothing."""


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
