"""A shard: one thread, one queue, one log. The only group-commit loop there is.

A thread that comes back from fdatasync must take the interpreter lock again. When another thread is
busy computing, Python hands the lock over only after its switch interval, 5 ms by default: forty
times the sync itself. So the interval is lowered while a log is open and put back when the last
one closes. `make bench` shows the effect.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError, PoisonedError
from headwater.wal.committer import GroupCommitter, LogState
from headwater.wal.compiled_groups import LoopedOwner, compiled_groups
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import GroupLog
from headwater.wal.policy import SyncPolicy
from headwater.wal.queue import Groups, QueuedGroups
from headwater.wal.ticket import Listener, Ticket


class SwitchInterval:
    """The interpreter has one switch interval, so this keeps count of all who want it lower."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted_s: list[float] = []
        self._original_s = 0.0

    def lower(self, interval_us: int) -> None:
        """Ask for at most this interval; the smallest that anyone asks for wins."""
        with self._lock:
            if not self._wanted_s:
                self._original_s = sys.getswitchinterval()
            self._wanted_s.append(interval_us / 1_000_000)
            sys.setswitchinterval(min(self._original_s, *self._wanted_s))

    def restore(self, interval_us: int) -> None:
        """Take one request back."""
        with self._lock:
            self._wanted_s.remove(interval_us / 1_000_000)
            sys.setswitchinterval(min([self._original_s, *self._wanted_s]))


switch_interval = SwitchInterval()


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
        self._counters = counters
        self._listener = listener
        self._compiled = compiled_groups(log, policy, settings, clock, counters)
        self._groups: Groups = (
            QueuedGroups(settings, clock, counters) if self._compiled is None else self._compiled
        )
        self.window = self._groups.window
        self._committer = GroupCommitter(
            log,
            policy,
            clock,
            self._answered,
            counters,
            idle_mark_after_us=settings.idle_mark_after_us,
            full_retry_interval_us=settings.full_retry_interval_us,
        )
        self._tasks: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def counters(self) -> WalCounters:
        if self._compiled is not None:
            self._compiled.writer.add_to(self._counters)
        return self._counters

    @property
    def state(self) -> LogState:
        return self._committer.state

    @property
    def poison(self) -> PoisonedError | None:
        return self._committer.poison

    @property
    def synced_frame(self) -> int:
        """Every frame up to this number is on stable storage."""
        synced = self._committer.synced_frame
        return synced if self._compiled is None else max(synced, self._compiled.synced_frame)

    @property
    def queue_depth(self) -> int:
        return self._groups.writers

    @property
    def queue_fill(self) -> float:
        """Which part of the room for waiting tickets is taken."""
        return self._groups.fill

    def start(self) -> None:
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Hand over a ticket, or raise at once with nothing kept. Never blocks."""
        poison = self._committer.poison
        if poison is not None:
            raise poison
        self._groups.put(ticket)

    def deliver_to(self, watcher: LoopedOwner, take_effect: Listener) -> None:
        """Have an owner with a loop take the answers itself, instead of the listener."""
        if self._compiled is not None:
            self._compiled.deliver_to(watcher, take_effect)

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Run something on the log's own thread, between two groups. Refused after the last."""
        future: Future[T] = Future()
        self._tasks.append((future, work))
        self._groups.ring()
        if self._finished:  # set before the thread looks for the last time, so one of both sees it
            self._refuse_tasks()
        return future

    def close(self) -> None:
        """Serve what was accepted, write the closing mark, stop. May be called twice."""
        self._groups.close()
        if self._thread.ident is not None:
            self._thread.join()
        if self._compiled is not None:
            left = self._compiled.end_delivery()
            if left:
                self._listener(left)

    def _run(self) -> None:
        try:
            self._serve()
            self._committer.finish()
        finally:
            # Only reached with tickets left if the loop itself broke; no submitter waits for ever.
            self._groups.close()
            left = self._groups.drain()
            for ticket in left:
                ticket.resolve(ClosedError("the log stopped; nothing was written"))
            if left:
                self._answered(left)
            self._run_tasks()
            self._finished = True
            self._refuse_tasks()

    def _serve(self) -> None:
        groups, committer = self._groups, self._committer
        while True:
            self._run_tasks()
            closed = groups.closed  # asked before taking: nothing is put behind a closed door
            group = groups.next(committer)
            if group:
                groups.committed(committer.commit(group))
            elif not closed:
                committer.tick()
            elif not len(groups):
                return

    def _answered(self, tickets: Sequence[Ticket]) -> None:
        if self._compiled is None or not self._compiled.hand_over(tickets):
            self._listener(tickets)

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
