"""A wall clock that stands still: a backup is read as of the moment it was made.

With the machine's own clock, records that have expired since would be gone from a copy before
a check could compare it, or a restore could go to an earlier time.
"""

from __future__ import annotations

from headwater.core.clock import Clock, Doorbell


class StillClock:
    def __init__(self, clock: Clock, wall_ms: int) -> None:
        self._clock = clock
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        return self._clock.wait(doorbell, until_us)
