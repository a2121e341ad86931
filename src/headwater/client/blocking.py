"""The blocking client: the calls of `headwater.open`, over HTTP. Safe for any number of threads."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

from headwater.api.machines import Machines, Moved
from headwater.client import calls, router_calls
from headwater.client.calls import ARROW_ROWS_DEFAULT, Records
from headwater.client.http import Address, BlockingHttp, BlockingStream
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
from headwater.client.worker import Handler, work
from headwater.config.topic import check_topic_name
from headwater.core.clock import Clock, Doorbell, SystemClock
from headwater.core.driver import drive
from headwater.core.errors import HeadwaterError
from headwater.core.limits import INTEGER_MAX
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
)

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:4000"


class Client:
    """A server, seen from a program that may block.

    `token` is the secret of an API key. `timeout_s` is for one attempt; `retry` says how long to
    go on. `clock` and `rng` are for tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        ca_file: str | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._address = Address(url, token, timeout_s, ca_file)
        self._http = BlockingHttp(self._address)
        self._policy = RetryPolicy(retry or Retry(), rng or random.SystemRandom())
        self._clock = clock or SystemClock()

    def __repr__(self) -> str:
        return f"Client({self._address!r})"

    def create(self, topic: str, **settings: Any) -> TopicState:
        """Make a topic, or change the settings of one that is there."""
        return self._drive(create_operation(topic, settings, self._policy))

    def append(
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
        return self._drive(call_operation(call, self._policy))

    def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Diff:
        """What came after `from_seq`. Options: limit, max_batch_bytes, wait_ms, node, match."""
        return self._drive(call_operation(calls.diff(topic, from_seq, **options), self._policy))

    def arrow(
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
        return self._drive(call_operation(call, self._policy))

    def watch(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        tail: bool = False,
        idle_ms: int | None = None,
        node: str | Iterable[str] | None = None,
        match: object | None = None,
    ) -> Iterator[Record | Tombstone]:
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
        return (only_one(watched) for watched in self._follow(operation))

    def watch_topics(
        self,
        topics: str | Iterable[str] | Mapping[str, int | None],
        *,
        tail: bool = False,
        node: str | Iterable[str] | None = None,
        match: object | None = None,
    ) -> Iterator[Watched]:
        """Several topics at once. A name that ends in a star means all that begin so, those that
        are made later too. A mapping says where to begin: a seq, or None for the end."""
        watch = watch_request(topics, node, match, from_seq=None if tail else 0)
        return self._follow(watch_operation(watch, self._policy))

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: object | None = None
    ) -> Deleted:
        """Delete records for good: below a seq, by tag (`"x"`, `"x*"`), or those that are both."""
        return self._drive(call_operation(calls.delete(topic, before_seq, match), self._policy))

    def state(self, topic: str) -> TopicState:
        return self._drive(call_operation(calls.get_topic(topic), self._policy))

    def topics(self, prefix: str = "") -> list[TopicState]:
        """All topics, by name."""
        return self._drive(topics_operation(prefix, self._policy))

    def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Drop a topic and everything in it. False when there was none."""
        return self._drive(call_operation(calls.drop(topic, if_empty=if_empty), self._policy))

    # -- routers

    def put_router(self, router: str, **settings: Any) -> RouterState:
        """Copy what comes into `source` to `dest`. Other settings: preserve_node, preserve_tag,
        create_dest, filter, allow_cycle, guarantee."""
        return self._drive(router_calls.put_router_operation(router, settings, self._policy))

    def router(self, router: str) -> RouterState:
        """How far a router has come."""
        return self._drive(call_operation(router_calls.get_router(router), self._policy))

    def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterState]:
        """All routers, by name."""
        return self._drive(router_calls.routers_operation(prefix, source, dest, self._policy))

    def delete_router(self, router: str) -> bool:
        """Remove a router; what it has copied stays. False when there was none."""
        return self._drive(call_operation(router_calls.delete_router(router), self._policy))

    @property
    def machines(self) -> Machines:
        """State machines: definitions, instances, events."""
        return Machines(
            lambda request: self._drive(machine_operation(request, self._policy)),
            lambda watch_request, start, idle_ms: cast(
                Iterator[Moved],
                self._follow(follow_operation(watch_request, start, idle_ms, self._policy)),
            ),
        )

    # -- queues

    def claim(
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
        return self._drive(call_operation(call, self._policy))

    def ack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
    ) -> LeaseResult:
        """These jobs are done: they are deleted for good."""
        return self._drive(call_operation(calls.ack(topic, node, seqs, lease_ids), self._policy))

    def nack(
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
        return self._drive(call_operation(call, self._policy))

    def extend(
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
        return self._drive(call_operation(call, self._policy))

    def requeue(self, topic: str, seqs: Sequence[int]) -> Requeued:
        """Give dead letters of this topic back to the queues they came from."""
        return self._drive(call_operation(calls.requeue(topic, seqs), self._policy))

    def queue_stats(self, topic: str) -> QueueStats:
        """How many jobs are ready, in flight, delayed, and were given up."""
        return self._drive(call_operation(calls.queue_stats(topic), self._policy))

    def work(self, topic: str, handler: Handler, **options: Any) -> WorkDone:
        """Claim jobs and give each to `handler` until `stop` is set. A job whose handler returns is
        acked; one whose handler raises is given back, to be tried again after a while. Jobs are
        held as long as their handler runs.

        Options: node, threads (1), limit (jobs in hand), lease_ms, retry_ms (1000), retry_ms_max,
        idle_ms (end when nothing came for so long), stop (a `Stop`), on_done (called for each job).
        See `WorkOptions`.
        """
        return work(self, topic, handler, WorkOptions(**options), self._clock)

    def metrics(self) -> dict[str, Any]:
        """The server's metrics, by name."""
        return self._drive(call_operation(calls.metrics(), self._policy))

    def ready(self) -> str:
        """Waits for a server that starts: then `ok`, or `full` when its disk is."""
        return self._drive(call_operation(calls.ready(), self._policy))

    def close(self) -> None:
        """Give the connections back. May be called twice."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- driving

    def _drive(self, operation: ClientOperation[T]) -> T:
        return drive(operation, self._do)

    def _follow(self, operation: WatchOperation) -> Iterator[Watched]:
        stream: BlockingStream | None = None
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
                    yield from step.watched
                    continue
                try:
                    if isinstance(step, NextBytes):
                        assert stream is not None
                        result = stream.next_bytes()
                    elif isinstance(step, Follow):
                        if stream is not None:
                            stream.close()
                        result, stream = self._http.follow(step.call)
                    else:
                        result = self._do(step)
                except HeadwaterError as caught:
                    error = caught
        finally:
            if stream is not None:
                stream.close()

    def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return self._http.send(step.call)
        now_us = self._clock.monotonic_us()
        if isinstance(step, Pause):
            return self._clock.wait(Doorbell(), now_us + int(step.seconds * 1_000_000))
        return now_us / 1_000_000
