"""A cold store that hangs delays whoever reads from it, and nobody else (claim 289, I14)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.disk import PosixDisk
from headwater.engine.async_database import AsyncDatabase
from headwater.engine.opening import open_database_async
from headwater.testing import Fault, FaultDisk, Verb

T = TypeVar("T")

SMALL = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=64 * 1024),
    segments=SegmentSettings(segment_max_events=5, hot_retain_segments=1),
    checkpoint_interval_ms=3_600_000,
    cache_bytes=0,
    reader_threads=2,
)


@dataclass
class HangingStore:
    """Calls about the cold directory wait until they are let go."""

    disk: FaultDisk
    entered: threading.Semaphore
    let_go: threading.Event

    def hang(self, *verbs: Verb) -> None:
        def wait() -> None:
            self.entered.release()
            assert self.let_go.wait(30)

        self.disk.add(Fault(verbs, None, path="*/cold/*", always=True, before=wait))

    async def someone_waits(self) -> None:
        await soon(asyncio.to_thread(self.entered.acquire, timeout=30))


async def soon(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, 30)


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[AsyncDatabase, HangingStore]]:
    """A topic with most of its records in the cold store, and one that is all hot."""
    (tmp_path / "cold").mkdir()
    disk = FaultDisk(PosixDisk())
    settings = replace(SMALL, cold_url=str(tmp_path / "cold"))
    store = HangingStore(disk, threading.Semaphore(0), threading.Event())
    db = await open_database_async(tmp_path / "data", settings=settings, disk=disk)
    try:
        for _ in range(6):
            await db.append("old", [{"data": n} for n in range(5)])
        await db.append("new", {"data": 1})
        await db.checkpoint()
        await asyncio.to_thread(db.engine._housekeeping.round)
        assert sum(segment.is_cold for segment in db.engine.topic("old").segments) >= 4
        yield db, store
    finally:
        store.let_go.set()
        await db.close()


async def check_writes_and_live_reads(db: AsyncDatabase) -> None:
    for name in ("old", "new", "another"):
        for number in range(20):
            appended = await soon(db.append(name, {"data": number}))
            diff = await soon(db.diff(name, appended.last_seq - 1))
            assert [record.data for record in diff.records] == [number]


@pytest.mark.claims(289)
def test_writes_and_live_reads_go_on_while_every_cold_read_hangs(tmp_path: Path) -> None:
    async def body() -> None:
        async with opened(tmp_path) as (db, store):
            store.hang(Verb.OPEN, Verb.READ)
            readers = [asyncio.create_task(db.diff("old", 0)) for _ in range(5)]
            for _ in range(SMALL.reader_threads):
                await store.someone_waits()
            watching = asyncio.ensure_future(anext(db.watch("old", tail=True)))
            await check_writes_and_live_reads(db)
            watched = await soon(watching)
            assert watched is not None
            assert not any(reader.done() for reader in readers)
            store.let_go.set()
            for reader in readers:
                diff = await soon(reader)
                assert [record.seq for record in diff.records][:30] == list(range(1, 31))
                assert diff.cold_segments_read >= 4

    asyncio.run(body())


@pytest.mark.claims(289)
def test_writes_and_live_reads_go_on_while_a_relocation_hangs(tmp_path: Path) -> None:
    async def body() -> None:
        async with opened(tmp_path) as (db, store):
            for _ in range(4):
                await db.append("old", [{"data": n} for n in range(5)])
            await db.checkpoint()
            store.hang(Verb.CREATE, Verb.WRITE)
            keeping = asyncio.create_task(asyncio.to_thread(db.engine._housekeeping.round))
            await store.someone_waits()
            await check_writes_and_live_reads(db)
            assert not keeping.done()
            store.let_go.set()
            await soon(keeping)
            diff = await soon(db.diff("old", 0, limit=1_000))
            assert [record.seq for record in diff.records] == list(range(1, 71))

    asyncio.run(body())
