"""What Python's loop could do at the best: a server that looks at nothing.

It takes every piece that comes for one whole request, writes it to a file, and answers with bytes
made beforehand: no HTTP, no JSON, no topics. With `--sync` all that waits is written and synced
together in another thread before it is answered, as a log must. What a server in Python does for
a record comes on top of this; so it is the limit that single writes are measured against.

With `--processes` so many share the port: what is measured then is the program that makes the load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
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
BACKLOG: Final = 4096
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


def shared_listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def start_others(port: int, count: int) -> int:
    """Processes beside this one; each ends when this one does, by the pipe that both hold."""
    read_end, write_end = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            os.close(write_end)
            uvloop.run(serve(shared_listener(port), None, read_end))
            os._exit(0)
    os.close(read_end)
    return write_end


async def serve(listener: socket.socket, file: Path | None, until: int | None = None) -> None:
    """`file` is synced before every answer; `until` is a pipe whose end is the end of this."""
    loop = asyncio.get_running_loop()
    syncer = Syncer(file, loop) if file is not None else None
    server = await loop.create_server(lambda: Bare(syncer), sock=listener)
    if until is not None:
        loop.add_reader(until, os._exit, 0)
    async with server:
        await server.serve_forever()


class BareLoop(ServerProcess):
    """This file as a process of its own."""

    name = "bare loop"

    def __init__(self, directory: Path, synced: bool, processes: int = 1) -> None:
        super().__init__(directory)
        self._synced = synced
        self._processes = processes

    @property
    def command(self) -> list[str]:
        flags = ["--sync"] if self._synced else []
        if self._processes > 1:
            flags += ["--processes", str(self._processes)]
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
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    if given.sync and given.processes > 1:
        parser.error("several processes have no file in common")
    sys.setswitchinterval((WalSettings().switch_interval_us or 5_000) / 1_000_000)
    first = shared_listener(0)
    port = first.getsockname()[1]
    pipe = start_others(port, given.processes - 1)
    being_written = given.directory / "port.new"
    being_written.write_text(str(port), encoding="utf-8")
    being_written.rename(given.directory / "port")
    uvloop.run(serve(first, given.directory / "file" if given.sync else None))
