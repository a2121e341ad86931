"""The calls of a program with an event loop: names, keywords and what they mean, listed once.

The embedded library and the client both inherit them, and say how a call is carried out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from headwater.api import call_list as calls
from headwater.api.async_machines import AsyncMachines
from headwater.api.async_worker import work_async
from headwater.api.call_list import ApiCall, Records, WatchingCall
from headwater.api.jobs import AsyncHandler, WorkDone, WorkOptions
from headwater.api.keywords import RouterKeywords, TopicKeywords, WorkKeywords
from headwater.core.clock import Clock
from headwater.core.limits import INTEGER_MAX, READ_BYTES_DEFAULT, READ_RECORDS_DEFAULT
from headwater.core.records import Record
from headwater.core.results import (
    Appended,
    ArrowPage,
    Claimed,
    Deleted,
    Diff,
    LeaseResult,
    QueueStats,
    Requeued,
    RouterState,
    Tombstone,
    TopicState,
    Trace,
    Watched,
)

T = TypeVar("T")


class AsyncReadFace(ABC):
    """The calls that change nothing: those of a database that is only read, too."""

    @abstractmethod
    async def _call(self, call: ApiCall[T]) -> T:
        """Carry it out, and give its answer or raise its error."""

    @abstractmethod
    def _follow(self, call: WatchingCall[T]) -> AsyncIterator[T]:
        """Refuse it at once, or give its answers as they come."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of files, threads and connections. May be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def diff(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int = READ_RECORDS_DEFAULT,
        max_batch_bytes: int = READ_BYTES_DEFAULT,
        wait_ms: int = 0,
        node: str | Iterable[str] | None = None,
        match: object | None = None,
    ) -> Diff:
        """What came after `from_seq`: at most so many records and bytes, at least one record where
        there is any. `wait_ms` waits for a first one. `node` leaves out records of this node, or of
        these; `match` takes only a tag (`"x"`), or tags that begin so (`"x*"`)."""
        return await self._call(
            calls.DiffCall(topic, from_seq, limit, max_batch_bytes, wait_ms, node, match)
        )

    async def arrow(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        to_seq: int = INTEGER_MAX,
        limit: int = calls.ARROW_ROWS_DEFAULT,
    ) -> ArrowPage:
        """What came after `from_seq`, up to `to_seq`, as an Arrow IPC stream; go on from
        `next_from_seq` until it is `caught_up`."""
        return await self._call(calls.ArrowCall(topic, from_seq, to_seq, limit))

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
        """Records as they come, for ever, restarts of a server included; a Tombstone stands where
        records were lost.

        `tail` begins at the end. `idle_ms` ends the watch when nothing came for so long.
        """
        return self._follow(calls.WatchCall(topic, from_seq, tail, idle_ms, node, match))

    async def state(self, topic: str) -> TopicState:
        """How far a topic goes, what it holds, and its settings."""
        return await self._call(calls.StateCall(topic))

    async def topics(self, prefix: str = "") -> list[TopicState]:
        """All topics, by name."""
        return await self._call(calls.TopicsCall(prefix))


class AsyncFace(AsyncReadFace):
    """All calls, for an open database and for a client."""

    _clock: Clock

    # -- topics

    async def create(self, topic: str, **settings: Unpack[TopicKeywords]) -> TopicState:
        """Make a topic, or change the settings of one that is there."""
        return await self._call(calls.CreateCall(topic, settings))

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
        and, as wanted, `tag`, `node` and `meta`. `disable_backpressure` writes on under pressure,
        as long as there is room at all.

        Over HTTP it has an idempotency key, yours or a new one, so that it can be sent again
        without being written twice. `NoAnswerError` means that it may or may not be written: write
        it again with the same key.
        """
        return await self._call(
            calls.AppendCall(
                topic,
                records,
                node,
                idempotency_key,
                expect_head_seq,
                create,
                settings,
                disable_backpressure,
            )
        )

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
        return self._follow(calls.WatchTopicsCall(topics, tail, node, match))

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: object | None = None
    ) -> Deleted:
        """Delete records for good: below a seq, by tag (`"x"`, `"x*"`), or those that are both."""
        return await self._call(calls.DeleteCall(topic, before_seq, match))

    async def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Drop a topic and everything in it. False when there was none."""
        return await self._call(calls.DropCall(topic, if_empty))

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
        return await self._call(calls.ClaimCall(topic, node, limit, lease_ms, wait_ms))

    async def ack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
    ) -> LeaseResult:
        """These jobs are done: they are deleted for good."""
        return await self._call(calls.AckCall(topic, node, seqs, lease_ids))

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
        return await self._call(calls.NackCall(topic, node, seqs, lease_ids, delay_ms))

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
        return await self._call(calls.ExtendCall(topic, node, seqs, lease_ids, lease_ms))

    async def requeue(self, topic: str, seqs: Sequence[int]) -> Requeued:
        """Give dead letters of this topic back to the queues they came from."""
        return await self._call(calls.RequeueCall(topic, seqs))

    async def queue_stats(self, topic: str) -> QueueStats:
        """How many jobs are ready, in flight, delayed, and were given up."""
        return await self._call(calls.QueueStatsCall(topic))

    async def work(
        self, topic: str, handler: AsyncHandler, **options: Unpack[WorkKeywords]
    ) -> WorkDone:
        """Claim jobs and await `handler` for each, until `stop` is set. A job whose handler returns
        is acked; one whose handler raises is given back, to be tried again after a while. Jobs are
        held as long as their handler runs.

        Options: node, threads (handlers at a time, 1), limit (jobs in hand), lease_ms, retry_ms
        (1000), retry_ms_max, idle_ms (end when nothing came for so long), stop (a `Stop`), on_done
        (called for each job). See `WorkOptions`.
        """
        return await work_async(self._call, topic, handler, WorkOptions(**options), self._clock)

    # -- routers

    async def put_router(self, router: str, **settings: Unpack[RouterKeywords]) -> RouterState:
        """Copy what comes into `source` to `dest`. Other settings: preserve_node, preserve_tag,
        create_dest, create_source, filter, allow_cycle, guarantee."""
        return await self._call(calls.PutRouterCall(router, settings))

    async def router(self, router: str) -> RouterState:
        """How far a router has come."""
        return await self._call(calls.RouterCall(router))

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterState]:
        """All routers, by name."""
        return await self._call(calls.RoutersCall(prefix, source, dest))

    async def delete_router(self, router: str) -> bool:
        """Remove a router; what it has copied stays. False when there was none."""
        return await self._call(calls.DeleteRouterCall(router))

    # -- the whole

    @property
    @abstractmethod
    def machines(self) -> AsyncMachines:
        """State machines: definitions, instances, events."""

    async def metrics(self) -> dict[str, Any]:
        """The metrics, by name: those of a server, or those of a database."""
        return await self._call(calls.MetricsCall())

    async def trace(self, after: int = 0) -> Trace:
        """What writes waited for, where that was long: `after` this number, the newest of each
        cause."""
        return await self._call(calls.TraceCall(after))

    async def ready(self) -> str:
        """`ok`, or `full` when the disk is; a client waits for a server that starts."""
        return await self._call(calls.ReadyCall())
