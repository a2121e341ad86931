"""The worker for event loops: the same as for threads, in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from headwater.client.working import Hand, Settling, WorkDone, WorkWishes
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_S
from headwater.engine.queue_answers import Claimed, ClaimedJob, LeaseResult
from headwater.engine.topics import TopicState

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
    queue: AsyncQueueCalls, topic: str, handler: AsyncHandler, wishes: WorkWishes, clock: Clock
) -> WorkDone:
    """Until cancelled or told to stop, or idle for too long, or the server says no."""
    lease_ms = wishes.lease_ms
    if lease_ms is None:
        lease_ms = int((await queue.state(topic)).config["lease_ms"])
    return await AsyncWorker(queue, topic, handler, wishes, clock, lease_ms).run()


class AsyncWorker:
    def __init__(
        self,
        queue: AsyncQueueCalls,
        topic: str,
        handler: AsyncHandler,
        wishes: WorkWishes,
        clock: Clock,
        lease_ms: int,
    ) -> None:
        self._queue = queue
        self._topic = topic
        self._handler = handler
        self._wishes = wishes
        self._clock = clock
        self._hand = Hand(wishes, lease_ms)
        self._turns = asyncio.Semaphore(wishes.threads)
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[int] = set()
        self._closing = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        wishes.stop.listen(self._hear_stop)

    def _hear_stop(self) -> None:
        """On any thread."""
        self._loop.call_soon_threadsafe(self._room.set)

    async def run(self) -> WorkDone:
        settling = asyncio.create_task(self._settle_all())
        try:
            await self._claim_all()
            await self._finish(cancel=False)
        except BaseException:
            await self._finish(cancel=True)
            raise
        finally:
            self._closing = True
            self._news.set()
            await settling
        if self._hand.error is not None:
            raise self._hand.error
        return self._hand.counts

    async def _finish(self, *, cancel: bool) -> None:
        """What is under way ends, in its own time or at once; what is not begun does not begin."""
        for task in self._tasks:
            if cancel or task.get_name() not in map(str, self._begun):
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- claiming

    async def _claim_all(self) -> None:
        wishes, hand, now_us = self._wishes, self._hand, self._clock.monotonic_us
        busy_us = now_us()
        while not wishes.stop.is_set and hand.error is None:
            self._room.clear()
            if hand:
                busy_us = now_us()
            if not hand.room:
                await self._room.wait()
                continue
            claimed = await self._queue.claim(
                self._topic,
                wishes.node,
                hand.room,
                lease_ms=hand.lease_ms,
                wait_ms=wishes.wait_ms(now_us() - busy_us),
            )
            hand.take(claimed.jobs, now_us())
            for job in claimed.jobs:
                task = asyncio.create_task(self._handle(job), name=str(job.record.seq))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if claimed.jobs:
                self._news.set()  # there is a lease to renew, sometime
            elif not hand and wishes.is_over(now_us() - busy_us):
                return

    async def _handle(self, job: ClaimedJob) -> None:
        seq = job.record.seq
        try:
            async with self._turns:
                if self._wishes.stop.is_set:
                    raise asyncio.CancelledError
                self._begun.add(seq)
                await self._handler(job)
        except asyncio.CancelledError:
            self._hand.never_begun(job)
        except Exception as error:
            self._hand.ended(job, error)
        else:
            self._hand.ended(job)
        finally:
            self._begun.discard(seq)
            self._news.set()

    # -- settling

    async def _settle_all(self) -> None:
        hand = self._hand
        try:
            while True:
                self._news.clear()
                settlings = hand.settlings()
                for settling in settlings:
                    await self._settle(settling)
                holding = hand.holding(self._clock.monotonic_us())
                if holding:  # also when there is always something to settle
                    await self._hold(holding)
                if settlings:
                    continue
                if self._closing:
                    return
                await self._wait()
        except HeadwaterError as error:
            hand.error = error
        finally:
            self._room.set()

    async def _wait(self) -> None:
        next_us = self._hand.next_hold_us
        timeout_s = None
        if next_us is not None:
            timeout_s = max(next_us - self._clock.monotonic_us(), 0) / US_PER_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout_s)

    async def _settle(self, settling: Settling) -> None:
        queue, node = self._queue, self._wishes.node
        seqs, lease_ids = settling.seqs, settling.lease_ids
        if settling.delay_ms is None:
            answer = await queue.ack(self._topic, node, seqs, lease_ids=lease_ids)
        else:
            answer = await queue.nack(
                self._topic, node, seqs, lease_ids=lease_ids, delay_ms=settling.delay_ms
            )
        self._hand.settled(settling, answer)
        self._room.set()

    async def _hold(self, jobs: Sequence[ClaimedJob]) -> None:
        await self._queue.extend(
            self._topic,
            self._wishes.node,
            [job.record.seq for job in jobs],
            lease_ids=[job.lease_id for job in jobs],
            lease_ms=self._hand.lease_ms,
        )
