"""When a group is synced, which acks wait for it, and how long a group may gather. Pure.

The policy is a parameter of the writer: topics go by durability class, machines by one of four
fsync policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headwater.core.durability import Durability


@dataclass(slots=True)
class Unsynced:
    """What was written since the last sync. The committer's own; policies only read it."""

    submissions: int
    since_us: int
    """When the oldest of it was written, by the monotonic clock."""
    held_acks: int
    """Acks waiting for a sync."""


class SyncPolicy(Protocol):
    def holds_ack(self, durability: Durability) -> bool:
        """True when an ack of this class waits for the sync. Asked once for each class."""

    def sync_due(self, unsynced: Unsynced, now_us: int) -> bool: ...

    def due_at_us(self, unsynced: Unsynced) -> int | None:
        """When a sync becomes due by time alone; None when time never makes it due."""


@dataclass(frozen=True, slots=True)
class ByClass:
    """fsync acks wait; the rest is synced on a timer."""

    interval_us: int

    def holds_ack(self, durability: Durability) -> bool:
        return durability.waits_for_sync

    def sync_due(self, unsynced: Unsynced, now_us: int) -> bool:
        return unsynced.held_acks > 0 or now_us - unsynced.since_us >= self.interval_us

    def due_at_us(self, unsynced: Unsynced) -> int | None:
        return unsynced.since_us + self.interval_us


@dataclass(frozen=True, slots=True)
class EveryWrite:
    """Every ack waits for a sync."""

    def holds_ack(self, durability: Durability) -> bool:
        return True

    def sync_due(self, unsynced: Unsynced, now_us: int) -> bool:
        return True

    def due_at_us(self, unsynced: Unsynced) -> int | None:
        return unsynced.since_us


@dataclass(frozen=True, slots=True)
class EveryN:
    """A sync after every n submissions; acks do not wait."""

    submissions: int

    def holds_ack(self, durability: Durability) -> bool:
        return False

    def sync_due(self, unsynced: Unsynced, now_us: int) -> bool:
        return unsynced.submissions >= self.submissions

    def due_at_us(self, unsynced: Unsynced) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class EveryMs:
    """A sync at most this long after a write; acks do not wait."""

    interval_ms: int

    def holds_ack(self, durability: Durability) -> bool:
        return False

    def sync_due(self, unsynced: Unsynced, now_us: int) -> bool:
        return now_us - unsynced.since_us >= self.interval_ms * 1_000

    def due_at_us(self, unsynced: Unsynced) -> int | None:
        return unsynced.since_us + self.interval_ms * 1_000


@dataclass(frozen=True, slots=True)
class Never:
    """The operating system decides when bytes reach the disk."""

    def holds_ack(self, durability: Durability) -> bool:
        return False

    def sync_due(self, unsynced: Unsynced, now_us: int) -> bool:
        return False

    def due_at_us(self, unsynced: Unsynced) -> int | None:
        return None


class CommitWindow:
    """How long a group waits for company.

    Writers that wait for their acks come back together after a sync. So those who were in the
    last group, and those who came while it was synced, predict the next one: as long as fewer are
    here, waiting a little gathers the rest into one sync. A lone writer is never made to wait, and
    a prediction that fails is dropped at once.

    `us_per_writer` adds to the wait for each who is expected: they come one after the other, and
    every look whether they are here takes the interpreter from those on their way.
    """

    def __init__(self, us_min: int, us_max: int, us_per_writer: int = 0) -> None:
        self._us_min = us_min
        self._us_max = us_max
        self._us_per_writer = us_per_writer
        self._pressure = 0.0
        self.expected = 1

    def set_pressure(self, pressure: float) -> None:
        """Under pressure (0 to 1) fewer, larger syncs: the window widens towards its ceiling."""
        self._pressure = min(max(pressure, 0.0), 1.0)

    def wait_us(self, waiting: int) -> int:
        """How long a group that has `gathered` submissions should wait for more."""
        if waiting >= self.expected:
            return 0
        relaxed = self.relaxed_us
        return round(relaxed + (self._us_max - relaxed) * self._pressure)

    @property
    def relaxed_us(self) -> int:
        """How long a group would wait without pressure."""
        return min(self._us_min + self._us_per_writer * (self.expected - 1), self._us_max)

    def observe(self, writers: int) -> None:
        """This many were there at the end of a sync: answered by it, or waiting for the next."""
        self.expected = writers
