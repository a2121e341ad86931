"""Who is measured: each side writes and reads through a client process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.kafka.brokers import ApacheKafka, HeadwaterBroker, missing
from bench.kafka.null_broker import NullBroker
from bench.log_under_test import WrongResultError
from bench.measure_server import note, note_command
from bench.registry import Run
from bench.server.load import Load, client_cpu_s
from bench.server.processes import RedisServer, ServerProcess, has_redis, versions

CLIENT_TIMEOUT_S = 600
WARM_UP_MESSAGES = 100_000
"""Java compiles what runs often; nobody is measured before that."""


@dataclass(frozen=True, slots=True)
class Side:
    """One server, and the words for its client."""

    name: str
    server: ServerProcess
    durability: str
    produce: str = "produce"
    consume: str = "consume"

    @property
    def stores(self) -> bool:
        return not isinstance(self.server, NullBroker)

    @property
    def address(self) -> str:
        if isinstance(self.server, HeadwaterBroker | ApacheKafka | NullBroker):
            return self.server.bootstrap
        return str(self.server.port)

    def run(self, kind: str, topic: str, size: int, count: int, *more: float) -> Load:
        """One client, from its start to its end. What did not come through counts as a failure."""
        words = [sys.executable, "-m", "bench.kafka.load", kind, self.address, topic]
        words += [str(size), str(count), *map(str, more)]
        client, cpu = client_cpu_s(), self.server.cpu_s()
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=CLIENT_TIMEOUT_S
        )
        if done.returncode:
            raise WrongResultError(f"{self.name}: {done.stderr}")
        told = json.loads(done.stdout)
        if told["failed"] or told["left"]:
            raise WrongResultError(f"{self.name}, {kind}: {told['left']} missing {told['failed']}")
        return Load(
            told["operations"],
            told["elapsed_s"],
            self.server.cpu_s() - cpu,
            told.get("p50_us", 0.0),
            told.get("p99_us", 0.0),
            client_cpu_s=client_cpu_s() - client,
        )


@contextmanager
def sides(run: Run, *, limit: bool = False) -> Iterator[list[Side]]:
    """Headwater last. Beside it Apache Kafka, as it is and flushing each batch; or Redis.

    With `limit`, for producers, first a broker that stores nothing.
    """
    with ExitStack() as ends:
        found: list[Side] = []
        if limit:
            nothing = NullBroker(run.directory / "nothing")
            ends.enter_context(nothing)
            found.append(Side(nothing.name, nothing, "none"))
        why_not = missing()
        if why_not is None:
            for directory, flushes, durability in (
                ("kafka", False, "no fsync (Kafka's default)"),
                ("kafka-flushing", True, "fsync"),
            ):
                kafka = ApacheKafka(run.directory / directory, flushes=flushes)
                ends.enter_context(kafka)
                found.append(Side(kafka.name, kafka, durability))
        else:
            note(run, why_not)
            if has_redis():
                redis = RedisServer(run.directory / "redis")
                ends.enter_context(redis)
                note(run, *versions())
                found.append(Side("Redis Streams", redis, "fsync", "xadd", "xrange"))
        ours = HeadwaterBroker(run.directory / "headwater")
        ends.enter_context(ours)
        found.append(Side("Headwater", ours, "fsync"))
        home = os.environ.get("KAFKA_HOME") or "KAFKA_HOME"
        for side in found:
            note_command(run, [word.replace(home, "KAFKA_HOME") for word in side.server.command])
            if not run.quick:
                side.run(side.produce, "warm-up", 100, WARM_UP_MESSAGES)
        yield found
