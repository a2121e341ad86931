"""The awaitable client: the calls of `headwater.open_async`, over HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from types import TracebackType
from typing import Any, TypeVar, cast

from headwater.api.machines import Moved
from headwater.api.machines_async import AsyncMachines
from headwater.client import calls, router_calls
from headwater.client.async_worker import work_async
from headwater.client.blocking import DEFAULT_URL
from headwater.client.calls import ARROW_ROWS_DEFAULT, Records
from headwater.client.http import Address, AsyncHttp, AsyncStream
from headwater.client.jobs import WorkDone, WorkOptions
from headwater.client.machine_http import follow_operation, machine_operation
from headwater.client.operations import (
    ClientOperation,
    Pause,
    RetryPolicy,
    Send,
    Step,
    call_operation,
    create_operation,
    topics_operation,
)
from headwater.client.retry import Retry
from headwater.client.watch import (
    Follow,
    HandOver,
    NextBytes,
    Watched,
    WatchOperation,
    only_one,
    polling_operation,
    watch_operation,
    watch_request,
)
from headwater.config.topic import check_topic_name
from headwater.core.clock import Clock, SystemClock
from headwater.core.driver import drive_async, wait_always
from headwater.core.errors import HeadwaterError
from headwater.core.limits import INTEGER_MAX
from headwater.core.records import Record
from headwater.core.results import (
    Appended,
    ArrowPage,
    Claimed,
    ClaimedJob,
    Deleted,
    Diff,
    LeaseResult,
    QueueStats,
    Requeued,
    RouterState,
    Tombstone,
    TopicState,
)

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class AsyncClient:
    """A server, seen from a program with an event loop.

    `token` is the secret of an API key. `timeout_s` is for one attempt; `retry` says how long to
    go on. `sleep`, `clock` and `rng` are for tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        ca_file: str | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._address = Address(url, token, timeout_s, ca_file)
        self._http = AsyncHttp(self._address)
        self._policy = RetryPolicy(retry or Retry(), rng or random.SystemRandom())
        self._clock = clock or SystemClock()
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"AsyncClient({self._address!r})"

    async def create(self, topic: str, **settings: Any) -> TopicState:
        """Make a topic, or change the settings of one that is there."""
        return await self._drive(create_operation(topic, settings, self._policy))

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
        """Write one record or a list of them: all or nothing. A record is a mapping with `data`
        and, as wanted, `tag`, `node` and `meta`.

        Has an idempotency key, yours or a new one, so that it can be sent again without being
        written twice. `NoAnswerError` means that it may or may not be written: write it again
        with the same key.
        """
        call = calls.append(
            topic,
            records,
            self._policy.new_key() if idempotency_key is None else idempotency_key,
            node=node,
            expect_head_seq=expect_head_seq,
            create=create,
            settings=settings,
            disable_backpressure=disable_backpressure,
        )
        return await self._drive(call_operation(call, self._policy))

    async def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Diff:
        """What came after `from_seq`. Options: limit, max_batch_bytes, wait_ms, node, match."""
        return await self._drive(
            call_operation(calls.diff(topic, from_seq, **options), self._policy)
        )

    async def arrow(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        to_seq: int = INTEGER_MAX,
        limit: int = ARROW_ROWS_DEFAULT,
    ) -> ArrowPage:
        """What came after `from_seq`, up to `to_seq`, as an Arrow IPC stream; go on from
        `next_from_seq` until it is `caught_up`."""
        call = calls.arrow(topic, from_seq, to_seq, limit)
        return await self._drive(call_operation(call, self._policy))

    def watch(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        tail: bool = False,
        idle_ms: int | None = None,
        node: str | Iterable[str] | None = None,
        match: object | None = None,
    ) -> AsyncIterator[Record | Tombstone]:
        """Records as they come, for ever, restarts of the server included; a Tombstone stands
        where records were lost.

        `tail` begins at the end. `idle_ms` ends the watch when nothing came for so long.
        """
        begin = None if tail else from_seq
        watch = watch_request(check_topic_name(topic), node, match, from_seq=begin)
        if idle_ms is None:
            operation = watch_operation(watch, self._policy)
        else:
            operation = polling_operation(topic, begin, idle_ms, watch.node, match, self._policy)
        return self._only_one(operation)

    def watch_topics(
        self,
        topics: str | Iterable[str] | Mapping[str, int | None],
        *,
        tail: bool = False,
        node: str | Iterable[str] | None = None,
        match: object | None = None,
    ) -> AsyncIterator[Watched]:
        """Several topics at once. A name that ends in a star means all that begin so, those that
        are made later too. A mapping says where to begin: a seq, or None for the end."""
        watch = watch_request(topics, node, match, from_seq=None if tail else 0)
        return self._follow(watch_operation(watch, self._policy))

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: object | None = None
    ) -> Deleted:
        """Delete records for good: below a seq, by tag (`"x"`, `"x*"`), or those that are both."""
        return await self._drive(
            call_operation(calls.delete(topic, before_seq, match), self._policy)
        )

    async def state(self, topic: str) -> TopicState:
        return await self._drive(call_operation(calls.get_topic(topic), self._policy))

    async def topics(self, prefix: str = "") -> list[TopicState]:
        """All topics, by name."""
        return await self._drive(topics_operation(prefix, self._policy))

    async def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Drop a topic and everything in it. False when there was none."""
        return await self._drive(call_operation(calls.drop(topic, if_empty=if_empty), self._policy))

    # -- routers

    async def put_router(self, router: str, **settings: Any) -> RouterState:
        """Copy what comes into `source` to `dest`. Other settings: preserve_node, preserve_tag,
        create_dest, filter, allow_cycle, guarantee."""
        return await self._drive(router_calls.put_router_operation(router, settings, self._policy))

    async def router(self, router: str) -> RouterState:
        """How far a router has come."""
        return await self._drive(call_operation(router_calls.get_router(router), self._policy))

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterState]:
        """All routers, by name."""
        return await self._drive(router_calls.routers_operation(prefix, source, dest, self._policy))

    async def delete_router(self, router: str) -> bool:
        """Remove a router; what it has copied stays. False when there was none."""
        return await self._drive(call_operation(router_calls.delete_router(router), self._policy))

    @property
    def machines(self) -> AsyncMachines:
        """State machines: definitions, instances, events."""
        return AsyncMachines(
            lambda request: self._drive(machine_operation(request, self._policy)),
            lambda watch_request, start, idle_ms: self._moves(
                follow_operation(watch_request, start, idle_ms, self._policy)
            ),
        )

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
        call = calls.claim(topic, node, limit, lease_ms, wait_ms)
        return await self._drive(call_operation(call, self._policy))

    async def ack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
    ) -> LeaseResult:
        """These jobs are done: they are deleted for good."""
        return await self._drive(
            call_operation(calls.ack(topic, node, seqs, lease_ids), self._policy)
        )

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
        call = calls.nack(topic, node, seqs, lease_ids, delay_ms)
        return await self._drive(call_operation(call, self._policy))

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
        call = calls.extend(topic, node, seqs, lease_ids, lease_ms)
        return await self._drive(call_operation(call, self._policy))

    async def requeue(self, topic: str, seqs: Sequence[int]) -> Requeued:
        """Give dead letters of this topic back to the queues they came from."""
        return await self._drive(call_operation(calls.requeue(topic, seqs), self._policy))

    async def queue_stats(self, topic: str) -> QueueStats:
        """How many jobs are ready, in flight, delayed, and were given up."""
        return await self._drive(call_operation(calls.queue_stats(topic), self._policy))

    async def work(
        self, topic: str, handler: Callable[[ClaimedJob], Awaitable[object]], **options: Any
    ) -> WorkDone:
        """Claim jobs and await `handler` for each, until cancelled. A job whose handler returns is
        acked; one whose handler raises is given back, to be tried again after a while. Jobs are
        held as long as their handler runs.

        Options: node, threads (1; handlers at a time), limit, lease_ms, retry_ms (1000),
        retry_ms_max, idle_ms (end when nothing came for so long), stop, on_done. See `WorkOptions`.
        """
        return await work_async(self, topic, handler, WorkOptions(**options), self._clock)

    async def metrics(self) -> dict[str, Any]:
        """The server's metrics, by name."""
        return await self._drive(call_operation(calls.metrics(), self._policy))

    async def ready(self) -> str:
        """Waits for a server that starts: then `ok`, or `full` when its disk is."""
        return await self._drive(call_operation(calls.ready(), self._policy))

    async def close(self) -> None:
        """Give the connections back. May be called twice."""
        await self._http.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- driving

    async def _drive(self, operation: ClientOperation[T]) -> T:
        return await drive_async(operation, wait_always, self._do)

    def _moves(self, operation: WatchOperation) -> AsyncIterator[Moved]:
        return cast(AsyncIterator[Moved], self._follow(operation))

    async def _only_one(self, operation: WatchOperation) -> AsyncIterator[Record | Tombstone]:
        async with aclosing(self._follow(operation)) as stream:
            async for watched in stream:
                yield only_one(watched)

    async def _follow(self, operation: WatchOperation) -> AsyncGenerator[Watched, None]:
        stream: AsyncStream | None = None
        result: Any = None
        error: HeadwaterError | None = None
        try:
            while True:
                try:
                    step = operation.send(result) if error is None else operation.throw(error)
                except StopIteration:
                    return
                result, error = None, None
                if isinstance(step, HandOver):
                    for watched in step.watched:
                        yield watched
                    continue
                try:
                    if isinstance(step, NextBytes):
                        assert stream is not None
                        result = await stream.next_bytes()
                    elif isinstance(step, Follow):
                        if stream is not None:
                            await stream.close()
                        result, stream = await self._http.follow(step.call)
                    else:
                        result = await self._do(step)
                except HeadwaterError as caught:
                    error = caught
        finally:
            if stream is not None:
                await stream.close()

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return await self._http.send(step.call)
        if isinstance(step, Pause):
            return await self._sleep(step.seconds)
        return self._clock.monotonic_us() / 1_000_000
