"""What Python's loop could do at the best: a server that looks at nothing.

It takes every piece that comes for one whole request, writes it to a file, and answers with bytes
made beforehand: no HTTP, no JSON, no topics. With `--sync` all that waits is written and synced
together in another thread before it is answered, as a log must. What a server in Python does for
a record comes on top of this; so it is the limit that single writes are measured against.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Final, cast

import uvloop

from bench.server.clients import Http
from bench.server.processes import ServerProcess
from headwater.config.wal import WalSettings
from headwater.core.units import MIB

BODY: Final = b'{"status":"ok"}'.ljust(120)
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    % (len(BODY), BODY)
)
FILE_BYTES: Final = 64 * MIB
"""Written before it begins, then written over: a sync changes no size and no block."""

Waiting = list[tuple[asyncio.WriteTransport, bytes]]


class Syncer:
    """One thread, one write and one sync for all that waits."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(self._file, bytes(FILE_BYTES))
        os.fsync(self._file)
        self._waiting: Waiting = []
        self._bell = threading.Semaphore(0)
        self._is_busy = False
        self._position = 0
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, transport: asyncio.WriteTransport, piece: bytes) -> None:
        self._waiting.append((transport, piece))
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._bell.release)

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            group, self._waiting = self._waiting, []
            joined = b"".join([piece for _, piece in group])
            if self._position + len(joined) > FILE_BYTES:
                self._position = 0
            os.pwrite(self._file, joined, self._position)
            self._position += len(joined)
            os.fdatasync(self._file)
            self._loop.call_soon_threadsafe(self._answer, group)

    def _answer(self, group: Waiting) -> None:
        for transport, _ in group:
            if not transport.is_closing():
                transport.write(ANSWER)
        if self._waiting:
            self._bell.release()
        else:
            self._is_busy = False


class Bare(asyncio.Protocol):
    def __init__(self, syncer: Syncer | None) -> None:
        self._syncer = syncer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        if self._syncer is None:
            self._transport.write(ANSWER)
        else:
            self._syncer.add(self._transport, data)


async def serve(directory: Path, synced: bool) -> None:
    loop = asyncio.get_running_loop()
    syncer = Syncer(directory / "file", loop) if synced else None
    server = await loop.create_server(lambda: Bare(syncer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    being_written = directory / "port.new"
    being_written.write_text(str(port), encoding="utf-8")
    being_written.rename(directory / "port")
    async with server:
        await server.serve_forever()


class BareLoop(ServerProcess):
    """This file as a process of its own."""

    name = "bare loop"

    def __init__(self, directory: Path, synced: bool) -> None:
        super().__init__(directory)
        self._synced = synced

    @property
    def command(self) -> list[str]:
        flags = ["--sync"] if self._synced else []
        return [sys.executable, "-m", "bench.server.bare_loop", str(self.directory), *flags]

    def is_ready(self) -> bool:
        file = self.directory / "port"
        if not file.exists():
            return False
        self.port = int(file.read_text(encoding="utf-8"))
        with Http(self.port) as http:
            return bool(http.call("GET", "/")["status"] == "ok")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sync", action="store_true")
    given = parser.parse_args()
    sys.setswitchinterval((WalSettings().switch_interval_us or 5_000) / 1_000_000)
    uvloop.run(serve(given.directory, given.sync))
