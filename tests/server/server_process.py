"""A server as a process of its own, to be stopped and killed.

    python -m tests.server.server_process DIRECTORY [SYNC_MS]

Prints `ready PORT` when requests are served and `stopped` after a clean end. SYNC_MS makes every
sync of the log take that much longer.
"""

from __future__ import annotations

import select
import sys
from pathlib import PurePath

import uvloop

from headwater.disk.protocol import OpenMode
from headwater.server.server import Server
from tests.server.gated_disk import GatedDisk, GatedFile
from tests.server.running_server import SMALL_ENGINE, settings


class SlowDisk(GatedDisk):
    """A disk that takes its time."""

    def __init__(self, sync_ms: int) -> None:
        super().__init__()
        self.sync_ms = sync_ms

    def open(self, path: PurePath, mode: OpenMode) -> GatedFile:
        plain = super().open(path, mode)
        return SlowFile(self, path, plain.take_descriptor())


class SlowFile(GatedFile):
    def sync_data(self) -> None:
        disk = self._disk
        assert isinstance(disk, SlowDisk)
        if disk.sync_ms and self._is_log:
            select.select([], [], [], disk.sync_ms / 1_000)
        super().sync_data()


async def serve(directory: str, sync_ms: int) -> None:
    disk = SlowDisk(sync_ms)
    server = Server(directory, settings(), SMALL_ENGINE, disk=disk)
    await server.start()
    sys.stdout.write(f"ready {server.port}\n")
    sys.stdout.flush()
    await server.serve_until_stopped()
    sys.stdout.write("stopped\n")


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
