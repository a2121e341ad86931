"""Which tickets are the next group: how a log's thread sleeps, and until when.

Without the interpreter `headwater.wal.compiled_groups` does the same, and commits the common group.
"""

from __future__ import annotations

from typing import Any, Protocol

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.observe.waits import WaitCause
from headwater.wal.committer import GroupCommitter
from headwater.wal.counters import WalCounters
from headwater.wal.policy import CommitWindow
from headwater.wal.queue import SubmissionQueue
from headwater.wal.ticket import Ticket


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
