"""A worker holds a long job, however busy it is with short ones. Without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from headwater.api.async_worker import AsyncWorker
from headwater.api.call_list import ClaimCall, ExtendCall
from headwater.api.jobs import WorkDone, WorkOptions
from headwater.api.worker import Worker
from headwater.core.records import Record
from headwater.core.results import Claimed, ClaimedJob, LeaseResult
from headwater.testing import ManualClock

LEASE_MS = 300
ACK_US = 60_000
LONG = 1
"""The job that takes as long as all others together."""
LAST = 20


class Queue:
    """One long job, then short ones. A short job is done while the one before it is acked, which
    takes a while: there is always something to settle."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.seqs = iter(range(LONG, LAST + 1))
        self.acking = LONG
        self.held_until_us = 0
        self.was_lost = False
        self.worker: Any = None

    def given(self, limit: int) -> Claimed:
        seqs = [seq for _, seq in zip(range(limit), self.seqs, strict=False)]
        if LONG in seqs:
            self.hold()
        elif not seqs:
            self.clock.advance(20_000)
        jobs = [ClaimedJob(Record(seq, 1, None, None, b"null", None), 1, 0, 1) for seq in seqs]
        return Claimed(jobs, 0)

    def hold(self) -> LeaseResult:
        self.held_until_us = self.clock.monotonic_us() + LEASE_MS * 1_000
        return LeaseResult([], [], 0, 0, {})

    def may_end(self, seq: int) -> bool:
        """Whether the handler of this job returns by now."""
        return self.acking == LAST if seq == LONG else self.acking >= seq - 1

    def begin_ack(self, seqs: Sequence[int]) -> None:
        self.acking = max(self.acking, *seqs)

    def may_answer(self) -> bool:
        return bool(self.acking == LAST or self.worker._held._outcomes)

    def acked(self, seqs: Sequence[int]) -> LeaseResult:
        self.clock.advance(ACK_US)
        self.was_lost |= LONG not in seqs and self.clock.monotonic_us() > self.held_until_us
        return LeaseResult(list(seqs), [], 0, 0, {})


def options() -> WorkOptions:
    return WorkOptions(threads=3, limit=3, idle_ms=10)


def test_a_worker_of_threads_holds_a_long_job_while_it_settles_short_ones() -> None:
    queue, pause = Queue(ManualClock()), threading.Event()

    def carry_out(call: Any) -> Any:
        if isinstance(call, ClaimCall):
            return queue.given(call.limit)
        if isinstance(call, ExtendCall):
            return queue.hold()
        queue.begin_ack(call.seqs)
        while not queue.may_answer():
            pause.wait(0.001)
        return queue.acked(call.seqs)

    def handle(job: ClaimedJob) -> None:
        while not queue.may_end(job.record.seq):
            pause.wait(0.001)

    worker = queue.worker = Worker(carry_out, "t", handle, options(), queue.clock, LEASE_MS)
    assert worker.run() == WorkDone(LAST, 0, 0)
    assert not queue.was_lost


def test_a_worker_of_a_loop_holds_a_long_job_while_it_settles_short_ones() -> None:
    async def story() -> None:
        queue = Queue(ManualClock())

        async def carry_out(call: Any) -> Any:
            if isinstance(call, ClaimCall):
                await asyncio.sleep(0)
                return queue.given(call.limit)
            if isinstance(call, ExtendCall):
                return queue.hold()
            queue.begin_ack(call.seqs)
            while not queue.may_answer():
                await asyncio.sleep(0)
            return queue.acked(call.seqs)

        async def handle(job: ClaimedJob) -> None:
            while not queue.may_end(job.record.seq):
                await asyncio.sleep(0)

        worker = queue.worker = AsyncWorker(
            carry_out, "t", handle, options(), queue.clock, LEASE_MS
        )
        assert await worker.run() == WorkDone(LAST, 0, 0)
        assert not queue.was_lost

    asyncio.run(story())


def test_a_worker_of_a_loop_gives_back_jobs_whose_handlers_never_got_a_turn() -> None:
    async def story() -> None:
        given_back: list[int] = []
        chosen = options()

        async def carry_out(call: Any) -> Any:
            if isinstance(call, ClaimCall):
                chosen.stop.set()  # before any of these jobs can begin
                records = [Record(seq, 1, None, None, b"null", None) for seq in (1, 2)]
                return Claimed([ClaimedJob(record, 1, 0, 1) for record in records], 0)
            given_back.extend(call.seqs)
            return LeaseResult(list(call.seqs), [], 0, 0, {})

        async def handle(_job: ClaimedJob) -> None:
            raise AssertionError("it was stopped before")

        worker = AsyncWorker(carry_out, "t", handle, chosen, ManualClock(), LEASE_MS)
        assert await worker.run() == WorkDone(0, 0, 0)
        assert given_back == [1, 2]

    asyncio.run(story())
