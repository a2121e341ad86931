"""The jobs a worker holds: their outcomes, and when to extend their leases. No I/O, no threads."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.core.limits import CLAIM_JOBS_CLAMP, LEASE_MS_CLAMP, NACK_DELAY_MS_MAX
from headwater.core.results import ClaimedJob, LeaseResult
from headwater.core.units import US_PER_MS

Handler = Callable[[ClaimedJob], object]
AsyncHandler = Callable[[ClaimedJob], Awaitable[object]]

WAIT_MS: Final = 2_000
"""One claim waits so long for a job; the worker notices a stop after that."""
HOLD_SHARE: Final = 3
"""Leases are renewed when a third of them is over."""


class GiveBackError(Exception):
    """Raised by a handler to have its job delivered again after `delay_ms`."""

    def __init__(self, delay_ms: int = 0) -> None:
        super().__init__(f"given back for {delay_ms} ms")
        self.delay_ms = delay_ms


class Outcome(NamedTuple):
    """What became of a job."""

    job: ClaimedJob
    error: BaseException | None = None
    """What its handler raised."""
    delay_ms: int = 0
    """When it was given back: for how long."""
    begun: bool = True
    lost: bool = False
    """The lease was over before the handler ended; another worker has the job, or had."""


class WorkDone(NamedTuple):
    """What a worker did."""

    done: int
    failed: int
    lost: int


class Stop:
    """Tells a worker, from any thread or signal handler, to finish what it has begun and end."""

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: list[Callable[[], None]] = []

    def set(self) -> None:
        self.is_set = True
        for listener in list(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)


def _quietly(_outcome: Outcome) -> None:
    """The default of `on_done`: does nothing."""


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How to work. Times are milliseconds."""

    node: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}"[:128])
    """Who works. No two workers should have the same name."""
    threads: int = 1
    """Handlers that run at a time."""
    limit: int | None = None
    """Jobs in hand at a time, waiting ones included; as many as threads unless said otherwise."""
    lease_ms: int | None = None
    """How long a crashed worker's jobs stay away; the queue's own setting unless said otherwise."""
    retry_ms: int = 1_000
    """The first time a job fails it is given back for so long, then for twice as long each time."""
    retry_ms_max: int = 300_000
    idle_ms: int | None = None
    """End when nothing came for so long; otherwise go on for ever."""
    stop: Stop = field(default_factory=Stop)
    on_done: Callable[[Outcome], None] = _quietly

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise InvalidRequestError("threads must be 1 or more")
        low, high = CLAIM_JOBS_CLAMP
        if self.limit is not None and not low <= self.limit <= high:
            raise InvalidRequestError(f"limit must be from {low} to {high}")

    @property
    def most(self) -> int:
        return min(self.limit or self.threads, CLAIM_JOBS_CLAMP[1])

    def delay_ms(self, job: ClaimedJob, error: BaseException) -> int:
        if isinstance(error, GiveBackError):
            return min(max(error.delay_ms, 0), NACK_DELAY_MS_MAX)
        grown = self.retry_ms << min(job.deliveries - 1, 30)
        return min(grown, self.retry_ms_max, NACK_DELAY_MS_MAX)

    def wait_ms(self, idle_us: int) -> int:
        """How long the next claim may wait."""
        if self.idle_ms is None:
            return WAIT_MS
        return max(min(WAIT_MS, self.idle_ms - idle_us // US_PER_MS), 0)

    def is_over(self, idle_us: int) -> bool:
        return self.idle_ms is not None and idle_us >= self.idle_ms * US_PER_MS


class OutcomeBatch(NamedTuple):
    """Outcomes for one ack or nack: jobs that are done, or those to give back for so long."""

    outcomes: list[Outcome]
    delay_ms: int | None
    """None: they are done."""

    @property
    def seqs(self) -> list[int]:
        return [outcome.job.record.seq for outcome in self.outcomes]

    @property
    def lease_ids(self) -> list[int]:
        return [outcome.job.lease_id for outcome in self.outcomes]


class HeldJobs:
    """The jobs a worker holds, from the claim until the server has answered an ack or a nack."""

    def __init__(self, options: WorkOptions, lease_ms: int) -> None:
        low, high = LEASE_MS_CLAMP
        self.lease_ms = min(max(lease_ms, low), high)
        self._options = options
        self._jobs: dict[int, ClaimedJob] = {}
        self._outcomes: list[Outcome] = []
        self._hold_us = 0
        self.counts = WorkDone(0, 0, 0)
        self.error: HeadwaterError | None = None
        """What the server said to an ack or the like; nothing more can be done then."""

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def room(self) -> int:
        return self._options.most - len(self._jobs)

    def take(self, jobs: Iterable[ClaimedJob], now_us: int) -> None:
        if not self._jobs:
            self._hold_us = now_us + self._share_us
        self._jobs.update((job.record.seq, job) for job in jobs)

    def ended(self, job: ClaimedJob, error: BaseException | None = None) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.never_begun(job)  # whatever its handler did: another worker begins anew
            return
        delay_ms = 0 if error is None else self._options.delay_ms(job, error)
        self._outcomes.append(Outcome(job, error, delay_ms))

    def never_begun(self, job: ClaimedJob) -> None:
        self._outcomes.append(Outcome(job, begun=False))

    # -- reporting to the server

    def batches(self) -> list[OutcomeBatch]:
        """The outcomes since the last call, those with the same delay together."""
        by_delay: dict[int | None, list[Outcome]] = {}
        for outcome in self._outcomes:
            is_done = outcome.begun and outcome.error is None
            by_delay.setdefault(None if is_done else outcome.delay_ms, []).append(outcome)
        self._outcomes = []
        return [OutcomeBatch(outcomes, delay_ms) for delay_ms, outcomes in by_delay.items()]

    def reported(self, batch: OutcomeBatch, answer: LeaseResult) -> None:
        """The server has answered the ack or nack of this batch."""
        taken = set(answer.seqs)
        done, failed, lost = self.counts
        for outcome in batch.outcomes:
            self._jobs.pop(outcome.job.record.seq, None)
            if outcome.job.record.seq not in taken:
                lost += outcome.begun
                outcome = outcome._replace(lost=True)
            elif batch.delay_ms is None:
                done += 1
            else:
                failed += outcome.error is not None
            self._options.on_done(outcome)
        self.counts = WorkDone(done, failed, lost)

    @property
    def next_hold_us(self) -> int | None:
        """When the leases are to be renewed."""
        return self._hold_us if self._jobs else None

    def holding(self, now_us: int) -> list[ClaimedJob]:
        """The jobs to be held longer now; none if it is not time yet."""
        if not self._jobs or now_us < self._hold_us:
            return []
        self._hold_us = now_us + self._share_us
        return list(self._jobs.values())

    @property
    def _share_us(self) -> int:
        return self.lease_ms * US_PER_MS // HOLD_SHARE
