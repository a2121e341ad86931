"""The awaitable face: the same database for programs with an event loop.

Everything that touches domain state runs on the loop; what may wait for files is done in a small
pool, so a slow disk delays only the reader that waits for it (I14).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from headwater.api.machines_async import AsyncMachines
from headwater.core.driver import Finished, advance, drive_async
from headwater.core.errors import ClosedError
from headwater.core.records import Record
from headwater.core.results import (
    Appended,
    Claimed,
    Deleted,
    Diff,
    LeaseResult,
    QueueStats,
    Requeued,
    RouterState,
    Tombstone,
    TopicState,
)
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.engine.database import Records
from headwater.engine.engine import Engine
from headwater.engine.machines.dispatch import call_operation
from headwater.engine.machines.watch_loops import follow_async
from headwater.engine.operation import Answered, InFiles, Operation, Step, Woken, do_as_owner
from headwater.engine.pending import Pending
from headwater.engine.queues.operations import (
    ack_operation,
    claim_operation,
    extend_operation,
    nack_operation,
    queue_stats_operation,
)
from headwater.engine.queues.requeue import requeue_operation
from headwater.engine.routers.operations import (
    delete_router_operation,
    put_router_operation,
    router_operation,
    routers_operation,
)
from headwater.engine.topics.creation import create_operation
from headwater.engine.topics.operations import (
    append_operation,
    delete_operation,
    diff_operation,
    diff_request,
    drop_operation,
    state_operation,
    topics_operation,
)
from headwater.engine.topics.watch import watch_requests

T = TypeVar("T")


class AsyncDatabase:
    """A data directory, open in this process, on one event loop. Made by `headwater.open_async`."""

    def __init__(
        self, engine: Engine, loop: asyncio.AbstractEventLoop, readers: ThreadPoolExecutor
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._readers = readers

    @property
    def engine(self) -> Engine:
        """For tools that inspect the engine: counters, recovery report, log state."""
        return self._engine

    @property
    def machines(self) -> AsyncMachines:
        """State machines: definitions, instances, events."""
        engine = self._engine
        return AsyncMachines(
            lambda call: self.drive(call_operation(engine, call)),
            partial(follow_async, engine, self.drive),
        )

    async def create(self, topic: str, **settings: Any) -> TopicState:
        """Make a topic, or change the settings of one that is there."""
        return await self.drive(create_operation(self._engine, topic, settings))

    async def append(
        self,
        topic: str,
        records: Records,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> Appended:
        """Write one record or a list of them: all or nothing."""
        return await self.drive(
            append_operation(
                self._engine,
                topic,
                records,
                node=node,
                idempotency_key=idempotency_key,
                expect_head_seq=expect_head_seq,
                create=create,
                settings=settings,
                disable_backpressure=disable_backpressure,
            )
        )

    async def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Diff:
        """What came after `from_seq`. Options: limit, max_batch_bytes, wait_ms, node, match."""
        return await self.drive(
            diff_operation(self._engine, topic, diff_request(from_seq, **options))
        )

    async def watch(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        tail: bool = False,
        idle_ms: int | None = None,
        node: str | Iterable[str] | None = None,
        match: object | None = None,
    ) -> AsyncIterator[Record | Tombstone]:
        """Records as they come; a Tombstone stands where records were lost."""
        watching = watch_requests(from_seq, idle_ms=idle_ms, node=node, match=match)
        cursor = (await self.state(topic)).head_seq if tail else from_seq
        while True:
            request = watching.request(cursor)
            diff = await self.drive(diff_operation(self._engine, topic, request))
            cursor = diff.next_from_seq
            if diff.tombstone is not None:
                yield diff.tombstone
            for record in diff.records:
                yield record
            if watching.is_over(diff):
                return

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: object | None = None
    ) -> Deleted:
        """Delete records for good: below a seq, by tag, or those that are both."""
        return await self.drive(delete_operation(self._engine, topic, before_seq, match))

    async def state(self, topic: str) -> TopicState:
        return await self.drive(state_operation(self._engine, topic))

    async def topics(self, prefix: str = "") -> list[TopicState]:
        """All topics, by name."""
        return await self.drive(topics_operation(self._engine, prefix))

    async def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Drop a topic and everything in it. False when there was none."""
        dropped = await self.drive(drop_operation(self._engine, topic, if_empty=if_empty))
        return dropped is not None

    # -- queues

    async def claim(
        self,
        topic: str,
        node: str,
        limit: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int = 0,
    ) -> Claimed:
        """Take up to `limit` jobs of a queue; they are this node's until their deadline.
        `wait_ms` waits for a first one."""
        return await self.drive(
            claim_operation(self._engine, topic, node, limit, lease_ms, wait_ms)
        )

    async def ack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
    ) -> LeaseResult:
        """These jobs are done: they are deleted for good."""
        return await self.drive(ack_operation(self._engine, topic, node, seqs, lease_ids))

    async def nack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
        delay_ms: int = 0,
    ) -> LeaseResult:
        """Give these jobs back, to be delivered again at once or after a delay."""
        return await self.drive(
            nack_operation(self._engine, topic, node, seqs, lease_ids, delay_ms)
        )

    async def extend(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
        lease_ms: int | None = None,
    ) -> LeaseResult:
        """Hold these jobs for `lease_ms` from now."""
        return await self.drive(
            extend_operation(self._engine, topic, node, seqs, lease_ids, lease_ms)
        )

    async def requeue(self, topic: str, seqs: Sequence[int]) -> Requeued:
        """Give dead letters of this topic back to the queues they came from."""
        return await self.drive(requeue_operation(self._engine, topic, seqs))

    async def queue_stats(self, topic: str) -> QueueStats:
        """How many jobs are ready, in flight, delayed, and were given up."""
        return await self.drive(queue_stats_operation(self._engine, topic))

    # -- routers

    async def put_router(self, router: str, **settings: Any) -> RouterState:
        """Copy what comes into `source` to `dest`. Other settings: preserve_node, preserve_tag,
        create_dest, filter, allow_cycle, guarantee."""
        state, _created = await self.drive(put_router_operation(self._engine, router, settings))
        return state

    async def router(self, router: str) -> RouterState:
        """How far a router has come."""
        return await self.drive(router_operation(self._engine, router))

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterState]:
        """All routers, by name."""
        return await self.drive(routers_operation(self._engine, prefix, source, dest))

    async def delete_router(self, router: str) -> bool:
        """Remove a router; what it has copied stays. False when there was none."""
        return await self.drive(delete_router_operation(self._engine, router))

    async def checkpoint(self) -> None:
        """Move everything into segments and take a snapshot now. Happens by itself, too."""
        await self._loop.run_in_executor(None, self._engine.checkpoint)

    async def close(self) -> None:
        """Close cleanly. May be called twice."""
        await self._loop.run_in_executor(None, self._engine.close)
        self._readers.shutdown(wait=False)

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def drive(self, operation: Operation[T], step: Step | None = None) -> T:
        """Run an operation, awaiting where it waits; from a step on that was left to wait for."""
        return await drive_async(operation, do_as_owner, self._do, step)

    def begin(self, operation: Operation[T]) -> T | Coroutine[Any, Any, T]:
        """Run an operation as far as it waits for nothing: its result, or the rest to await."""
        outcome = advance(operation, do_as_owner)
        if isinstance(outcome, Finished):
            value: T = outcome.value
            return value
        return self.drive(operation, outcome)

    def drive_at_once(self, operation: Operation[T]) -> T | None:
        """Run an operation that waits for nothing; None when it would have to."""
        outcome = advance(operation, do_as_owner)
        if isinstance(outcome, Finished):
            value: T = outcome.value
            return value
        operation.close()
        return None

    async def _do(self, step: Step) -> Any:
        if self._engine.core.closing:
            raise ClosedError("the database is closed")
        if isinstance(step, InFiles):
            return await self._read(step)
        if isinstance(step, Answered):
            return await self._await_answer(step)
        assert isinstance(step, Woken)
        return await self._await_wake(step)

    async def _read(self, step: InFiles) -> Any:
        now_us, pool = self._engine.core.clock.monotonic_us, self._engine.pressure_control.pool
        pool.began(now_us())
        try:
            return await self._loop.run_in_executor(self._readers, step.work)
        finally:
            pool.ended(now_us())

    async def _await_answer(self, step: Answered) -> Any:
        pending = step.start()
        if not pending.done:
            future: asyncio.Future[None] = self._loop.create_future()

            def resolve(_pending: Pending[Any]) -> None:
                if not future.done():
                    future.set_result(None)

            pending.on_done = resolve
            await future
        return pending.answer()

    async def _await_wake(self, step: Woken) -> None:
        if step.ready():
            return
        woken = asyncio.Event()
        step.topic.waiters.add(woken.set)
        try:
            # The loop's timers count whole milliseconds from when its turn began, so one may end
            # early: it is given one more, and what is left then is waited for again.
            for _ in range(2):
                timeout = None
                if step.until_us is not None:
                    left_us = step.until_us - self._engine.core.clock.monotonic_us()
                    if left_us <= 0:
                        return
                    timeout = (left_us + US_PER_MS) / US_PER_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), timeout)
                    return
        finally:
            step.topic.waiters.discard(woken.set)
