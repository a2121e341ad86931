"""A real disk whose syncs and reads a test can hold up or let fail."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath

from headwater.disk.posix import PosixDisk, PosixFile
from headwater.disk.protocol import Buffer, OpenMode

PATIENCE_S = 30.0


class Gate:
    """Open at first. What passes it when it is closed waits."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.somebody_waits = threading.Event()

    def close(self) -> None:
        self.somebody_waits.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self.somebody_waits.set()
            assert self._open.wait(PATIENCE_S), "a gate was left closed"


class GatedDisk(PosixDisk):
    def __init__(self) -> None:
        self.syncs = Gate()
        self.reads = Gate()
        self.is_full = False
        self.is_full_for_files = False
        """No room for another file; those that were made ahead can be written to."""
        self.is_broken = False
        self.concerns: Callable[[PurePath], bool] = lambda path: "wal" in path.parts
        """Which files are full, broken, or held up at a sync."""

    def open(self, path: PurePath, mode: OpenMode) -> GatedFile:
        plain = super().open(path, mode)
        gated = GatedFile(self, path, os.dup(plain._descriptor))
        plain.close()
        return gated


class GatedFile(PosixFile):
    def __init__(self, disk: GatedDisk, path: PurePath, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._disk = disk

    def take_descriptor(self) -> int:
        """For a file that takes the place of this one."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor

    @property
    def _is_log(self) -> bool:
        return self._disk.concerns(self.path)

    def read(self, offset: int, length: int) -> bytes:
        self._disk.reads.pass_through()
        return super().read(offset, length)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        if self._disk.is_full and self._is_log:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(offset, buffers)

    def allocate(self, length: int) -> None:
        if self._disk.is_full_for_files and self._is_log:
            raise OSError(errno.ENOSPC, "no space left on device")
        super().allocate(length)

    def sync_data(self) -> None:
        if self._is_log:
            self._disk.syncs.pass_through()
            if self._disk.is_broken:
                raise OSError(errno.EIO, "input/output error")
        super().sync_data()
