"""The time by which records expire: it follows the wall clock, but never in leaps.

A wall clock that is set wrong by years must not delete everything at once. This clock never goes
back, and goes forward at most twice as fast as time really passes. After a leap it walks, so that
there is time to notice; after a step back it stands until the wall clock has come up to it.
"""

from __future__ import annotations

from typing import Final

from headwater.core.units import US_PER_MS

PACE_MAX: Final = 2
"""Retention milliseconds for each real one, at most."""


class RetentionClock:
    __slots__ = ("_monotonic_us", "_now_us")

    def __init__(self, wall_ms: int, monotonic_us: int) -> None:
        self._now_us = wall_ms * US_PER_MS
        self._monotonic_us = monotonic_us

    def now_ms(self, wall_ms: int, monotonic_us: int) -> int:
        """The time for retention, given what the two clocks say now."""
        passed_us = max(monotonic_us - self._monotonic_us, 0)
        self._monotonic_us = max(monotonic_us, self._monotonic_us)
        ahead_us = wall_ms * US_PER_MS - self._now_us
        if ahead_us > 0:
            self._now_us += min(ahead_us, passed_us * PACE_MAX)
        return self._now_us // US_PER_MS
