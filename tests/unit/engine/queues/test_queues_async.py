"""Queues on an event loop: the same steps, many workers at once, and workers who give up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.core.errors import NotAQueueError
from tests.rig.claim_windows import end_window
from tests.unit.engine.conftest import SMALL


async def opened(directory: Path, **settings: Any) -> headwater.AsyncDatabase:
    db = await headwater.open_async(directory, settings=SMALL)
    await db.create("jobs", type="queue", **settings)
    return db


async def settled(db: headwater.AsyncDatabase, seqs: list[int]) -> None:
    assert (await db.ack("jobs", "one", seqs)).seqs == seqs


def test_every_queue_verb_works_on_an_event_loop(tmp_path: Path) -> None:
    async def story() -> None:
        async with await opened(tmp_path / "data", leases_durable=True) as db:
            await db.append("jobs", [{"data": n} for n in range(4)])
            claimed = await db.claim("jobs", "one", 3)
            assert claimed.seqs == [1, 2, 3]
            ids = [job.lease_id for job in claimed.jobs]
            assert (await db.extend("jobs", "one", [1], lease_ms=90_000)).seqs == [1]
            assert (await db.nack("jobs", "one", [2], delay_ms=10**6)).in_flight == 2
            assert (await db.ack("jobs", "one", [1, 3], lease_ids=[ids[0], 99])).skipped == [3]
            assert await db.queue_stats("jobs") == (1, 1, 1, 0, 0)
            await db.create("log")
            with pytest.raises(NotAQueueError):
                await db.claim("log", "one")
        async with await opened(tmp_path / "data", leases_durable=True) as db:
            assert await db.queue_stats("jobs") == (1, 1, 1, 0, 0)
            await settled(db, [3])

    asyncio.run(story())


@pytest.mark.claims(396)
@pytest.mark.parametrize("keyed", [None, "tag"])
def test_claims_of_one_window_share_what_is_there_and_leavers_harm_nobody(
    tmp_path: Path, keyed: str | None
) -> None:
    async def story() -> None:
        settings = {"claim_jitter_ms": 40, "fifo_key": keyed}
        async with await opened(tmp_path / "data", **settings) as db:
            await db.append("jobs", [{"data": n, "tag": f"k{n}"} for n in range(12)])
            await db.checkpoint()
            leaver = asyncio.create_task(db.claim("jobs", "leaver", 100))
            await asyncio.sleep(0)
            workers = [
                asyncio.create_task(db.claim("jobs", f"w{n}", want))
                for n, want in enumerate((30, 20, 10))
            ]
            got = [len((await worker).seqs) for worker in workers]
            share = len((await leaver).seqs)
            assert sum(got) + share == 12
            assert share == max(*got, share)
            for node in ("leaver", "w0", "w1", "w2"):
                await db.nack("jobs", node, list(range(1, 13)))
            await db.create("jobs", type="queue", claim_jitter_ms=5_000)
            quitter = asyncio.create_task(db.claim("jobs", "quitter", 12))
            worker = asyncio.create_task(db.claim("jobs", "stays", 12))
            topic = db.engine.topic("jobs")
            assert topic.queue is not None
            while len(topic.queue.window) < 2:
                await asyncio.sleep(0)
            quitter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await quitter
            end_window(topic)
            assert len((await worker).seqs) == 12, "who left takes nothing along"

    asyncio.run(story())


def test_a_cancelled_claim_by_key_does_not_stop_the_queue(tmp_path: Path) -> None:
    async def story() -> None:
        async with await opened(tmp_path / "data", fifo_key="tag") as db:
            await db.append("jobs", [{"data": n, "tag": "k"} for n in range(30)])
            await db.checkpoint()
            for turns in range(12):
                quitter = asyncio.create_task(db.claim("jobs", "one", 5))
                for _ in range(turns):
                    await asyncio.sleep(0)
                quitter.cancel()
                (got,) = await asyncio.gather(quitter, return_exceptions=True)
                if not isinstance(got, BaseException):  # it was quicker
                    await db.nack("jobs", "one", got.seqs or [1])
            claimed = await asyncio.wait_for(db.claim("jobs", "two", 5), 10)
            assert claimed.seqs == [1]
            assert (await db.ack("jobs", "two", [1])).seqs == [1]
            assert (await db.claim("jobs", "two", 5)).seqs == [2]

    asyncio.run(story())
