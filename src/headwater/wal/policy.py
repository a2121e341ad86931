"""When a group is synced, which acks wait for it, and how long a group may gather. Pure.

The policy is a parameter of the writer: topics go by durability class, machines by one of four
fsync policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from headwater.core.durability import Durability

SMOOTHING: Final = 1 / 4


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


class ReturnMeter:
    """How long a writer that was answered takes to come back, as the log sees it."""

    def __init__(self) -> None:
        self.return_us = 0.0
        """For one of many, smoothed. 0 as long as nothing is known."""
        self.due = 0
        """At so many arrivals as many are back as were answered; 0 while nobody is timed."""
        self._answered = 1
        self._answered_us = 0

    def answered(self, writers: int, arrived: int, now_us: int) -> None:
        """So many were answered at once, of all who ever arrived. One group at a time is timed."""
        if not self.due:
            self._answered, self._answered_us = writers, now_us
            self.due = arrived + writers

    def returned(self, now_us: int) -> None:
        """As many arrived as were answered."""
        self.due = 0
        self.return_us = smoothed(self.return_us, (now_us - self._answered_us) / self._answered)


class CommitWindow:
    """Whether a group waits for company, and for how long.

    Writers that wait for their acks come back after a sync. So those who were in the last group,
    and those who came while it was synced, predict who comes next, and how long they took to come
    back says when. A lone writer never waits, and a prediction that fails is dropped at once.

    A thread that holds no interpreter `overlaps` with the submitters. Then waiting pays only when
    the missing are here before a sync without them would be through; otherwise the next group comes
    together while this one is synced. On a slow disk all share one sync; on a quick one with many
    writers nobody waits. A thread of Python takes the interpreter from those who are on their way
    with every group that it makes, so there it always pays.

    See docs/decisions/0038-one-log-thread-without-the-interpreter.md.
    """

    def __init__(self, us_min: int, us_max: int, *, overlaps: bool = False) -> None:
        self._us_min = us_min
        self._us_max = us_max
        self._overlaps = overlaps
        self._pressure = 0.0
        self._sync_us = 0.0
        self.returns = ReturnMeter()
        self.expected = 1

    def set_pressure(self, pressure: float) -> None:
        """Under pressure (0 to 1) fewer, larger syncs: the window widens towards its ceiling."""
        self._pressure = min(max(pressure, 0.0), 1.0)

    def wait_us(self, waiting: int) -> int:
        """How long a group of so many writers waits for the others at most."""
        if waiting >= self.expected or self.expected == 1:
            return 0
        relaxed = self.relaxed_us(waiting)
        return round(relaxed + (self._us_max - relaxed) * self._pressure)

    def relaxed_us(self, waiting: int) -> int:
        """How long it would wait without pressure."""
        back_us = (self.expected - waiting) * self.returns.return_us
        if self._overlaps and back_us > self._sync_us:
            return 0
        return round(min(max(self._sync_us, 2 * back_us, self._us_min), self._us_max))

    def observe(self, writers: int, sync_us: int) -> None:
        """This many were there at the end of a sync: answered by it, or waiting for the next."""
        self.expected = writers
        self._sync_us = smoothed(self._sync_us, sync_us)

    def only(self, writers: int) -> None:
        """The others did not come."""
        self.expected = max(writers, 1)


def smoothed(before: float, value: float) -> float:
    """One slow sync among quick ones, or one late writer, does not decide."""
    return before + (value - before) * SMOOTHING if before else float(value)
