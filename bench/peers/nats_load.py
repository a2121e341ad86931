"""Connections that publish to JetStream and wait for its answer, in a process of their own.

    python -m bench.peers.nats_load PORT STREAM CONNECTIONS SECONDS [SUBJECTS]

With SUBJECTS each message goes to one of so many subjects of the stream, at random: STREAM.0, ...
The tool NATS has for this is not in Debian. This one writes the protocol by hand on uvloop, with
one message under way a connection, as wrk and redis-benchmark have. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import uvloop

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.peers.nats import CONNECT, NatsServer, make_stream, nats_payloads
from bench.server.clients import check_known
from bench.server.load import Load, client_cpu_s

PING: Final = b"PING\r\n"
PATIENCE_S: Final = 20


class Publisher(asyncio.Protocol):
    """One connection. Publishes, waits for the answer, publishes the next, until the deadline."""

    def __init__(self, subjects: Sequence[bytes], number: int, deadline: float) -> None:
        self._inbox = b"_INBOX.%d" % number
        self._subjects = subjects
        self._subscribe = b"%sSUB %s 1\r\n" % (CONNECT, self._inbox)
        self._deadline = deadline
        self._transport: asyncio.Transport | None = None
        self._got = b""
        self._sent_at = 0.0
        self.waits_us: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by its class
        self._transport.write(self._subscribe)
        self._publish()

    def _publish(self) -> None:
        assert self._transport is not None
        self._sent_at = time.perf_counter()
        payload = PAYLOADS[len(self.waits_us) % len(PAYLOADS)]
        subject = random.choice(self._subjects)
        self._transport.write(
            b"PUB %s %s %d\r\n%s\r\n" % (subject, self._inbox, len(payload), payload)
        )

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._got += data
        if PING in self._got:  # before or behind an answer
            self._transport.write(b"PONG\r\n")
            self._got = self._got.replace(PING, b"")
        if b"error" in self._got or b"-ERR" in self._got:
            self.ended.set_exception(WrongResultError(f"NATS: {self._got[:300]!r}"))
            self._transport.close()
        elif b'"seq":' in self._got and self._got.endswith(b"}\r\n"):
            self._got = b""
            now = time.perf_counter()
            self.waits_us.append((now - self._sent_at) * 1e6)
            if now < self._deadline:
                self._publish()
            else:
                self.ended.set_result(None)
                self._transport.close()


async def publish(
    port: int, stream: str, connections: int, seconds: float, subjects: int = 0
) -> dict[str, float]:
    names = [b"%s.%d" % (stream.encode(), each) for each in range(subjects)] or [stream.encode()]
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    deadline = started + seconds
    publishers = [Publisher(names, number, deadline) for number in range(connections)]
    for publisher in publishers:
        await loop.create_connection(partial(_the, publisher), "127.0.0.1", port)
    async with asyncio.timeout(seconds + PATIENCE_S):
        await asyncio.gather(*(publisher.ended for publisher in publishers))
    elapsed_s = time.perf_counter() - started
    waits = sorted(wait for publisher in publishers for wait in publisher.waits_us)
    return {
        "acked": len(waits),
        "elapsed_s": elapsed_s,
        "p50_us": waits[len(waits) // 2],
        "p99_us": waits[int(len(waits) * 0.99)],
        "p999_us": waits[int(len(waits) * 0.999)],
        "max_us": waits[-1],
    }


def _the(publisher: Publisher) -> Publisher:
    return publisher


class StreamPublishers:
    """A contender: so many connections publish to a stream of their own.

    With `subjects` to so many subjects of it, at random; the stream is there already.
    """

    def __init__(
        self, server: NatsServer, stream: str, connections: int, subjects: int = 0
    ) -> None:
        self._server = server
        self._stream = stream
        self._connections = connections
        self._subjects = subjects
        self.acked = 0
        if not subjects:
            make_stream(server.port, stream)

    def command(self, seconds: float) -> list[str]:
        words = ("-m", "bench.peers.nats_load", str(self._server.port), self._stream)
        more = (str(self._subjects),) if self._subjects else ()
        return [sys.executable, *words, str(self._connections), str(seconds), *more]

    def __call__(self, seconds: float) -> Load:
        client, before = client_cpu_s(), self._server.cpu_s()
        done = subprocess.run(
            self.command(seconds),
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise WrongResultError(f"publishing failed: {done.stderr[-800:]}")
        told = json.loads(done.stdout)
        self.acked += told["acked"]
        cpu_s = self._server.cpu_s() - before
        return Load(
            told["acked"],
            told["elapsed_s"],
            cpu_s,
            told["p50_us"],
            told["p99_us"],
            told["p999_us"],
            told["max_us"],
            client_cpu_s=client_cpu_s() - client,
        )

    def check(self) -> None:
        found = nats_payloads(self._server.port, self._stream)
        check_known(found, self.acked, self.acked, "NATS")


def main(port: str, stream: str, connections: str, seconds: str, subjects: str = "0") -> None:
    told = publish(int(port), stream, int(connections), float(seconds), int(subjects))
    print(json.dumps(uvloop.run(told)))


if __name__ == "__main__":
    main(*sys.argv[1:])
