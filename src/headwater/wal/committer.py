"""One group: write, answer tickets that need no sync, sync, answer the rest. And what failing is.

A write or sync that fails poisons the log (I11): the kernel may have dropped the dirty pages and
call them clean, so a retry could succeed and lie. No room is not a failure but a state (I12):
writes are refused, essential ones use the reserve, and the log tries again by itself.

Has no thread and no loop, so tests can drive it one group at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from headwater.core.clock import Clock
from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError, HeadwaterError, PoisonedError
from headwater.disk import NO_ROOM
from headwater.observe.waits import WaitCause
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import GroupLog
from headwater.wal.policy import SyncPolicy, Unsynced
from headwater.wal.ticket import Listener, Ticket, resolve_all, writers_of


class LogState(Enum):
    WRITABLE = "writable"
    FULL = "full"
    POISONED = "poisoned"


class GroupCommitter:
    def __init__(
        self,
        log: GroupLog,
        policy: SyncPolicy,
        clock: Clock,
        listener: Listener,
        counters: WalCounters,
        *,
        idle_mark_after_us: int,
        full_retry_interval_us: int,
    ) -> None:
        self._log = log
        self._policy = policy
        # A tuple finds its few members by identity; asking the policy, or a hash of the class,
        # costs more than the rest of the work on a ticket.
        self._holding = tuple(each for each in Durability if policy.holds_ack(each))
        self._clock = clock
        self._listener = listener
        self._counters = counters
        self._idle_mark_after_us = idle_mark_after_us
        self._full_retry_interval_us = full_retry_interval_us
        self._state = LogState.WRITABLE
        self._poison: PoisonedError | None = None
        self._unsynced = Unsynced(0, 0, 0)
        self._unwitnessed_since_us: int | None = None
        self._retry_at_us = 0
        self._written_frame = 0
        self._synced_frame = 0

    @property
    def state(self) -> LogState:
        return self._state

    @property
    def poison(self) -> PoisonedError | None:
        return self._poison

    @property
    def synced_frame(self) -> int:
        """Every frame up to this number is on stable storage; 0 when none was written yet."""
        return self._synced_frame

    def held(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Those whose acks wait for a sync."""
        holding = self._holding
        return [ticket for ticket in tickets if ticket.durability in holding]

    def commit(self, tickets: Sequence[Ticket]) -> int:
        """Make one group of these tickets and answer every one of them.

        Returns how many writers waited for the sync.
        """
        return self._commit(list(tickets), None)

    def _commit(self, waiting: list[Ticket], failed: OSError | None) -> int:
        try:
            if self._state is not LogState.WRITABLE:
                waiting = self._refuse_what_cannot_be_written(waiting)
            if waiting:
                self._write(waiting, failed)
                held = self._answer_written(waiting)
                waiting = held
                self._sync_if_due(held)
                self._answer(held)
                return writers_of(held)
        except Exception as error:  # an unknown failure leaves unknown bytes: the same poison
            self._poison_with("writing the log", error)
            self._answer([ticket for ticket in waiting if not ticket.resolved], self._poison)
        return 0

    # -- what compiled code did, and how it failed

    def note_committed(self, frame: int, written_us: int) -> None:
        """Every frame up to this one is written and synced."""
        self._written_frame = frame
        self._unwitnessed_since_us = written_us
        self._forget_unsynced()

    def answer_committed(self, tickets: Sequence[Ticket]) -> None:
        try:
            self._answer(tickets)
        except Exception as error:  # as in `commit`
            self._poison_with("writing the log", error)

    def refuse_written(self, tickets: list[Ticket], error: OSError) -> None:
        """The write of this group failed."""
        self._commit(tickets, error)

    def refuse_unsynced(self, tickets: Sequence[Ticket], written: int, error: Exception) -> None:
        """The group was written, and the sync failed."""
        self._count(tickets, written)
        self._poison_with("writing the log", error)
        self._answer(tickets, self._poison)

    # -- time

    def tick(self) -> None:
        """What time alone makes due: the background sync, the idle mark, another try for room."""
        now = self._clock.monotonic_us()
        if self._state is LogState.POISONED:
            return
        synced_before = self._synced_frame
        try:
            if self._state is LogState.FULL and now >= self._retry_at_us:
                self._try_for_room(now)
            if self._unsynced.submissions and self._policy.sync_due(self._unsynced, now):
                self._sync()
            self._witness_if_due(now)
            if self._synced_frame != synced_before:
                self._listener(())
        except OSError as error:
            if error.errno in NO_ROOM:
                self._enter_full()
            else:
                self._poison_with("hardening the log", error)
        except Exception as error:
            self._poison_with("hardening the log", error)

    def next_tick_us(self) -> int | None:
        """When `tick` has something to do, if nothing else happens before."""
        if self._state is LogState.POISONED:
            return None
        due: list[int | None] = [self._idle_mark_due_at()]
        if self._state is LogState.FULL:
            due.append(self._retry_at_us)
        if self._unsynced.submissions:
            due.append(self._policy.due_at_us(self._unsynced))
        times = [at for at in due if at is not None]
        return min(times) if times else None

    def finish(self) -> None:
        """A clean stop: everything synced and witnessed. Does nothing on a poisoned log."""
        try:
            if self._state is not LogState.POISONED:
                self._witness_stop()
            self._log.close()
        except Exception as error:
            self._poison_with("closing the log", error)

    def _witness_stop(self) -> None:
        try:
            self._log.witness(clean_stop=True)
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._poison_with("closing the log", error)
        except Exception as error:
            self._poison_with("closing the log", error)

    def _refuse_what_cannot_be_written(self, tickets: list[Ticket]) -> list[Ticket]:
        if self._state is LogState.POISONED:
            self._answer(tickets, self._poison)
            return []
        now = self._clock.monotonic_us()
        full = self._state is LogState.FULL
        if full and now >= self._retry_at_us:
            full = not self._try_for_room(now)
        return self._refuse_for_want_of_room(tickets) if full else tickets

    def _refuse_for_want_of_room(self, tickets: list[Ticket]) -> list[Ticket]:
        """Answer the ordinary tickets; the essential ones are left to be tried."""
        error = DiskFullError(
            f"no room on the disk of {self._log.name}; nothing was written. "
            "Free space or delete records; writing resumes by itself"
        )
        self._answer([ticket for ticket in tickets if not ticket.essential], error)
        return [ticket for ticket in tickets if ticket.essential]

    def _write(self, tickets: list[Ticket], failed: OSError | None) -> None:
        """Write the group, unless that was tried and failed. Afterwards `tickets` holds those that
        really were written."""
        try:
            if failed is not None:
                raise failed
            started_us = self._clock.monotonic_us()
            written = self._log.write_group(tickets, essential=self._state is LogState.FULL)
            ended_us = self._clock.monotonic_us()
            self._counters.waits.note(WaitCause.WRITE, started_us, ended_us, f"{written} bytes")
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._enter_full()
            essential = self._refuse_for_want_of_room(tickets)
            tickets[:] = self._write_essential(essential)
            return
        self._count(tickets, written)

    def _write_essential(self, tickets: list[Ticket]) -> list[Ticket]:
        if not tickets:
            return []
        try:
            written = self._log.write_group(tickets, essential=True)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            refusal = DiskFullError(
                f"no room on the disk of {self._log.name}, not even in the reserve; "
                "nothing was written. Free space; writing resumes by itself"
            )
            self._answer(tickets, refusal)
            return []
        self._count(tickets, written)
        return tickets

    def _count(self, tickets: Sequence[Ticket], written: int) -> None:
        counters = self._counters
        counters.groups += 1
        counters.submissions += len(tickets)
        counters.frames += 1 + sum([ticket.frame_count for ticket in tickets])
        counters.bytes_written += written
        now = self._clock.monotonic_us()
        unsynced = self._unsynced
        if not unsynced.submissions:
            unsynced.since_us = now
        unsynced.submissions += len(tickets)
        self._unwitnessed_since_us = now
        self._written_frame = tickets[-1].last_frame

    def _answer_written(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Answer those whose class is satisfied by the write alone; return the others."""
        held = self.held(tickets)
        self._unsynced.held_acks = len(held)
        if len(held) < len(tickets):
            holding = self._holding
            self._answer([ticket for ticket in tickets if ticket.durability not in holding])
        return held

    def _sync_if_due(self, held: Sequence[Ticket]) -> None:
        unsynced = self._unsynced
        if unsynced.submissions and (
            held or self._policy.sync_due(unsynced, self._clock.monotonic_us())
        ):
            self._sync()
            if not held:
                self._listener(())

    def _sync(self) -> None:
        started = self._clock.monotonic_us()
        self._log.sync()
        ended = self._clock.monotonic_us()
        self._counters.observe_sync(ended - started)
        held = f"{self._unsynced.held_acks} tickets"
        self._counters.waits.note(WaitCause.SYNC, started, ended, held)
        self._forget_unsynced()

    def _forget_unsynced(self) -> None:
        self._synced_frame = self._written_frame
        unsynced = self._unsynced
        unsynced.submissions = unsynced.since_us = unsynced.held_acks = 0

    def _idle_mark_due_at(self) -> int | None:
        since = self._unwitnessed_since_us
        return None if since is None else since + self._idle_mark_after_us

    def _witness_if_due(self, now: int) -> None:
        due_at = self._idle_mark_due_at()
        if due_at is None or now < due_at:
            return
        self._unwitnessed_since_us = None  # tried once: a full disk must not be tried in a loop
        self._log.witness(clean_stop=False)
        self._forget_unsynced()

    def _enter_full(self) -> None:
        self._state = LogState.FULL
        self._counters.read_only = 1
        self._retry_at_us = self._clock.monotonic_us() + self._full_retry_interval_us

    def _try_for_room(self, now: int) -> bool:
        try:
            self._log.make_room()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._retry_at_us = now + self._full_retry_interval_us
            return False
        self._state = LogState.WRITABLE
        self._counters.read_only = 0
        return True

    def _poison_with(self, doing: str, error: Exception) -> None:
        if self._poison is None:
            self._poison = PoisonedError(
                f"{doing} failed ({error}); no write is acknowledged any more",
                path=self._log.name,
                advice="check the disk, then restart: what was acknowledged is safe",
            )
            self._poison.__cause__ = error
        self._state = LogState.POISONED
        self._counters.read_only = 1

    def _answer(self, tickets: Sequence[Ticket], error: HeadwaterError | None = None) -> None:
        if tickets:
            resolve_all(tickets, error)
            self._listener(tickets)
