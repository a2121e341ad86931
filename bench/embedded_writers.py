"""Appending through the embedded library: a thread on one face, 64 coroutines on the other.

A turn ends with a checkpoint, outside its time, so that the next contender does not pay for what
this one left to be done; the rate with the checkpoint in it is told as well.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import headwater
from bench.embedded import batch_from, check_directory, walk
from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.turns import Turn
from bench.writers import new_loop
from headwater.config.engine import EngineSettings
from headwater.wal.sharded import ShardedWal

clock = time.perf_counter
SAMPLES_MAX = 20_000


def sync_count(wal: ShardedWal | None) -> int:
    assert wal is not None
    return sum(shard.counters.syncs for shard in wal.shards)


class Absorbing:
    """Sums over all turns of a contender: what it wrote, and the time with checkpoints in it."""

    def __init__(self) -> None:
        self.records = 0
        self.elapsed_s = 0.0
        self.cpu_s = 0.0

    def add(self, records: int, elapsed_s: float, cpu_s: float) -> None:
        self.records += records
        self.elapsed_s += elapsed_s
        self.cpu_s += cpu_s

    @property
    def rate(self) -> float:
        return self.records / self.elapsed_s

    @property
    def cpu_us(self) -> float:
        """Of this process, all threads, a record."""
        return self.cpu_s / self.records * 1e6


class BlockingFace:
    """One database; every contender has its own topic in it."""

    def __init__(self, directory: Path, settings: EngineSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._database = headwater.open(directory, settings=settings)
        self._heads: dict[str, int] = {}

    def writer(self, durability: str, batch: int) -> BlockingWriter:
        topic = f"{durability}-{batch}"
        self._database.create(topic, durability=durability)
        return BlockingWriter(self._database, topic, batch, self._heads)

    def close_and_check(self) -> None:
        self._database.close()
        check_directory(self._directory, self._settings, self._heads)


class BlockingWriter:
    def __init__(
        self, database: headwater.Database, topic: str, batch: int, heads: dict[str, int]
    ) -> None:
        self._database = database
        self._topic = topic
        self._batch = batch
        self._heads = heads
        self.absorbed = Absorbing()

    def __call__(self, seconds: float) -> Turn:
        append, topic, batch = self._database.append, self._topic, self._batch
        wal = self._database.engine.core.wal
        head = first = self._heads.get(topic, 0)
        latencies: list[float] = []
        syncs = sync_count(wal)
        cpu = time.process_time()
        started = before = clock()
        while True:
            head = append(topic, batch_from(head + 1, batch)).head_seq
            now = clock()
            latencies.append((now - before) * 1e6)
            before = now
            if now >= started + seconds:
                break
        syncs = sync_count(wal) - syncs
        self._database.checkpoint()
        self.absorbed.add(head - first, clock() - started, time.process_time() - cpu)
        self._heads[topic] = head
        return Turn(head - first, before - started, syncs, latencies[:SAMPLES_MAX])


class AsyncFace:
    """The awaitable face on one loop, which runs while it is somebody's turn."""

    def __init__(self, directory: Path, settings: EngineSettings) -> None:
        self._directory = directory
        self._settings = settings
        self.loop = new_loop()
        self.database = self.loop.run_until_complete(
            headwater.open_async(directory, settings=settings)
        )
        self._writers: list[AsyncWriters] = []

    def writer(self, durability: str, batch: int, count: int) -> AsyncWriters:
        topic = f"{durability}-{batch}"
        self.loop.run_until_complete(self.database.create(topic, durability=durability))
        self._writers.append(AsyncWriters(self, topic, batch, count))
        return self._writers[-1]

    def close_and_check(self) -> None:
        self.loop.run_until_complete(self.database.close())
        self.loop.close()
        with headwater.open(self._directory, settings=self._settings) as database:
            for writers in self._writers:
                writers.check(database)


class AsyncWriters:
    """Coroutines that share a topic; each waits for its ack before it writes again."""

    def __init__(self, face: AsyncFace, topic: str, batch: int, count: int) -> None:
        self._face = face
        self._topic = topic
        self._batch = batch
        self._count = count
        self._next = 1
        self._acked: dict[int, int] = {}
        """First seq of each write -> the number of its first payload."""
        self.absorbed = Absorbing()

    def __call__(self, seconds: float) -> Turn:
        return self._face.loop.run_until_complete(self._turn(seconds))

    async def _turn(self, seconds: float) -> Turn:
        database = self._face.database
        wal = database.engine.core.wal
        latencies: list[float] = []
        writes = len(self._acked)
        syncs = sync_count(wal)
        cpu = time.process_time()
        started = clock()
        deadline = started + seconds
        await asyncio.gather(*(self._write(deadline, latencies) for _ in range(self._count)))
        elapsed = clock() - started
        syncs = sync_count(wal) - syncs
        await database.checkpoint()
        records = (len(self._acked) - writes) * self._batch
        self.absorbed.add(records, clock() - started, time.process_time() - cpu)
        return Turn(records, elapsed, syncs, latencies)

    async def _write(self, deadline: float, latencies: list[float]) -> None:
        append, topic, batch = self._face.database.append, self._topic, self._batch
        before = clock()
        while True:
            number = self._next
            self._next = number + batch
            self._acked[(await append(topic, batch_from(number, batch))).first_seq] = number
            now = clock()
            if len(latencies) < SAMPLES_MAX:
                latencies.append((now - before) * 1e6)
            before = now
            if now >= deadline:
                return

    def check(self, database: headwater.Database) -> None:
        expected = [
            PAYLOADS[(number + place) % 1000]
            for _, number in sorted(self._acked.items())
            for place in range(self._batch)
        ]
        found = [record.data_json for page in walk(database, self._topic) for record in page]
        if found != expected:
            raise WrongResultError(f"{self._topic}: acknowledged records and records read differ")
