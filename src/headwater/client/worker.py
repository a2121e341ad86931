"""The worker for threads.

The calling thread claims; a pool runs the handlers; one more thread acks or nacks the outcomes and
extends the leases of running jobs. So a slow claim delays no ack, and a slow handler loses no
lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from headwater.client.jobs import HeldJobs, OutcomeBatch, WorkDone, WorkOptions
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import HeadwaterError
from headwater.core.results import Claimed, ClaimedJob, LeaseResult, TopicState

Handler = Callable[[ClaimedJob], object]


class QueueCalls(Protocol):
    """What a worker needs: a client has it, and so has an open database."""

    def state(self, topic: str) -> TopicState: ...

    def claim(
        self, topic: str, node: str, limit: int = 1, *, lease_ms: int | None, wait_ms: int
    ) -> Claimed: ...

    def ack(
        self, topic: str, node: str, seqs: Sequence[int], *, lease_ids: Sequence[int] | None
    ) -> LeaseResult: ...

    def nack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None,
        delay_ms: int,
    ) -> LeaseResult: ...

    def extend(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None,
        lease_ms: int | None,
    ) -> LeaseResult: ...


def work(
    queue: QueueCalls, topic: str, handler: Handler, options: WorkOptions, clock: Clock
) -> WorkDone:
    """Works until it is stopped or idle for too long, or the server refuses."""
    lease_ms = options.lease_ms
    if lease_ms is None:
        lease_ms = int(queue.state(topic).config["lease_ms"])
    return Worker(queue, topic, handler, options, clock, lease_ms).run()


class Worker:
    def __init__(
        self,
        queue: QueueCalls,
        topic: str,
        handler: Handler,
        options: WorkOptions,
        clock: Clock,
        lease_ms: int,
    ) -> None:
        self._queue = queue
        self._topic = topic
        self._handler = handler
        self._options = options
        self._clock = clock
        self._held = HeldJobs(options, lease_ms)
        self._lock = threading.Lock()
        """Around the hand, which three kinds of threads touch."""
        self._futures: dict[Future[None], ClaimedJob] = {}
        self._closing = False
        self._wakeup = Doorbell()
        """For the reporting thread: an outcome, or the end."""
        self._room = Doorbell()
        """For the claiming thread: there is room, or a reason to end."""
        options.stop.listen(self._room.ring)

    def run(self) -> WorkDone:
        pool = ThreadPoolExecutor(self._options.threads, "headwater-work")
        reporter = threading.Thread(target=self._report_all, name="headwater-report", daemon=True)
        reporter.start()
        try:
            self._claim_all(pool)
        finally:
            self._give_back_unbegun()
            pool.shutdown(wait=True)
            self._closing = True
            self._wakeup.ring()
            reporter.join()
        if self._held.error is not None:
            raise self._held.error
        return self._held.counts

    # -- claiming

    def _claim_all(self, pool: ThreadPoolExecutor) -> None:
        options, held, now_us = self._options, self._held, self._clock.monotonic_us
        busy_us = now_us()
        while not options.stop.is_set and held.error is None:
            with self._lock:
                room, count = held.room, len(held)
            if count:
                busy_us = now_us()
            if not room:
                self._clock.wait(self._room, None)
                continue
            idle_us = now_us() - busy_us
            claimed = self._queue.claim(
                self._topic,
                options.node,
                room,
                lease_ms=held.lease_ms,
                wait_ms=options.wait_ms(idle_us),
            )
            if claimed.jobs:
                self._begin(pool, claimed.jobs)
            elif not count and options.is_over(now_us() - busy_us):
                return

    def _begin(self, pool: ThreadPoolExecutor, jobs: Sequence[ClaimedJob]) -> None:
        with self._lock:
            self._held.take(jobs, self._clock.monotonic_us())
            for job in jobs:
                self._futures[pool.submit(self._handle, job)] = job
        self._wakeup.ring()  # there is a lease to renew, sometime

    def _handle(self, job: ClaimedJob) -> None:
        error: BaseException | None = None
        begun = not self._options.stop.is_set
        try:
            if begun:
                self._handler(job)
        except BaseException as raised:  # a worker outlives whatever its handler does
            error = raised
        with self._lock:
            if begun:
                self._held.ended(job, error)
            else:
                self._held.never_begun(job)
        self._wakeup.ring()

    def _give_back_unbegun(self) -> None:
        with self._lock:
            for future, job in self._futures.items():
                if future.cancel():
                    self._held.never_begun(job)
        self._wakeup.ring()

    # -- reporting to the server

    def _report_all(self) -> None:
        held = self._held
        try:
            while True:
                with self._lock:
                    closing = self._closing
                    batches = held.batches()
                    self._futures = {f: job for f, job in self._futures.items() if not f.done()}
                for batch in batches:
                    self._report(batch)
                with self._lock:  # also when there is always something to report
                    holding = held.holding(self._clock.monotonic_us())
                    next_us = held.next_hold_us
                if holding:
                    self._hold(holding)
                if closing and not batches:
                    return
                if not batches:
                    self._clock.wait(self._wakeup, next_us)
        except HeadwaterError as error:
            held.error = error
        finally:
            self._room.ring()

    def _report(self, batch: OutcomeBatch) -> None:
        queue, node = self._queue, self._options.node
        seqs, lease_ids = batch.seqs, batch.lease_ids
        if batch.delay_ms is None:
            answer = queue.ack(self._topic, node, seqs, lease_ids=lease_ids)
        else:
            answer = queue.nack(
                self._topic, node, seqs, lease_ids=lease_ids, delay_ms=batch.delay_ms
            )
        with self._lock:
            self._held.reported(batch, answer)
        self._room.ring()

    def _hold(self, jobs: Sequence[ClaimedJob]) -> None:
        self._queue.extend(
            self._topic,
            self._options.node,
            [job.record.seq for job in jobs],
            lease_ids=[job.lease_id for job in jobs],
            lease_ms=self._held.lease_ms,
        )
