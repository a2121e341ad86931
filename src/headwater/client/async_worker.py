"""The worker for event loops: the same as for threads, in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from headwater.client.jobs import HeldJobs, OutcomeBatch, WorkDone, WorkOptions
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError
from headwater.core.results import Claimed, ClaimedJob, LeaseResult, TopicState
from headwater.core.units import US_PER_S

AsyncHandler = Callable[[ClaimedJob], Awaitable[object]]


class AsyncQueueCalls(Protocol):
    """What a worker needs: a client has it, and so has an open database."""

    async def state(self, topic: str) -> TopicState: ...

    async def claim(
        self, topic: str, node: str, limit: int = 1, *, lease_ms: int | None, wait_ms: int
    ) -> Claimed: ...

    async def ack(
        self, topic: str, node: str, seqs: Sequence[int], *, lease_ids: Sequence[int] | None
    ) -> LeaseResult: ...

    async def nack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None,
        delay_ms: int,
    ) -> LeaseResult: ...

    async def extend(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None,
        lease_ms: int | None,
    ) -> LeaseResult: ...


async def work_async(
    queue: AsyncQueueCalls, topic: str, handler: AsyncHandler, options: WorkOptions, clock: Clock
) -> WorkDone:
    """Works until it is cancelled, stopped or idle for too long, or the server refuses."""
    lease_ms = options.lease_ms
    if lease_ms is None:
        lease_ms = int((await queue.state(topic)).config["lease_ms"])
    return await AsyncWorker(queue, topic, handler, options, clock, lease_ms).run()


class AsyncWorker:
    def __init__(
        self,
        queue: AsyncQueueCalls,
        topic: str,
        handler: AsyncHandler,
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
        self._turns = asyncio.Semaphore(options.threads)
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[int] = set()
        self._closing = False
        self._wakeup = asyncio.Event()
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        options.stop.listen(self._on_stop)

    def _on_stop(self) -> None:
        """On any thread."""
        self._loop.call_soon_threadsafe(self._room.set)

    async def run(self) -> WorkDone:
        reporter = asyncio.create_task(self._report_all())
        try:
            await self._claim_all()
            await self._finish(cancel=False)
        except BaseException:
            await self._finish(cancel=True)
            raise
        finally:
            self._closing = True
            self._wakeup.set()
            await reporter
        if self._held.error is not None:
            raise self._held.error
        return self._held.counts

    async def _finish(self, *, cancel: bool) -> None:
        """What is under way ends, in its own time or at once; what is not begun does not begin."""
        for task in self._tasks:
            if cancel or task.get_name() not in map(str, self._begun):
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- claiming

    async def _claim_all(self) -> None:
        options, held, now_us = self._options, self._held, self._clock.monotonic_us
        busy_us = now_us()
        while not options.stop.is_set and held.error is None:
            self._room.clear()
            if held:
                busy_us = now_us()
            if not held.room:
                await self._room.wait()
                continue
            claimed = await self._queue.claim(
                self._topic,
                options.node,
                held.room,
                lease_ms=held.lease_ms,
                wait_ms=options.wait_ms(now_us() - busy_us),
            )
            held.take(claimed.jobs, now_us())
            for job in claimed.jobs:
                task = asyncio.create_task(self._handle(job), name=str(job.record.seq))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if claimed.jobs:
                self._wakeup.set()  # there is a lease to renew, sometime
            elif not held and options.is_over(now_us() - busy_us):
                return

    async def _handle(self, job: ClaimedJob) -> None:
        seq = job.record.seq
        try:
            async with self._turns:
                if self._options.stop.is_set:
                    raise asyncio.CancelledError
                self._begun.add(seq)
                await self._handler(job)
        except asyncio.CancelledError:
            self._held.never_begun(job)
        except Exception as error:
            self._held.ended(job, error)
        else:
            self._held.ended(job)
        finally:
            self._begun.discard(seq)
            self._wakeup.set()

    # -- reporting to the server

    async def _report_all(self) -> None:
        held = self._held
        try:
            while True:
                self._wakeup.clear()
                batches = held.batches()
                for batch in batches:
                    await self._report(batch)
                holding = held.holding(self._clock.monotonic_us())
                if holding:  # also when there is always something to report
                    await self._hold(holding)
                if batches:
                    continue
                if self._closing:
                    return
                await self._wait()
        except HeadwaterError as error:
            held.error = error
        finally:
            self._room.set()

    async def _wait(self) -> None:
        next_us = self._held.next_hold_us
        timeout_s = None
        if next_us is not None:
            timeout_s = max(next_us - self._clock.monotonic_us(), 0) / US_PER_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wakeup.wait(), timeout_s)

    async def _report(self, batch: OutcomeBatch) -> None:
        queue, node = self._queue, self._options.node
        seqs, lease_ids = batch.seqs, batch.lease_ids
        if batch.delay_ms is None:
            answer = await queue.ack(self._topic, node, seqs, lease_ids=lease_ids)
        else:
            answer = await queue.nack(
                self._topic, node, seqs, lease_ids=lease_ids, delay_ms=batch.delay_ms
            )
        self._held.reported(batch, answer)
        self._room.set()

    async def _hold(self, jobs: Sequence[ClaimedJob]) -> None:
        await self._queue.extend(
            self._topic,
            self._options.node,
            [job.record.seq for job in jobs],
            lease_ids=[job.lease_id for job in jobs],
            lease_ms=self._held.lease_ms,
        )
