"""What the machine itself can do: a loop of write and fdatasync with nothing around it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.log_under_test import WrongResultError
from bench.turns import Turn
from headwater.core.units import MIB


class RawWrites:
    """pwrite + fdatasync of `size` bytes, one after the other through files made ahead."""

    def __init__(
        self,
        path: Path,
        file_bytes: int,
        size: int,
        *,
        zeros: bool = True,
        sync: bool = True,
        operations: int = 1,
    ) -> None:
        self._path = path
        self._length = file_bytes
        self._zeros = zeros
        self._sync = sync
        self._operations = operations
        self._block = os.urandom(size)
        self._descriptor = -1
        self._offset = 0
        self._start_file()

    def __call__(self, seconds: float) -> Turn:
        descriptor, block, size, sync = self._descriptor, self._block, len(self._block), self._sync
        clock, write, harden = time.perf_counter, os.pwrite, os.fdatasync
        latencies: list[float] = []
        started = now = clock()
        deadline = started + seconds
        paused = 0.0
        while now < deadline:
            if self._offset + size > self._length:
                self._start_file()
                descriptor = self._descriptor
                paused += clock() - now
                now = clock()
            write(descriptor, block, self._offset)
            if sync:
                harden(descriptor)
            self._offset += size
            after = clock()
            latencies.append((after - now) * 1e6)
            now = after
        count = len(latencies)
        elapsed = now - started - paused
        return Turn(count * self._operations, elapsed, count if sync else 0, latencies)

    def close_and_check(self) -> None:
        last = os.pread(self._descriptor, len(self._block), self._offset - len(self._block))
        self._close()
        if last != self._block:
            raise WrongResultError(f"{self._path}: the last block is not there")

    def _start_file(self) -> None:
        """A new file of full length: zeros really written, or space only reserved."""
        self._close()
        self._path.unlink(missing_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(self._descriptor, 0, self._length)
        if self._zeros:
            for at in range(0, self._length, MIB):
                os.pwrite(self._descriptor, bytes(MIB), at)
        os.fsync(self._descriptor)
        self._offset = 0

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
