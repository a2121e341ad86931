"""A shard: one thread, one queue, one log. The only group-commit loop there is."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError, PoisonedError
from headwater.wal.committer import GroupCommitter, LogState
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import GroupLog
from headwater.wal.policy import CommitWindow, SyncPolicy
from headwater.wal.queue import SubmissionQueue
from headwater.wal.ticket import Listener, Ticket, writers_of

T = TypeVar("T")


class Shard:
    def __init__(
        self,
        name: str,
        log: GroupLog,
        policy: SyncPolicy,
        settings: WalSettings,
        clock: Clock,
        listener: Listener,
        counters: WalCounters,
    ) -> None:
        self.counters = counters
        self.window = CommitWindow(
            settings.commit_window_us_min,
            settings.commit_window_us_max,
            settings.commit_window_us_per_writer,
        )
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._queue = SubmissionQueue(
            settings.queue_submissions_max, counters, bytes_max=settings.queue_bytes_max
        )
        self._throttled_us = 0
        self._committer = GroupCommitter(
            log,
            policy,
            clock,
            listener,
            counters,
            idle_mark_after_us=settings.idle_mark_after_us,
            full_retry_interval_us=settings.full_retry_interval_us,
        )
        self._tasks: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def state(self) -> LogState:
        return self._committer.state

    @property
    def poison(self) -> PoisonedError | None:
        return self._committer.poison

    @property
    def synced_frame(self) -> int:
        """Every frame up to this number is on stable storage."""
        return self._committer.synced_frame

    @property
    def queue_depth(self) -> int:
        return self._queue.writers

    @property
    def queue_fill(self) -> float:
        """Which part of the room for waiting tickets is taken."""
        return self._queue.fill

    def start(self) -> None:
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Hand over a ticket, or raise at once with nothing kept. Never blocks."""
        poison = self._committer.poison
        if poison is not None:
            raise poison
        self._queue.put(ticket)

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Run something on the log's own thread, between two groups. Refused after the last."""
        future: Future[T] = Future()
        self._tasks.append((future, work))
        self._queue.ring()
        if self._finished:  # set before the thread looks for the last time, so one of both sees it
            self._refuse_tasks()
        return future

    def close(self) -> None:
        """Serve what was accepted, write the closing mark, stop. May be called twice."""
        self._queue.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
            self._committer.finish()
        finally:
            # Only reached with tickets left if the loop itself broke; no submitter waits for ever.
            self._queue.close()
            left = self._queue.drain()
            for ticket in left:
                ticket.resolve(ClosedError("the log stopped; nothing was written"))
            if left:
                self._listener(left)
            self._run_tasks()
            self._finished = True
            self._refuse_tasks()

    def _serve(self) -> None:
        settings, queue, committer = self._settings, self._queue, self._committer
        rested = False
        while True:
            self._run_tasks()
            closed = queue.closed  # asked before taking: nothing is put behind a closed door
            group: list[Ticket] = []
            queue.take(group, settings.group_frames_max, settings.group_bytes_max)
            if not group:
                if closed:
                    return
                if rested:
                    self.window.observe(1)  # no writer came back: the next is not made to wait
                rested = self._rest()
                continue
            if not rested:
                self._collect(group)
            rested = False
            self.counters.throttle_us_last, self._throttled_us = self._throttled_us, 0
            held = committer.commit(group)
            if held:
                # Who came during the sync is not among those it answered: both are out there.
                self.window.observe(held + queue.writers)

    def _rest(self) -> bool:
        """Sleep until there is work. True when the sleep also was the wait for company.

        Writers who were just answered come back together. Sleeping until all of them are here
        costs one wake-up; waking for the first would take the interpreter from the others.
        """
        self._throttled_us = 0
        expected = self.window.expected
        if expected > 1:
            self._await(expected, self.window.wait_us(0))
            came = self._queue.writers
            if 0 < came < expected:
                # A prediction that failed is dropped, also by those whose acks wait for no sync:
                # nothing else would ever take it back from them.
                self.window.observe(came)
        else:
            self._queue.park(self._clock, 1, self._committer.next_tick_us())
        self._committer.tick()
        return expected > 1

    def _await(self, wanted: int, wait_us: int) -> None:
        """Sleep until this many writers wait, or none came for `wait_us`.

        As long as some arrive, their submitters need the interpreter, and a sync for those that
        are here would only be in the way of the rest.
        """
        clock, queue = self._clock, self._queue
        began_us = clock.monotonic_us()
        last_us = began_us + self._settings.commit_window_us_max
        seen = -1
        while seen < queue.writers < wanted:
            seen = queue.writers
            queue.park(clock, wanted, min(clock.monotonic_us() + wait_us, last_us))
        relaxed_us = self.window.relaxed_us
        if wait_us > relaxed_us:
            waited_us = clock.monotonic_us() - began_us
            self._throttled_us = max(waited_us - relaxed_us, 0)

    def _run_tasks(self) -> None:
        while self._tasks:
            future, work = self._tasks.popleft()
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

    def _refuse_tasks(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                future, _ = self._tasks.popleft()
                future.set_exception(ClosedError("the log is closed; nothing was done"))

    def _collect(self, group: list[Ticket]) -> None:
        """Let company arrive before a sync, when the last group says that it will."""
        if writers_of(group) >= self.window.expected:
            return
        held = writers_of(self._committer.held(group))
        wait_us = self.window.wait_us(held)
        if wait_us == 0 or held == 0:
            return
        self._await(self.window.expected - held, wait_us)
        self._queue.take(group, self._settings.group_frames_max, self._settings.group_bytes_max)
