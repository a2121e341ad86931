"""What a log counts about itself. Written by its own thread, read by anyone."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

from headwater.core.clock import SystemClock
from headwater.observe.waits import Waits

SYNC_LATENCY_BOUNDS_US: Final = (
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000,
)  # fmt: skip


def _no_waits() -> Waits:
    return Waits(SystemClock(), 0)


class WalCounters(msgspec.Struct):
    frames: int = 0
    groups: int = 0
    submissions: int = 0
    syncs: int = 0
    bytes_written: int = 0
    rotations: int = 0
    queue_depth_peak: int = 0
    submit_full: int = 0
    read_only: int = 0
    """1 while the disk is full or the log is poisoned."""
    throttle_us_last: int = 0
    """How much longer the last group waited for company because of pressure."""
    sync_us_last: int = 0
    sync_us_total: int = 0
    sync_us_buckets: list[int] = msgspec.field(
        default_factory=lambda: [0] * (len(SYNC_LATENCY_BOUNDS_US) + 1)
    )

    waits: Waits = msgspec.field(default_factory=_no_waits)
    """What took long, for all logs together. By default nothing is kept."""

    def observe_sync(self, elapsed_us: int) -> None:
        self.syncs += 1
        self.sync_us_last = elapsed_us
        self.sync_us_total += elapsed_us
        self.sync_us_buckets[bisect_left(SYNC_LATENCY_BOUNDS_US, elapsed_us)] += 1
