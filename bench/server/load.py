"""Load from programs that others wrote: wrk for HTTP, redis-benchmark for Redis."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.registry import MissingToolError
from bench.server.clients import (
    FIELD,
    check_known,
    headwater_payloads,
    redis_payloads,
)
from bench.server.processes import INSTALL, RedisServer, ServerProcess

SCRIPT = Path(__file__).with_name("post.lua")
_RATE: Final = re.compile(r"throughput summary: ([\d.]+) requests per second")
_SHARE: Final = re.compile(r"([\d.]+)% <= ([\d.]+) milliseconds \(cumulative count")


@dataclass(frozen=True, slots=True)
class Load:
    """What a server did in one turn, and what it cost."""

    operations: int
    elapsed_s: float
    cpu_s: float
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    max_us: float = 0.0
    client_cpu_s: float = 0.0
    """Of the program that makes the load."""
    errors: int = 0

    @property
    def rate(self) -> float:
        return self.operations / self.elapsed_s

    @property
    def cpu_us(self) -> float:
        """CPU time of the server for one operation."""
        return self.cpu_s / self.operations * 1e6 if self.operations else 0.0


def needs_wrk() -> None:
    if shutil.which("wrk") is None:
        raise MissingToolError(f"wrk makes the load and is not installed: {INSTALL}")


def write_body(path: Path, records: int) -> Path:
    """The request body for wrk, of `records` payloads; the first is the one that Redis gets."""
    batch = b",".join(b'{"data":%s}' % payload for payload in PAYLOADS[1 : 1 + records])
    path.write_bytes(b'{"records":[%s]}' % batch)
    return path


def client_cpu_s() -> float:
    """CPU seconds of all programs that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_wrk(
    server: ServerProcess, command: Sequence[str], batch: int
) -> tuple[Load, dict[str, Any]]:
    """One turn of wrk with a script that ends in `result.lua`; `batch` operations a request."""
    client, before = client_cpu_s(), server.cpu_s()
    done = run_quietly(command)
    cpu_s = server.cpu_s() - before
    told: dict[str, Any] = json.loads(done.rpartition("RESULT ")[2])
    load = Load(
        (told["requests"] - told["refused"]) * batch,
        told["elapsed_us"] / 1e6,
        cpu_s,
        float(told["p50_us"]),
        float(told["p99_us"]),
        float(told["p999_us"]),
        float(told["max_us"]),
        client_cpu_s=client_cpu_s() - client,
        errors=told["refused"] + told["broken"],
    )
    return load, told


def run_redis_benchmark(server: RedisServer, words: Sequence[str], operations: int) -> Load:
    """One turn of so many operations; `words` are options and the command."""
    client, before = client_cpu_s(), server.cpu_s()
    said = run_quietly(redis_benchmark(server, words, operations))
    cpu_s = server.cpu_s() - before
    found = _RATE.search(said)
    if found is None:
        raise WrongResultError(f"redis-benchmark: {said[-500:]}")
    # The distribution by percentile comes first; its steps halve what is left: 99.902 %, 99.951 %.
    distribution = said[: said.rindex("Cumulative distribution")]
    shares = [(float(share), float(ms) * 1e3) for share, ms in _SHARE.findall(distribution)]
    p50, p99, p999, longest = (
        next(us for share, us in shares if share >= least) for least in (50, 99, 99.9, 100)
    )
    rate = float(found[1])
    return Load(
        operations,
        operations / rate,
        cpu_s,
        p50,
        p99,
        p999,
        longest,
        client_cpu_s=client_cpu_s() - client,
    )


def redis_benchmark(server: RedisServer, words: Sequence[str], operations: int) -> list[str]:
    address = ("-h", "127.0.0.1", "-p", str(server.port))
    return ["redis-benchmark", *address, "-n", str(operations), *words]


class HttpWriters:
    """wrk, one thread: connections that POST and wait for the answer."""

    def __init__(
        self, server: ServerProcess, body: Path, topic: str, connections: int, batch: int
    ) -> None:
        self._server = server
        self._body = body
        self._topic = topic
        self._connections = connections
        self._batch = batch
        self.acked = 0
        self.sent_at_most = 0
        """Acknowledged, and what may have been on its way when wrk stopped."""

    def command(self, seconds: float) -> list[str]:
        return [
            *("wrk", "-t1", f"-c{self._connections}", f"-d{max(round(seconds), 1)}s"),
            *("-s", str(SCRIPT), f"http://127.0.0.1:{self._server.port}", "--"),
            *(str(self._body), f"/v0/topics/{self._topic}"),
        ]

    def __call__(self, seconds: float) -> Load:
        load, told = run_wrk(self._server, self.command(seconds), self._batch)
        if load.errors:
            raise WrongResultError(f"wrk: {told}; {self._server.last_words()}")
        self.acked += load.operations
        self.sent_at_most += load.operations + self._connections * self._batch
        return load

    def check(self) -> None:
        found = headwater_payloads(self._server.port, self._topic)
        check_known(found, self.acked, self.sent_at_most, "Headwater")


class StreamWriters:
    """redis-benchmark: clients that send pipelines of XADD and wait for the answers."""

    def __init__(self, server: RedisServer, topic: str, clients: int, pipeline: int) -> None:
        self._server = server
        self._topic = topic
        self._clients = clients
        self._pipeline = pipeline
        self._rate = 0.0
        self.acked = 0
        self.sent_at_most = 0
        """It may send a pipeline more on each connection than it was asked for."""

    def command(self, seconds: float) -> list[str]:
        """For about so long: it counts operations and does not look at clocks."""
        return redis_benchmark(self._server, self._words, self._operations(seconds))

    @property
    def _words(self) -> list[str]:
        return [
            *("-c", str(self._clients), "-P", str(self._pipeline)),
            *("XADD", self._topic, "*", FIELD, PAYLOADS[1].decode()),
        ]

    def _operations(self, seconds: float) -> int:
        return max(int(self._rate * seconds), self._clients * self._pipeline)

    def __call__(self, seconds: float) -> Load:
        if not self._rate:
            self._turn(self._clients * self._pipeline * 20)
        return self._turn(self._operations(seconds))

    def _turn(self, operations: int) -> Load:
        load = run_redis_benchmark(self._server, self._words, operations)
        self._rate = load.rate
        self.acked += operations
        self.sent_at_most += operations + self._clients * self._pipeline
        return load

    def check(self) -> None:
        found = redis_payloads(self._server.port, self._topic)
        check_known(found, self.acked, self.sent_at_most, "Redis")


def run_quietly(command: Sequence[str]) -> str:
    """Its output; what it says about its progress is thrown away."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise WrongResultError(f"{command[0]} ended with {done.returncode}: {done.stdout[-500:]}")
    return done.stdout
