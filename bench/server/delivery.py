"""How long a record takes from the writer to its watchers, in a process of their own.

    python -m bench.server.delivery PORT SERVER_PID WATCHERS WRITES_PER_SECOND SECONDS

One loop writes at fixed times, whatever the answers do, and reads all event streams. Time runs from
just before a record is sent until the chunk that completes its event was received; with many
watchers it includes the time this loop needs to read from those before. Every watcher must get
every record. Prints one line of JSON.
"""

from __future__ import annotations

import json
import re
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOAD_BYTES, payload
from bench.server.clients import Http
from bench.server.processes import family_cpu_s_of
from bench.turns import percentile

TOPIC: Final = "delivered"
WARM_UP_SHARE: Final = 0.1
GRACE_S: Final = 5.0
_NUMBER = re.compile(rb'"id":(\d+),"kind"')
clock = time.perf_counter


class Watcher:
    """One event stream. What came is only noted; it is looked at when the clock has stopped."""

    def __init__(self, port: int, path: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        request = f"GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n"
        self.socket.sendall(request.encode())
        head = b""
        while b"caught-up" not in head:
            chunk = self.socket.recv(65_536)
            if not chunk:
                raise WrongResultError(f"no stream: {head[:300]!r}")
            head += chunk
        self.socket.setblocking(False)
        self.chunks: list[tuple[float, bytes]] = []

    def read(self) -> None:
        chunk = self.socket.recv(16_384)  # a large buffer is mapped anew each time
        self.chunks.append((clock(), chunk))

    def arrivals(self) -> dict[int, float]:
        """Number of each record -> when its event was complete."""
        found: dict[int, float] = {}
        rest = b""
        for at, chunk in self.chunks:
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                for number in _NUMBER.findall(event):
                    found[int(number)] = at
        return found


class Writer:
    """Sends at fixed times on one connection; answers are read when they come."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: list[float] = []
        self.acked: list[float] = []
        self._received = b""

    def send(self) -> None:
        body = b'{"records":[{"data":%s}]}' % payload(len(self.sent))
        request = (
            b"POST /v0/topics/%s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (TOPIC.encode(), len(body), body)
        )
        self.sent.append(clock())
        self.socket.sendall(request)

    def read(self) -> None:
        chunk = self.socket.recv(65_536)
        if not chunk:
            raise WrongResultError("the server closed the writer's connection")
        self._received += chunk
        *answers, self._received = self._received.split(b"HTTP/1.1 ")
        for answer in [*answers, self._received]:
            if answer and not answer.startswith((b"200 ", b"201 ")):
                raise WrongResultError(f"a write was refused: {answer[:300]!r}")
        self.acked += [clock()] * chunk.count(b"HTTP/1.1 ")


def subscribe(port: int, watchers: int) -> list[Watcher]:
    with Http(port) as http:
        http.call("PUT", f"/v0/topics/{TOPIC}", {})
        made = []
        for _ in range(watchers):
            session = http.call("POST", "/v0/watch", {"topics": {TOPIC: {"tail": True}}})
            made.append(Watcher(port, session["stream_url"]))
        return made


def run_loop(writer: Writer, watchers: list[Watcher], rate: float, seconds: float) -> None:
    poll = select.epoll()
    readers: dict[int, Writer | Watcher] = {writer.socket.fileno(): writer}
    readers |= {watcher.socket.fileno(): watcher for watcher in watchers}
    for descriptor in readers:
        poll.register(descriptor, select.EPOLLIN)
    started = clock()
    writes = max(int(rate * seconds), 2)
    last_at = started + writes / rate + GRACE_S
    while True:
        now = clock()
        if len(writer.sent) < writes:
            due = started + len(writer.sent) / rate
            if now >= due:
                writer.send()
                continue
            wait = due - now
        elif now > last_at or _is_all_there(writes, writer, watchers):
            return
        else:
            wait = 0.02
        for descriptor, _ in poll.poll(wait, 4096):
            readers[descriptor].read()


def _is_all_there(writes: int, writer: Writer, watchers: list[Watcher]) -> bool:
    last = b'"id":%d,"kind"' % (writes - 1)
    if len(writer.acked) < writes:
        return False
    return all(watcher.chunks and last in watcher.chunks[-1][1] for watcher in watchers)


def main(port: str, pid: str, watchers: str, rate: str, seconds: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    streams = subscribe(int(port), int(watchers))
    writer = Writer(int(port))
    before = family_cpu_s_of(int(pid))
    started = clock()
    run_loop(writer, streams, float(rate), float(seconds))
    elapsed_s = clock() - started
    server_cpu_s = family_cpu_s_of(int(pid)) - before
    first = int(len(writer.sent) * WARM_UP_SHARE)
    latencies: list[float] = []
    for stream in streams:
        arrived = stream.arrivals()
        if len(arrived) != len(writer.sent):
            raise WrongResultError(f"{len(arrived)} of {len(writer.sent)} records were delivered")
        latencies += [(arrived[n] - writer.sent[n]) * 1e6 for n in range(first, len(writer.sent))]
    acks = [(a - s) * 1e6 for a, s in zip(writer.acked, writer.sent, strict=True)][first:]
    told = {
        "p50_us": percentile(latencies, 50),
        "p99_us": percentile(latencies, 99),
        "p999_us": percentile(latencies, 99.9),
        "max_us": max(latencies),
        "ack_p50_us": percentile(acks, 50),
        "ack_p99_us": percentile(acks, 99),
        "deliveries": len(writer.sent) * len(streams),
        "elapsed_s": elapsed_s,
        "server_cpu_s": server_cpu_s,
        "client_cpu_s": time.process_time(),
        "payload_bytes": PAYLOAD_BYTES,
    }
    print(json.dumps(told))


def command(port: int, pid: int, watchers: int, rate: float, seconds: float) -> list[str]:
    words = (str(port), str(pid), str(watchers), str(rate), str(seconds))
    return [sys.executable, "-m", "bench.server.delivery", *words]


def measure(words: Sequence[str]) -> dict[str, float]:
    """Run it, from the benchmark's own process."""
    done = subprocess.run(
        words,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise WrongResultError(f"the delivery failed: {done.stderr[-800:]}")
    told: dict[str, float] = json.loads(done.stdout)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
