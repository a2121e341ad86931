"""The common group of a shard, written and synced without the interpreter.

`headwater.native.writer` has the queue, the window and the thread's work as long as a group is
common: every answer waits for the sync, the active file has room, the log is writable. Whatever
else comes is given to the same code that serves machines without a compiler.

Answers reach an owner with an event loop through a descriptor that the loop watches, once a
commit, in the order of the log. Those that Python gave go the same way, behind the ones before
them. Without a loop the thread answers each group by itself.

Keeps I11, I12, I15, as its twin does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Final, Protocol, runtime_checkable

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.durability import Durability
from headwater.core.errors import SyncError
from headwater.native import compiled
from headwater.observe.waits import WaitCause
from headwater.wal.committer import GroupCommitter, LogState
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US, WalCounters
from headwater.wal.dialect import GroupLog
from headwater.wal.policy import SyncPolicy
from headwater.wal.queue import closed_error, overloaded_error
from headwater.wal.ticket import Listener, Ticket, resolve_all

_native: Final = compiled("writer")
_window: Final = compiled("window")


@runtime_checkable
class LentLog(Protocol):
    """A log whose active file compiled code may write to, between two groups."""

    active_path: PurePath

    def lend(self, writer: Any) -> bool:
        """Tell it where to write. False when it cannot: no file, or not one of the real disk."""

    def take_back(self, writer: Any) -> None:
        """Go on from where it has written to."""


class LoopedOwner(Protocol):
    """An owner with a loop, which a descriptor can wake."""

    def watch(self, descriptor: int, work: Callable[[], None], begun: Callable[[], None]) -> None:
        """Run `work` whenever the descriptor is readable; `begun` runs once that is so."""

    def unwatch(self, descriptor: int) -> None: ...


class CompiledGroups:
    def __init__(
        self, log: LentLog, policy: SyncPolicy, settings: WalSettings, counters: WalCounters
    ) -> None:
        assert _native is not None
        assert _window is not None
        self._log = log
        self._counters = counters
        self._holding = tuple(each for each in Durability if policy.holds_ack(each))
        self._settings = settings
        self.window = _window.CommitWindow(
            settings.commit_window_us_min, settings.commit_window_us_max
        )
        self.writer = writer = _native.GroupWriter(
            self.window,
            submissions_max=settings.queue_submissions_max,
            bytes_max=settings.queue_bytes_max,
            group_frames_max=settings.group_frames_max,
            group_bytes_max=settings.group_bytes_max,
            idle_after_us=settings.idle_mark_after_us,
            wait_us_min=counters.waits.least_us,
            bounds=SYNC_LATENCY_BOUNDS_US,
        )
        self.ring = writer.ring
        self.close = writer.close
        self.drain = writer.drain
        self._watcher: LoopedOwner | None = None

    def __len__(self) -> int:
        return len(self.writer)

    @property
    def writers(self) -> int:
        count: int = self.writer.writers
        return count

    @property
    def fill(self) -> float:
        part: float = self.writer.fill
        return part

    @property
    def closed(self) -> bool:
        answer: bool = self.writer.closed
        return answer

    @property
    def synced_frame(self) -> int:
        """Every frame up to this one is synced; 0 when nothing was written without Python."""
        frame: int = self.writer.synced_frame
        return frame

    def put(self, ticket: Ticket) -> None:
        writer, body = self.writer, ticket.body
        refusal = writer.put(
            ticket, body, ticket.frame_count, ticket.writers, ticket.durability in self._holding
        )
        if refusal:
            if refusal == _CLOSED:
                raise closed_error()
            self._counters.submit_full += 1
            raise overloaded_error(writer.writers, writer.waiting_bytes)

    # -- the thread

    def next(self, committer: GroupCommitter) -> list[Ticket]:
        while True:
            stage, tickets = self._serve(committer)
            if stage == _COMMITTED:
                committer.answer_committed(tickets)
            elif stage == _WRITE_FAILED:
                committer.refuse_written(tickets, self._os_error())
            elif stage == _SYNC_FAILED:
                cause = self._os_error()
                error = SyncError(f"sync failed: {cause.strerror}", path=self._log.active_path)
                error.__cause__ = cause
                committer.refuse_unsynced(tickets, self.writer.written_bytes, error)
            else:
                if tickets:
                    self._counters.throttle_us_last = self.writer.throttle_us
                return tickets

    def _serve(self, committer: GroupCommitter) -> tuple[int, list[Ticket]]:
        log, writer = self._log, self.writer
        lent = committer.state is LogState.WRITABLE and log.lend(writer)
        synced = writer.synced_frame
        stage: int = writer.serve(lent, committer.next_tick_us())
        if lent:
            log.take_back(writer)
            writer.add_to(self._counters)
            self._note_long_waits()
            if writer.synced_frame != synced:
                committer.note_committed(writer.synced_frame, writer.written_us)
        tickets: list[Ticket] = writer.taken()
        return stage, tickets

    def _os_error(self) -> OSError:
        error: int = self.writer.error
        return OSError(error, os.strerror(error))

    def committed(self, held: int) -> None:
        if held:
            self.writer.observe(held, self._counters.sync_us_last)

    # -- the owner

    def deliver_to(self, watcher: LoopedOwner, take_effect: Listener) -> None:
        """Have the owner take the answers."""

        def deliver() -> None:
            take_effect(self._collected())

        def begun() -> None:
            self.writer.watched_from_now(True)

        watcher.watch(self.writer.watch(), deliver, begun)
        self._watcher = watcher

    def hand_over(self, tickets: Sequence[Ticket]) -> bool:
        """Answers that Python gave, behind those before them. False when the owner does not come
        for them."""
        handed_over: bool = self.writer.hand_over(tickets)
        return handed_over

    def end_delivery(self) -> list[Ticket]:
        """After the thread's end: what the owner has not collected."""
        if self._watcher is not None:
            self.writer.watched_from_now(False)
            self._watcher.unwatch(self.writer.descriptor)
            self._watcher = None
        return self._collected()

    def _collected(self) -> list[Ticket]:
        tickets: list[Ticket] = self.writer.collect()
        if self.writer.noted_count:
            self._note_long_waits()
        resolve_all([ticket for ticket in tickets if not ticket.resolved])
        return tickets

    def _note_long_waits(self) -> None:
        for reason, started_us, ended_us, amount in self.writer.long_waits():
            cause, unit = _CAUSES[reason]
            self._counters.waits.note(cause, started_us, ended_us, f"{amount} {unit}")


