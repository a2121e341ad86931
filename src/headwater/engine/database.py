"""The blocking face: a database for scripts, notebooks and threads.

Safe to use from any number of threads. A call returns when its promise holds: a write when its
durability class is satisfied, a delete when no reader can see the records any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from headwater.api.machines import Machines
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
from headwater.engine.engine import Engine
from headwater.engine.machines.dispatch import call_operation
from headwater.engine.machines.watch_loops import follow_blocking
from headwater.engine.operation import BlockingDriver, Operation
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
Records = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Database:
    """A data directory, open in this process. Made by `headwater.open`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._driver = BlockingDriver(engine.core)

    @property
    def engine(self) -> Engine:
        """For tools that inspect the engine: counters, recovery report, log state."""
        return self._engine

    @property
    def machines(self) -> Machines:
        """State machines: definitions, instances, events."""
        engine = self._engine
        return Machines(
            lambda call: self.drive(call_operation(engine, call)),
            partial(follow_blocking, engine, self.drive),
        )

    def create(self, topic: str, **settings: Any) -> TopicState:
        """Make a topic, or change the settings of one that is there."""
        return self.drive(create_operation(self._engine, topic, settings))

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
        and, as wanted, `tag`, `node` and `meta`. `disable_backpressure` writes on under pressure,
        as long as there is room at all."""
        return self.drive(
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

    def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Diff:
        """What came after `from_seq`. Options: limit, max_batch_bytes, wait_ms, node, match."""
        return self.drive(diff_operation(self._engine, topic, diff_request(from_seq, **options)))

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
        """Records as they come, for ever; a Tombstone stands where records were lost.

        `tail` begins at the end. `idle_ms` ends the watch when nothing came for so long.
        """
        watching = watch_requests(from_seq, idle_ms=idle_ms, node=node, match=match)
        cursor = self.state(topic).head_seq if tail else from_seq
        while True:
            request = watching.request(cursor)
            diff = self.drive(diff_operation(self._engine, topic, request))
            cursor = diff.next_from_seq
            if diff.tombstone is not None:
                yield diff.tombstone
            yield from diff.records
            if watching.is_over(diff):
                return

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: object | None = None
    ) -> Deleted:
        """Delete records for good: below a seq, by tag (`"x"`, `"x*"`), or those that are both."""
        return self.drive(delete_operation(self._engine, topic, before_seq, match))

    def state(self, topic: str) -> TopicState:
        return self.drive(state_operation(self._engine, topic))

    def topics(self, prefix: str = "") -> list[TopicState]:
        """All topics, by name."""
        return self.drive(topics_operation(self._engine, prefix))

    def drop(self, topic: str, *, if_empty: bool = False) -> bool:
        """Drop a topic and everything in it. False when there was none."""
        return self.drive(drop_operation(self._engine, topic, if_empty=if_empty)) is not None

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
        return self.drive(claim_operation(self._engine, topic, node, limit, lease_ms, wait_ms))

    def ack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int] | None = None,
    ) -> LeaseResult:
        """These jobs are done: they are deleted for good."""
        return self.drive(ack_operation(self._engine, topic, node, seqs, lease_ids))

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
        return self.drive(nack_operation(self._engine, topic, node, seqs, lease_ids, delay_ms))

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
        return self.drive(extend_operation(self._engine, topic, node, seqs, lease_ids, lease_ms))

    def requeue(self, topic: str, seqs: Sequence[int]) -> Requeued:
        """Give dead letters of this topic back to the queues they came from."""
        return self.drive(requeue_operation(self._engine, topic, seqs))

    def queue_stats(self, topic: str) -> QueueStats:
        """How many jobs are ready, in flight, delayed, and were given up."""
        return self.drive(queue_stats_operation(self._engine, topic))

    # -- routers

    def put_router(self, router: str, **settings: Any) -> RouterState:
        """Copy what comes into `source` to `dest`. Other settings: preserve_node, preserve_tag,
        create_dest, filter, allow_cycle, guarantee."""
        state, _created = self.drive(put_router_operation(self._engine, router, settings))
        return state

    def router(self, router: str) -> RouterState:
        """How far a router has come."""
        return self.drive(router_operation(self._engine, router))

    def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> list[RouterState]:
        """All routers, by name."""
        return self.drive(routers_operation(self._engine, prefix, source, dest))

    def delete_router(self, router: str) -> bool:
        """Remove a router; what it has copied stays. False when there was none."""
        return self.drive(delete_router_operation(self._engine, router))

    def checkpoint(self) -> None:
        """Move everything into segments and take a snapshot now. Happens by itself, too."""
        self._engine.checkpoint()

    def close(self) -> None:
        """Close cleanly. May be called twice."""
        self._engine.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def drive(self, operation: Operation[T]) -> T:
        """Run an operation on the caller's thread."""
        return self._driver.drive(operation)
