"""An asyncio program with its own event log: many writers, and a follower that sees everything.

Run it with `python examples/asyncio_app.py`. It uses a temporary directory and no network.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import headwater
from headwater import Tombstone

WRITERS = 20
EACH = 10


async def write(db: headwater.AsyncDatabase, writer: int) -> None:
    """Each `await` returns when the record is on stable storage.

    Writers that wait at the same time share one write and one sync, so twenty of them are hardly
    slower than one.
    """
    for number in range(EACH):
        await db.append("clicks", {"data": {"n": number}, "node": f"writer-{writer}"})


async def follow(db: headwater.AsyncDatabase, expected: int) -> dict[str, int]:
    """Counts records by writer, from the first one, as they come."""
    counts: dict[str, int] = {}
    async for item in db.watch("clicks"):
        if isinstance(item, Tombstone):
            # Only topics with a cap or an age limit lose records; the gap is always told.
            print(f"missed {item.missed_estimate} records ({item.reason})")
            continue
        assert item.node is not None
        counts[item.node] = counts.get(item.node, 0) + 1
        if sum(counts.values()) == expected:
            break
    return counts


async def main(directory: Path) -> None:
    # One event loop owns the database; call it from that loop only.
    async with await headwater.open_async(directory) as db:
        await db.create("clicks")
        follower = asyncio.create_task(follow(db, WRITERS * EACH))
        await asyncio.gather(*(write(db, writer) for writer in range(WRITERS)))
        counts = await follower
        print(f"{sum(counts.values())} records from {len(counts)} writers")

        # A long poll: returns at once when there is something, otherwise after `wait_ms`.
        head = (await db.state("clicks")).head_seq
        diff = await db.diff("clicks", head, wait_ms=100)
        print(f"nothing new: {diff.caught_up and not diff.records}")

        # A reader that is also a writer can leave out what it wrote itself.
        others = await db.diff("clicks", 0, limit=1000, node="writer-0")
        print(f"{len(others.records)} records from others")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="headwater-example-") as scratch:
        asyncio.run(main(Path(scratch) / "data"))
