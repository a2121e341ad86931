"""The worker for threads.

Whoever called claims; a pool runs the handlers; one more thread settles what they did and holds
what they still do. So a slow claim delays no ack, and a slow handler loses no lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from headwater.client.working import Hand, Settling, WorkDone, WorkWishes
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import HeadwaterError
from headwater.engine.queue_answers import Claimed, ClaimedJob, LeaseResult
from headwater.engine.topics import TopicState

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
    queue: QueueCalls, topic: str, handler: Handler, wishes: WorkWishes, clock: Clock
) -> WorkDone:
    """Until told to stop, or idle for too long, or the server says no."""
    lease_ms = wishes.lease_ms
    if lease_ms is None:
        lease_ms = int(queue.state(topic).config["lease_ms"])
    return Worker(queue, topic, handler, wishes, clock, lease_ms).run()


class Worker:
    def __init__(
        self,
        queue: QueueCalls,
        topic: str,
        handler: Handler,
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
        self._lock = threading.Lock()
        """Around the hand, which three kinds of threads touch."""
        self._futures: dict[Future[None], ClaimedJob] = {}
        self._closing = False
        self._news = Doorbell()
        """For the thread that settles: an outcome, or the end."""
        self._room = Doorbell()
        """For whoever claims: there is room, or a reason to end."""
        wishes.stop.listen(self._room.ring)

    def run(self) -> WorkDone:
        pool = ThreadPoolExecutor(self._wishes.threads, "headwater-work")
        settling = threading.Thread(target=self._settle_all, name="headwater-settle", daemon=True)
        settling.start()
        try:
            self._claim_all(pool)
        finally:
            self._give_back_unbegun()
            pool.shutdown(wait=True)
            self._closing = True
            self._news.ring()
            settling.join()
        if self._hand.error is not None:
            raise self._hand.error
        return self._hand.counts

    # -- claiming

    def _claim_all(self, pool: ThreadPoolExecutor) -> None:
        wishes, hand, now_us = self._wishes, self._hand, self._clock.monotonic_us
        busy_us = now_us()
        while not wishes.stop.is_set and hand.error is None:
            with self._lock:
                room, held = hand.room, len(hand)
            if held:
                busy_us = now_us()
            if not room:
                self._clock.wait(self._room, None)
                continue
            idle_us = now_us() - busy_us
            claimed = self._queue.claim(
                self._topic,
                wishes.node,
                room,
                lease_ms=hand.lease_ms,
                wait_ms=wishes.wait_ms(idle_us),
            )
            if claimed.jobs:
                self._begin(pool, claimed.jobs)
            elif not held and wishes.is_over(now_us() - busy_us):
                return

    def _begin(self, pool: ThreadPoolExecutor, jobs: Sequence[ClaimedJob]) -> None:
        with self._lock:
            self._hand.take(jobs, self._clock.monotonic_us())
            for job in jobs:
                self._futures[pool.submit(self._handle, job)] = job
        self._news.ring()  # there is a lease to renew, sometime

    def _handle(self, job: ClaimedJob) -> None:
        error: BaseException | None = None
        begun = not self._wishes.stop.is_set
        try:
            if begun:
                self._handler(job)
        except BaseException as raised:  # a worker outlives whatever its handler does
            error = raised
        with self._lock:
            if begun:
                self._hand.ended(job, error)
            else:
                self._hand.never_begun(job)
        self._news.ring()

    def _give_back_unbegun(self) -> None:
        with self._lock:
            for future, job in self._futures.items():
                if future.cancel():
                    self._hand.never_begun(job)
        self._news.ring()

    # -- settling

    def _settle_all(self) -> None:
        hand = self._hand
        try:
            while True:
                with self._lock:
                    closing = self._closing
                    settlings = hand.settlings()
                    self._futures = {f: job for f, job in self._futures.items() if not f.done()}
                for settling in settlings:
                    self._settle(settling)
                with self._lock:  # also when there is always something to settle
                    holding = hand.holding(self._clock.monotonic_us())
                    next_us = hand.next_hold_us
                if holding:
                    self._hold(holding)
                if closing and not settlings:
                    return
                if not settlings:
                    self._clock.wait(self._news, next_us)
        except HeadwaterError as error:
            hand.error = error
        finally:
            self._room.ring()

    def _settle(self, settling: Settling) -> None:
        queue, node = self._queue, self._wishes.node
        seqs, lease_ids = settling.seqs, settling.lease_ids
        if settling.delay_ms is None:
            answer = queue.ack(self._topic, node, seqs, lease_ids=lease_ids)
        else:
            answer = queue.nack(
                self._topic, node, seqs, lease_ids=lease_ids, delay_ms=settling.delay_ms
            )
        with self._lock:
            self._hand.settled(settling, answer)
        self._room.ring()

    def _hold(self, jobs: Sequence[ClaimedJob]) -> None:
        self._queue.extend(
            self._topic,
            self._wishes.node,
            [job.record.seq for job in jobs],
            lease_ids=[job.lease_id for job in jobs],
            lease_ms=self._hand.lease_ms,
        )
