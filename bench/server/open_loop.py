"""Writes at a fixed rate, whatever the server does: a program of its own, for latencies that hide
nothing.

A load that waits for each answer before it sends the next write sends none while the server stands
still, so a pause of 100 ms is one slow write in its figures. Here every write has its time, one
after the other at equal distances, and its latency counts from then: a pause is seen by all that
were due in it. When no connection is free, the next write is late and pays for that.
"""

from __future__ import annotations

import argparse
import gc
import select
import socket
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.log_under_test import WrongResultError

READ_BYTES: Final = 64 * 1024
GOOD: Final = (b"HTTP/1.1 200", b"HTTP/1.1 201")
GRACE_S: Final = 10.0
"""For the last answers."""
EARLY_S: Final = 30e-6
"""A wait ends about so much too late."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Latencies of the writes of one turn, from the time that each was due."""

    sent: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    late: int
    """Writes that found no free connection when they were due."""

    @property
    def rate(self) -> float:
        return self.sent / self.seconds


def run_open_loop(
    port: int,
    *,
    topics: int,
    connections: int,
    rate: float,
    seconds: float,
    payload: bytes,
    processes: int = 1,
) -> Tail:
    """One turn, in processes of its own that have the load in equal parts. With a rate of 0 each
    connection sends its next write when it has its answer."""
    words = (port, topics, connections // processes, rate / processes, seconds, payload.decode())
    command = [sys.executable, "-m", "bench.server.open_loop", *map(str, words)]
    parts = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(processes)
    ]
    times, late = array("d"), 0
    for part in parts:
        out, said = part.communicate(timeout=seconds + 60)
        if part.returncode:
            raise WrongResultError(f"the open loop ended: {said.decode()[-500:]}")
        times.frombytes(out)
        late += int(said)
    return tail_of(times, seconds, late)


def request(topic: int, payload: str) -> bytes:
    body = b'{"records":[{"data":%s}]}' % payload.encode()
    return (
        b"POST /v0/topics/bench.%d HTTP/1.1\r\nhost: bench\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (topic, len(body), body)
    )


class OpenLoop:
    def __init__(self, port: int, connections: int, requests: Sequence[bytes]) -> None:
        self._requests = requests
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._free: deque[int] = deque()
        self._due: dict[int, float] = {}
        """Of each connection that waits for its answer, when its write was due."""
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[connection.fileno()] = connection
            self._epoll.register(connection.fileno(), select.EPOLLIN)
            self._free.append(connection.fileno())
        self.latencies: array[float] = array("d")
        self.late = 0

    def run(self, rate: float, seconds: float) -> None:
        now = time.perf_counter
        began = now() + 0.01
        sent = 0
        while (due := began + sent / rate if rate else now()) < began + seconds:
            if self._free and now() >= due:
                self._send(self._free.popleft(), self._requests[sent % len(self._requests)], due)
                sent += 1
                self.late += now() - due > 0.001
            else:
                self._receive(max(due - now() - EARLY_S, 0) if self._free else 1)
        until = now() + GRACE_S
        while self._due and now() < until:
            self._receive(0.1)
        if self._due:
            raise WrongResultError(f"{len(self._due)} writes were never answered")

    def _send(self, connection: int, request: bytes, due: float) -> None:
        self._due[connection] = due
        self._sockets[connection].sendall(request)

    def _receive(self, timeout_s: float) -> None:
        # Of the one descriptor: epoll's own timeout knows milliseconds only.
        if not select.select([self._epoll], [], [], timeout_s)[0]:
            return
        for connection, _ in self._epoll.poll(0):
            answer = self._sockets[connection].recv(READ_BYTES)
            if not answer.startswith(GOOD):
                raise WrongResultError(f"a write was answered {answer[:200]!r}")
            self.latencies.append(time.perf_counter() - self._due.pop(connection))
            self._free.append(connection)

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._epoll.close()


def tail_of(times: Sequence[float], seconds: float, late: int) -> Tail:
    times = sorted(times)

    def at(share: float) -> float:
        return round(times[min(int(len(times) * share), len(times) - 1)] * 1e6, 1)

    return Tail(len(times), seconds, at(0.5), at(0.99), at(0.999), at(1), late)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (
        ("port", int), ("topics", int), ("connections", int),
        ("rate", float), ("seconds", float), ("payload", str),
    ):  # fmt: skip
        parser.add_argument(name, type=kind)
    given = parser.parse_args()
    requests = [request(topic, given.payload) for topic in range(given.topics)]
    gc.disable()
    loop = OpenLoop(given.port, given.connections, requests)
    loop.run(given.rate, given.seconds)
    loop.close()
    sys.stdout.buffer.write(loop.latencies.tobytes())
    sys.stderr.write(str(loop.late))
