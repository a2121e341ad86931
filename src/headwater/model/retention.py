"""Retention: the time by which records expire, and which consumers still need old log.

The clock follows the wall clock, but never in leaps: a wall clock that is set wrong by years must
not delete everything at once. It never goes back, and goes forward at most twice as fast as time
really passes. After a leap it walks, so that there is time to notice; after a step back it stands
until the wall clock has come up to it.

A hold whose position is not known yet holds everything. A hold with a limit gives way when its
owner is further behind than that; the owner then gets a gap in place of what was deleted (I9),
never silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
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


EVERYTHING: Final = 0
"""The floor while a consumer's position is not known: nothing may be deleted."""


class HoldOwner(Enum):
    TRANSITIONS_TOPIC = "transitions_topic"
    """The feeder of the topic that every transition is copied to."""
    WEBHOOK = "webhook"
    WATCH = "watch"
    """A watch with `from_offset`, until it has read up to the present."""


MACHINES_LOG: Final = "machines"
"""A log that loses its oldest segments while consumers may still need them."""


@dataclass(frozen=True, slots=True)
class RetentionHold:
    """A hold as it is at one moment."""

    name: str
    label: str
    """For people; the name is for finding it again."""
    owner: HoldOwner
    log: str
    position: int | None
    """The log is needed from here on; None: not known yet."""
    behind_bytes: int | None
    """From the position to the end of the log; None while the position is not known."""
    held_bytes: int
    """Files that only holds keep: the log could have been deleted up to behind the position."""
    since_ms: int
    """When the hold was taken or restored."""
    moved_ms: int
    """When its position last moved."""
    durable: bool
    """The position is on disk, so the hold outlives this process."""
    bytes_max: int | None = None
    """Further behind than this, it holds nothing; None: it holds however much that is."""

    @property
    def gives_way(self) -> bool:
        return (
            self.bytes_max is not None
            and self.behind_bytes is not None
            and self.behind_bytes > self.bytes_max
        )


def retention_floor(holds: Iterable[RetentionHold]) -> int | None:
    """No consumer needs what is before this offset; None when there are no holds."""
    positions = [
        EVERYTHING if each.position is None else each.position
        for each in holds
        if not each.gives_way
    ]
    return min(positions, default=None)
