"""Load from programs that others wrote: wrk for HTTP, redis-benchmark for Redis."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Load:
    """What a server did in one turn, and what it cost."""

    operations: int
    elapsed_s: float
    cpu_s: float
    p50_us: float = 0.0
    p99_us: float = 0.0

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
        before = self._server.cpu_s()
        done = run_quietly(self.command(seconds))
        cpu_s = self._server.cpu_s() - before
        told = json.loads(done.rpartition("RESULT ")[2])
        if told["refused"] or told["broken"]:
            raise WrongResultError(f"wrk: {told}; {self._server.last_words()}")
        records = told["requests"] * self._batch
        self.acked += records
        self.sent_at_most += records + self._connections * self._batch
        return Load(
            records, told["elapsed_us"] / 1e6, cpu_s, float(told["p50_us"]), float(told["p99_us"])
        )

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
        least = self._clients * self._pipeline
        return self._counted(max(int(self._rate * seconds), least))

    def _counted(self, operations: int) -> list[str]:
        return [
            *("redis-benchmark", "-h", "127.0.0.1", "-p", str(self._server.port), "--csv"),
            *("-c", str(self._clients), "-P", str(self._pipeline), "-n", str(operations)),
            *("XADD", self._topic, "*", FIELD, PAYLOADS[1].decode()),
        ]

    def __call__(self, seconds: float) -> Load:
        if not self._rate:
            self._turn(self._clients * self._pipeline * 20)
        return self._turn(max(int(self._rate * seconds), self._clients * self._pipeline))

    def _turn(self, operations: int) -> Load:
        before = self._server.cpu_s()
        lines = run_quietly(self._counted(operations)).splitlines()
        cpu_s = self._server.cpu_s() - before
        # The first column is the command as it was given, quotes and all; the last seven are ours.
        row = dict(zip(*(line.strip('"').split('","')[-7:] for line in lines), strict=True))
        self._rate = float(row["rps"])
        self.acked += operations
        self.sent_at_most += operations + self._clients * self._pipeline
        return Load(
            operations,
            operations / self._rate,
            cpu_s,
            float(row["p50_latency_ms"]) * 1e3,
            float(row["p99_latency_ms"]) * 1e3,
        )

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
