"""Queues for tests: a topic's index with some jobs, and the claim everybody makes."""

from __future__ import annotations

import numpy

from headwater.model.index import SeqIndex
from headwater.model.queue import Grant, QueueLeases

OVERHEAD = 38
LEASE_US = 30_000_000


def jobs(count: int) -> SeqIndex:
    index = SeqIndex()
    add(index, count)
    return index


def add(index: SeqIndex, count: int) -> None:
    index.append_many([OVERHEAD] * count, 1_000, [0] * count)


def delete(index: SeqIndex, *seqs: int) -> None:
    index.mark_deleted(numpy.array(seqs))


def claim(
    queue: QueueLeases,
    index: SeqIndex,
    wanted: int,
    now_us: int = 0,
    node: str = "one",
    *,
    calendar_ms: int = 0,
    lease_us: int = LEASE_US,
    connection: int | None = None,
) -> Grant:
    queue.sweep(now_us, calendar_ms)
    return queue.grant(queue.draw(index, wanted), node, now_us + lease_us, connection)
