"""The bounded way into a log, and which tickets are the next group: many submitters, one writer.

A log's thread sleeps here, and `QueuedGroups` says until when. Without the interpreter
`headwater.wal.compiled_groups` does the same, and commits the common group.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Protocol

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import ClosedError, OverloadedError
from headwater.core.units import MIB
from headwater.observe.waits import WaitCause
from headwater.wal.committer import GroupCommitter
from headwater.wal.counters import WalCounters
from headwater.wal.policy import CommitWindow
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


class Groups(Protocol):
    """The way into a shard. `next` is called by its thread, everything else by anyone."""

    window: Any
    """A `CommitWindow`."""

    def __len__(self) -> int: ...

    @property
    def writers(self) -> int:
        """How many wait for tickets that are in no group yet."""

    @property
    def fill(self) -> float:
        """Which part of the room for waiting tickets is taken."""

    @property
    def closed(self) -> bool: ...

    def put(self, ticket: Ticket) -> None:
        """Add a ticket, or refuse at once: nothing of a refused ticket is kept."""

    def next(self, committer: GroupCommitter) -> list[Ticket]:
        """The next group to commit. None after a sleep: a ring, the end, or time ended it."""

    def committed(self, held: int) -> None:
        """The group that `next` gave is answered, and so many waited for its sync."""

    def ring(self) -> None: ...

    def close(self) -> None: ...

    def drain(self) -> list[Ticket]: ...


class QueuedGroups:
    """Groups for any log and any clock."""

    def __init__(self, settings: WalSettings, clock: Clock, counters: WalCounters) -> None:
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self.queue = SubmissionQueue(
            settings.queue_submissions_max, counters, bytes_max=settings.queue_bytes_max
        )
        self.window = CommitWindow(settings.commit_window_us_min, settings.commit_window_us_max)
        self.ring = self.queue.ring
        self.close = self.queue.close
        self.drain = self.queue.drain
        self._throttled_us = 0
        self._first_us = self._free_us = self._company_us = 0
        """When the first of those who wait came; when the thread could take a group, and how long
        it waited for company instead."""
        self._queued_us: int | None = None
        """Since when those wait whom a full group left behind."""

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def writers(self) -> int:
        return self.queue.writers

    @property
    def fill(self) -> float:
        return self.queue.fill

    @property
    def closed(self) -> bool:
        return self.queue.closed

    def put(self, ticket: Ticket) -> None:
        queue, returns = self.queue, self.window.returns
        if not len(queue):
            self._first_us = self._clock.monotonic_us()
        queue.put(ticket)
        if 0 < returns.due <= queue.arrived:
            returns.returned(self._clock.monotonic_us())

    def next(self, committer: GroupCommitter) -> list[Ticket]:
        slept = self._await_company()
        group = self.take()
        if group:
            self._counters.throttle_us_last = self._throttled_us
        elif not slept:
            until_us = committer.next_tick_us()
            self.queue.park(self._clock, 1, until_us)
            if until_us is not None and self._clock.monotonic_us() >= until_us:
                self.window.only(self.queue.writers)  # whoever comes now is not made to wait
        self._throttled_us = 0
        return group

    def take(self) -> list[Ticket]:
        """What waits now, as much of it as a group takes."""
        group: list[Ticket] = []
        self.queue.take(group, self._settings.group_frames_max, self._settings.group_bytes_max)
        if group:
            self._note_taken(f"{len(group)} tickets")
        return group

    def committed(self, held: int) -> None:
        if held:
            # Who came during the sync is not among those it answered: both are out there.
            queue, window = self.queue, self.window
            window.observe(held + queue.writers, self._counters.sync_us_last)
            window.returns.answered(held, queue.arrived, self._clock.monotonic_us())
        self._free_us = self._clock.monotonic_us()

    def _note_taken(self, detail: str) -> None:
        waits, taken_us = self._counters.waits, self._clock.monotonic_us()
        alone_us = taken_us - self._company_us
        waits.note(WaitCause.COMPANY, alone_us, taken_us, detail)
        waits.note(WaitCause.LOG_THREAD, max(self._first_us, self._free_us), alone_us, detail)
        if self._queued_us is not None:
            waits.note(WaitCause.QUEUE, self._queued_us, taken_us, detail)
        self._queued_us = self._first_us if len(self.queue) else None
        self._first_us = taken_us

    def _await_company(self) -> bool:
        """Sleep until all who are expected are here, where that is known to pay. Whether it slept.

        One wake-up for all of them: waking for the first would take the interpreter from the rest.
        """
        clock, queue, window = self._clock, self.queue, self.window
        self._company_us = 0
        here = queue.writers
        wait_us = window.wait_us(here)
        if not wait_us:
            return False
        relaxed_us = window.relaxed_us(here)
        began_us = clock.monotonic_us()
        queue.park(clock, window.expected, began_us + wait_us)
        waited_us = clock.monotonic_us() - began_us
        self._company_us = waited_us - max(self._first_us - began_us, 0)
        self._throttled_us = max(waited_us - relaxed_us, 0)
        if waited_us >= wait_us and queue.writers < window.expected:
            window.only(queue.writers)
        return True
