"""Routers: copies a second, and what a copy costs the log. Part of `make bench-queue`."""

from __future__ import annotations

import time
from typing import Final

import headwater
from bench.embedded import DATA, batch_from, told
from bench.log_under_test import WrongResultError
from bench.registry import QUEUE, Row, Run, benchmark

FANS: Final = (1, 10, 100, 1_000)
COPIES: Final = 200_000
"""About as many for every fan, so that each is measured for about as long."""
BATCH: Final = 100
PATIENCE_S: Final = 120.0


@benchmark("queue-routers", "How many copies a second, and what does the log hold of them?", QUEUE)
def router_fan(run: Run) -> list[Row]:
    fans = FANS[:2] if run.quick else FANS
    return [row for fan in fans for row in _fan(run, fan, run.size(COPIES, 1_000) // fan)]


def _fan(run: Run, fan: int, records: int) -> list[Row]:
    """`records` into one topic from which `fan` routers copy, until the last copy is readable."""
    directory = run.directory / f"fan-{fan}"
    with headwater.open(directory) as db:
        db.create("source")
        for number in range(fan):
            db.put_router(f"router-{number}", source="source", dest=f"dest-{number}")
        wal = db.engine.core.wal
        assert wal is not None
        frames_before = sum(shard.counters.frames for shard in wal.shards)
        began = time.perf_counter()
        for first in range(0, records, BATCH):
            db.append("source", batch_from(first + 1, min(BATCH, records - first)))
        written = time.perf_counter()
        _await_copies(db, fan, records)
        ended = time.perf_counter()
        frames = sum(shard.counters.frames for shard in wal.shards) - frames_before
        for number in {0, fan - 1}:
            found = db.diff(f"dest-{number}", records - 1).records
            if [record.data for record in found] != [DATA[records % len(DATA)]]:
                raise WrongResultError(f"the last copy in dest-{number} is not the last record")
    conditions = told("fsync", routers=fan, records=records, batch=BATCH)
    spent = f"writing alone {written - began:.2f} s, until the last copy {ended - began:.2f} s"
    return [
        Row(
            f"1 to {fan:,}: copies",
            records * fan / (ended - began),
            "copies/s",
            {**conditions, "time": spent},
        ),
        Row(f"1 to {fan:,}: frames in the log", frames / records, "a record", conditions),
    ]


def _await_copies(db: headwater.Database, fan: int, records: int) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    waiting = [f"dest-{number}" for number in range(fan)]
    while waiting:
        waiting = [name for name in waiting if _head(db, name) < records]
        if time.perf_counter() > deadline:
            raise WrongResultError(f"{len(waiting)} routers are not done after {PATIENCE_S} s")
        time.sleep(0.002)


def _head(db: headwater.Database, name: str) -> int:
    topic = db.engine.find(name)
    return 0 if topic is None else topic.log.visible_seq
