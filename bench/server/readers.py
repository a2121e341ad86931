"""Readers that walk a whole log page by page, each by its own cursor, in a process of their own.

    python -m bench.server.readers headwater|arrow|redis PORT CONNECTIONS SECONDS

redis-benchmark can only repeat one command, so both servers get this client. It asks for a page of
1000, receives it into one buffer without parsing it, takes the next cursor from where it stands in
the answer, and begins again at the end. To Redis each XRANGE is followed by a PING, whose answer
shows where the page ends; HTTP tells the length. Prints one line of JSON.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from bench.log_under_test import WrongResultError
from bench.server.clients import FIELD, PAGE, TOPIC, encode_command
from bench.server.load import Load
from bench.server.processes import ServerProcess

BUFFER_BYTES = 16 << 20
ARROW_PAGE = 10_000
"""What readers of bulk ask for at once; the endpoint's own default is ten times that."""


class Walker(ABC):
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self.buffer)
        self.records = 0
        self.walks = 0
        self.payload_bytes = 0

    @abstractmethod
    def page(self) -> int:
        """Ask for the next page and receive it; gives how many records were in it."""

    def walk_until(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            self.records += self.page()
        self._socket.close()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self, have: int, is_whole: Callable[[int], bool]) -> int:
        """Bytes into the buffer behind those that are there, until the answer is whole."""
        while not is_whole(have):
            got = self._socket.recv_into(self._view[have:])
            if not got:
                raise WrongResultError("the server went away")
            have += got
        self.payload_bytes += have
        return have


class HeadwaterWalker(Walker):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._cursor = 0
        self._whole_bytes = 0

    def page(self) -> int:
        body = b'{"from_seq":%d,"limit":%d}' % (self._cursor, PAGE)
        self.send(
            b"POST /v0/topics/%s/diff HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (TOPIC.encode(), len(body), body)
        )
        self._whole_bytes = 0
        end = self.receive(0, self._is_whole)
        if not self.buffer.startswith(b"HTTP/1.1 200 "):
            raise WrongResultError(f"refused: {bytes(self.buffer[:500])!r}")
        at = self.buffer.rindex(b'"next_from_seq":', 0, end) + 16
        seq = int(self.buffer[at : at + 20].partition(b",")[0].rstrip(b"}"))
        records = seq - self._cursor
        self._cursor = seq
        if self.buffer.find(b'"caught_up":true', at - 1_000, end) >= 0:
            self._cursor = 0
            self.walks += 1
        return records

    def _is_whole(self, have: int) -> bool:
        if not self._whole_bytes:
            head_end = self.buffer.find(b"\r\n\r\n", 0, have)
            if head_end < 0:
                return False
            head = bytes(self.buffer[:head_end]).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            self._whole_bytes = head_end + 4 + length
        return have >= self._whole_bytes


class ArrowWalker(HeadwaterWalker):
    """The same records as columns: how Spark, pandas and DuckDB catch up."""

    def page(self) -> int:
        self.send(
            b"GET /v0/topics/%s/arrow?from_seq=%d&limit=%d HTTP/1.1\r\nhost: x\r\n\r\n"
            % (TOPIC.encode(), self._cursor, ARROW_PAGE)
        )
        self._whole_bytes = 0
        self.receive(0, self._is_whole)
        head = bytes(self.buffer[: self.buffer.index(b"\r\n\r\n")]).lower()
        if not head.startswith(b"http/1.1 200 "):
            raise WrongResultError(f"refused: {head!r}")
        seq = int(head.partition(b"x-next-from-seq: ")[2].partition(b"\r\n")[0])
        records = seq - self._cursor
        self._cursor = seq
        if b"x-caught-up: true" in head:
            self._cursor = 0
            self.walks += 1
        return records


class RedisWalker(Walker):
    PONG = b"+PONG\r\n"
    BEFORE_PAYLOAD = b"\r\n*2\r\n$1\r\n%s\r\n$" % FIELD.encode()

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._cursor = b"-"

    def page(self) -> int:
        self.send(
            encode_command("XRANGE", TOPIC, self._cursor, "+", "COUNT", PAGE)
            + encode_command("PING")
        )
        end = self.receive(0, self._is_whole)
        records = int(self.buffer[1 : self.buffer.index(b"\r\n")])
        if records < PAGE:
            self._cursor = b"-"
            self.walks += 1
        else:
            id_end = self.buffer.rindex(self.BEFORE_PAYLOAD, 0, end)
            id_at = self.buffer.rindex(b"\r\n", 0, id_end) + 2
            self._cursor = b"(" + bytes(self.buffer[id_at:id_end])
        return records

    def _is_whole(self, have: int) -> bool:
        return have >= 7 and self.buffer[have - 7 : have] == self.PONG


WALKERS: dict[str, type[Walker]] = {
    "headwater": HeadwaterWalker,
    "arrow": ArrowWalker,
    "redis": RedisWalker,
}


def main(kind: str, port: str, connections: str, seconds: str) -> None:
    walkers = [WALKERS[kind](int(port)) for _ in range(int(connections))]
    started = time.perf_counter()
    deadline = started + float(seconds)
    threads = [threading.Thread(target=w.walk_until, args=(deadline,)) for w in walkers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {
        "records": sum(walker.records for walker in walkers),
        "walks": sum(walker.walks for walker in walkers),
        "bytes": sum(walker.payload_bytes for walker in walkers),
        "elapsed_s": time.perf_counter() - started,
        "client_cpu_s": time.process_time(),
    }
    print(json.dumps(told))


class PageReaders:
    """A contender: so many connections walk this server's log."""

    def __init__(self, server: ServerProcess, connections: int, kind: str | None = None) -> None:
        self._server = server
        self._connections = connections
        self._kind = kind or server.name.lower()

    def command(self, seconds: float) -> list[str]:
        words = ("-m", "bench.server.readers", self._kind, str(self._server.port))
        return [sys.executable, *words, str(self._connections), str(seconds)]

    def __call__(self, seconds: float) -> Load:
        before = self._server.cpu_s()
        done = subprocess.run(
            self.command(seconds),
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise WrongResultError(f"walking failed: {done.stderr[-800:]}")
        told = json.loads(done.stdout)
        return Load(told["records"], told["elapsed_s"], self._server.cpu_s() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
