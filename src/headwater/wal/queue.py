"""The bounded way into a log: many submitters, one writer."""

from __future__ import annotations

import threading
from collections import deque

from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import ClosedError, OverloadedError
from headwater.core.units import MIB
from headwater.wal.counters import WalCounters
from headwater.wal.ticket import Ticket


class SubmissionQueue:
    """First in, first out. The lock is held for a few instructions and never over a system call.

    The writer sleeps on a doorbell and says how many submissions are worth waking it for, so a
    burst of writers costs one wake-up, not one each.
    """

    def __init__(
        self, submissions_max: int, counters: WalCounters, *, bytes_max: int = 256 * MIB
    ) -> None:
        self._waiting: deque[Ticket] = deque()
        self._submissions_max = submissions_max
        self._bytes_max = bytes_max
        self._counters = counters
        self._lock = threading.Lock()
        self._doorbell = Doorbell()
        self._wake_at = 0
        self._frames = 0
        self._bytes = 0
        self._writers = 0
        self.arrived = 0
        """How many ever came."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def writers(self) -> int:
        """How many wait for the tickets that are here."""
        return self._writers

    @property
    def fill(self) -> float:
        """Which part of its room is taken: 0 to 1, or more when a single ticket is over it."""
        return max(self._writers / self._submissions_max, self._bytes / self._bytes_max)

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, ticket: Ticket) -> None:
        """Add a ticket, or refuse at once: nothing of a refused ticket is kept."""
        with self._lock:
            if self._closed:
                raise closed_error()
            # A ticket takes as many slots as there are writers behind it: how they came together
            # must not change how much is let in.
            depth = self._writers + ticket.writers
            size = self._bytes + len(ticket.body)
            if depth > self._submissions_max or (size > self._bytes_max and self._waiting):
                self._counters.submit_full += 1
                raise overloaded_error(self._writers, self._bytes)
            self._waiting.append(ticket)
            self._frames += ticket.frame_count
            self._bytes = size
            if depth > self._counters.queue_depth_peak:
                self._counters.queue_depth_peak = depth
            self._writers = depth
            self.arrived += ticket.writers
            wake = 0 < self._wake_at <= self._writers
            if wake:
                self._wake_at = 0
        if wake:
            self._doorbell.ring()

    def take(self, group: list[Ticket], frames_max: int, bytes_max: int) -> None:
        """Move waiting tickets into `group` up to the limits. A first ticket always fits."""
        waiting = self._waiting
        if not waiting:
            return  # a ticket that comes now finds the writer on its way to `park`
        frames = sum([ticket.frame_count for ticket in group])
        size = sum([len(ticket.body) for ticket in group])
        with self._lock:
            if frames + self._frames <= frames_max and size + self._bytes <= bytes_max:
                group.extend(waiting)
                waiting.clear()
                self._frames = self._bytes = self._writers = 0
                return
            while waiting:
                ticket = waiting[0]
                frames += ticket.frame_count
                size += len(ticket.body)
                if group and (frames > frames_max or size > bytes_max):
                    return
                group.append(waiting.popleft())
                self._frames -= ticket.frame_count
                self._bytes -= len(ticket.body)
                self._writers -= ticket.writers

    def park(self, clock: Clock, wake_at: int, until_us: int | None) -> None:
        """Sleep until `wake_at` writers wait, the queue closes, or the clock says so."""
        with self._lock:
            if self._closed or self._writers >= wake_at:
                return
            self._wake_at = wake_at
        clock.wait(self._doorbell, until_us)
        with self._lock:
            self._wake_at = 0

    def ring(self) -> None:
        """Wake the writer though no ticket came."""
        self._doorbell.ring()

    def close(self) -> None:
        """Refuse further tickets; those already here are still served."""
        with self._lock:
            self._closed = True
        self._doorbell.ring()

    def drain(self) -> list[Ticket]:
        """Everything that still waits, for a log that can serve no more."""
        with self._lock:
            left = list(self._waiting)
            self._waiting.clear()
            self._frames = self._bytes = self._writers = 0
        return left


def closed_error() -> ClosedError:
    return ClosedError("the log is closed; nothing was written")


def overloaded_error(writers: int, size: int) -> OverloadedError:
    return OverloadedError(
        f"{writers} writes are waiting for the disk, {size} bytes; nothing was written, try again",
        retry_after_ms=50,
    )