_CAUSES: Final[dict[int, tuple[WaitCause, str]]] = {}
if _native is not None:
    _CAUSES.update(
        {
            _native.FOR_COMPANY: (WaitCause.COMPANY, "tickets"),
            _native.FOR_THREAD: (WaitCause.LOG_THREAD, "tickets"),
            _native.FOR_QUEUE: (WaitCause.QUEUE, "tickets"),
            _native.FOR_WRITE: (WaitCause.WRITE, "bytes"),
            _native.FOR_SYNC: (WaitCause.SYNC, "writers"),
            _native.FOR_ANSWERS: (WaitCause.ANSWERS, "tickets"),
        }
    )
    _CLOSED: Final = _native.CLOSED
    _COMMITTED: Final = _native.COMMITTED
    _WRITE_FAILED: Final = _native.WRITE_FAILED
    _SYNC_FAILED: Final = _native.SYNC_FAILED


def compiled_groups(
    log: GroupLog,
    policy: SyncPolicy,
    settings: WalSettings,
    clock: Clock,
    counters: WalCounters,
) -> CompiledGroups | None:
    """None where there is no compiler, the log cannot be lent, or a test has the clock."""
    if (
        _native is None
        or _window is None
        or type(clock) is not SystemClock
        or not isinstance(log, LentLog)
    ):
        return None
    return CompiledGroups(log, policy, settings, counters)
