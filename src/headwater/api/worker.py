# Generated from api/async_worker.py by "make twins"; change that file, not this one.
"""The worker for threads: claims jobs, has their handlers run, reports how they ended.

Over the list of calls, so that a client and an open database have the same one. It claims; a crew
runs the handlers; a reporter acks or nacks the outcomes and extends the leases of running jobs. So
a slow claim delays no ack, and a slow handler loses no lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from headwater.api import call_list as calls
from headwater.api.call_list import ApiCall
from headwater.api.jobs import Handler, HeldJobs, OutcomeBatch, WorkDone, WorkOptions
from headwater.api.thread_crew import HANDLER_ERRORS, Bell, Crew
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError
from headwater.core.results import ClaimedJob

T = TypeVar("T")


class QueueCalls(Protocol):
    """How a call is carried out: by a client, or by an open database."""

    def __call__(self, call: ApiCall[T], /) -> T: ...


def work(
    call: QueueCalls, topic: str, handler: Handler, options: WorkOptions, clock: Clock
) -> WorkDone:
    """Works until it is stopped or idle for too long, or its calls are refused."""
    lease_ms = options.lease_ms
    if lease_ms is None:
        state = call(calls.StateCall(topic))
        lease_ms = int(state.config["lease_ms"])
    return Worker(call, topic, handler, options, clock, lease_ms).run()


class Worker:
    def __init__(
        self,
        call: QueueCalls,
        topic: str,
        handler: Handler,
        options: WorkOptions,
        clock: Clock,
        lease_ms: int,
    ) -> None:
        self._call = call
        self._topic = topic
        self._handler = handler
        self._options = options
        self._clock = clock
        self._held = HeldJobs(options, lease_ms)
        self._crew = Crew(options.threads)
        self._closing = False
        self._wakeup = Bell(clock)
        """For the reporter: an outcome, a lease to extend, or the end."""
        self._room = Bell(clock)
        """For who claims: there is room, or a reason to end."""
        options.stop.listen(self._room.ring)

    def run(self) -> WorkDone:
        self._crew.begin_reporting(self._report_all)
        try:
            self._claim_all()
            self._finish()
        except BaseException:
            self._crew.cancel_running()
            self._finish()
            raise
        finally:
            self._closing = True
            self._wakeup.ring()
            self._crew.finish_reporting()
        if self._held.error is not None:
            raise self._held.error
        return self._held.counts

    def _finish(self) -> None:
        """What is under way ends; what has not begun is given back."""
        with self._crew.lock:
            for job in self._crew.cancel_waiting():
                self._held.never_begun(job)
        self._wakeup.ring()
        self._crew.finish()

    # -- claiming

    def _claim_all(self) -> None:
        options, held, now_us = self._options, self._held, self._clock.monotonic_us
        busy_us = now_us()
        while not options.stop.is_set and held.error is None:
            with self._crew.lock:
                room, count = held.room, len(held)
            if count:
                busy_us = now_us()
            if not room:
                self._room.wait(None)
                continue
            wait_ms = options.wait_ms(now_us() - busy_us)
            claimed = self._call(
                calls.ClaimCall(self._topic, options.node, room, held.lease_ms, wait_ms)
            )
            if claimed.jobs:
                self._begin(claimed.jobs)
            elif not count and options.is_over(now_us() - busy_us):
                return

    def _begin(self, jobs: Sequence[ClaimedJob]) -> None:
        with self._crew.lock:
            self._held.take(jobs, self._clock.monotonic_us())
            for job in jobs:
                self._crew.begin(self._handle, job)
        self._wakeup.ring()

    def _handle(self, job: ClaimedJob) -> None:
        error: BaseException | None = None
        begun = not self._options.stop.is_set
        try:
            if begun:
                self._handler(job)
        except HANDLER_ERRORS as raised:
            error = raised
        with self._crew.lock:
            if begun:
                self._held.ended(job, error)
            else:
                self._held.never_begun(job)
        self._wakeup.ring()

    # -- reporting

    def _report_all(self) -> None:
        held = self._held
        try:
            while True:
                with self._crew.lock:
                    closing = self._closing
                    batches = held.batches()
                for batch in batches:
                    self._report(batch)
                with self._crew.lock:  # also when there is always something to report
                    holding = held.holding(self._clock.monotonic_us())
                    next_us = held.next_hold_us
                if holding:
                    self._hold(holding)
                if closing and not batches:
                    return
                if not batches:
                    self._wakeup.wait(next_us)
        except HeadwaterError as error:
            held.error = error
        finally:
            self._room.ring()

    def _report(self, batch: OutcomeBatch) -> None:
        jobs = self._topic, self._options.node, batch.seqs, batch.lease_ids
        answer = self._call(
            calls.AckCall(*jobs)
            if batch.delay_ms is None
            else calls.NackCall(*jobs, batch.delay_ms)
        )
        with self._crew.lock:
            self._held.reported(batch, answer)
        self._room.ring()

    def _hold(self, jobs: Sequence[ClaimedJob]) -> None:
        seqs, lease_ids = [job.record.seq for job in jobs], [job.lease_id for job in jobs]
        held = self._topic, self._options.node, seqs, lease_ids
        self._call(calls.ExtendCall(*held, self._held.lease_ms))
