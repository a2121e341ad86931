"""How an open database carries out each call: the operation that stands for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from headwater.api import call_list as calls
from headwater.api.call_list import ApiCall, Records, WatchingCall, watch_starts
from headwater.core.errors import InvalidRequestError
from headwater.engine.engine import Engine
from headwater.engine.metrics import metrics_operation, readiness_of
from headwater.engine.operation import AsOwner, Operation, WatchOperation
from headwater.engine.queues.dead_letters import requeue_operation
from headwater.engine.queues.operations import (
    ack_operation,
    claim_operation,
    extend_operation,
    nack_operation,
    queue_stats_operation,
)
from headwater.engine.routers.operations import (
    delete_router_operation,
    put_router_operation,
    router_operation,
    routers_operation,
)
from headwater.engine.topics.arrow import arrow_page_operation
from headwater.engine.topics.operations import (
    append_operation,
    create_operation,
    delete_operation,
    diff_operation,
    drop_operation,
    request_of,
    state_operation,
    topics_operation,
)
from headwater.engine.topics.watch import (
    TopicsWatch,
    topic_watch,
    watch_operation,
    watch_topics_operation,
)

T = TypeVar("T")


def operation_of(engine: Engine, call: ApiCall[T]) -> Operation[T]:
    return OPERATIONS[type(call)](engine, call)


def watch_of(engine: Engine, call: WatchingCall[Any]) -> WatchOperation:
    """A call that cannot be followed is refused here, before the first step."""
    return WATCHES[type(call)](engine, call)


def _append(engine: Engine, call: calls.AppendCall) -> Operation[Any]:
    return append_operation(
        engine,
        call.topic,
        _records(call.records),
        node=call.node,
        idempotency_key=call.idempotency_key,
        expect_head_seq=call.expect_head_seq,
        create=call.create,
        settings=call.settings,
        disable_backpressure=call.disable_backpressure,
    )


def _records(records: Records) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
    """As JSON too: payloads stay the bytes that came."""
    if not isinstance(records, msgspec.Raw):
        return records
    try:
        given = msgspec.json.decode(records, type=list[dict[str, msgspec.Raw]])
        return [
            {name: raw if name == "data" else msgspec.json.decode(raw) for name, raw in one.items()}
            for one in given
        ]
    except msgspec.MsgspecError as error:
        raise InvalidRequestError(f"the records are not a list of objects: {error}") from error


def _drop(engine: Engine, call: calls.DropCall) -> Operation[Any]:
    removed = yield from drop_operation(engine, call.topic, if_empty=call.if_empty)
    return removed is not None


def _watch(engine: Engine, call: calls.WatchCall) -> WatchOperation:
    return watch_operation(
        partial(diff_operation, engine, call.topic),
        partial(state_operation, engine, call.topic),
        topic_watch(call.node, call.match, call.from_seq),
        None if call.tail else call.from_seq,
        call.idle_ms,
    )


def _watch_topics(engine: Engine, call: calls.WatchTopicsCall) -> WatchOperation:
    starts = watch_starts(call.topics, None if call.tail else 0)
    return watch_topics_operation(
        engine, TopicsWatch(engine, starts), topic_watch(call.node, call.match)
    )


def _put_router(engine: Engine, call: calls.PutRouterCall) -> Operation[Any]:
    state, _created = yield from put_router_operation(engine, call.router, call.settings)
    return state


def _trace(engine: Engine, call: calls.TraceCall) -> Operation[Any]:
    return (yield AsOwner(lambda: engine.core.waits.trace(call.after)))


def _ready(engine: Engine, _call: calls.ReadyCall) -> Operation[Any]:
    return (yield AsOwner(lambda: readiness_of(engine)))


OPERATIONS: Final[dict[type, Callable[[Engine, Any], Operation[Any]]]] = {
    calls.CreateCall: lambda engine, call: create_operation(engine, call.topic, call.settings),
    calls.AppendCall: _append,
    calls.DiffCall: lambda engine, call: diff_operation(engine, call.topic, request_of(call)),
    calls.ArrowCall: arrow_page_operation,
    calls.DeleteCall: lambda engine, call: delete_operation(
        engine, call.topic, call.before_seq, call.match
    ),
    calls.StateCall: lambda engine, call: state_operation(engine, call.topic),
    calls.TopicsCall: lambda engine, call: topics_operation(engine, call.prefix),
    calls.DropCall: _drop,
    calls.ClaimCall: lambda engine, call: claim_operation(
        engine, call.topic, call.node, call.limit, call.lease_ms, call.wait_ms
    ),
    calls.AckCall: lambda engine, call: ack_operation(
        engine, call.topic, call.node, call.seqs, call.lease_ids
    ),
    calls.NackCall: lambda engine, call: nack_operation(
        engine, call.topic, call.node, call.seqs, call.lease_ids, call.delay_ms
    ),
    calls.ExtendCall: lambda engine, call: extend_operation(
        engine, call.topic, call.node, call.seqs, call.lease_ids, call.lease_ms
    ),
    calls.RequeueCall: lambda engine, call: requeue_operation(engine, call.topic, call.seqs),
    calls.QueueStatsCall: lambda engine, call: queue_stats_operation(engine, call.topic),
    calls.PutRouterCall: _put_router,
    calls.RouterCall: lambda engine, call: router_operation(engine, call.router),
    calls.RoutersCall: lambda engine, call: routers_operation(
        engine, call.prefix, call.source, call.dest
    ),
    calls.DeleteRouterCall: lambda engine, call: delete_router_operation(engine, call.router),
    calls.MetricsCall: lambda engine, _: metrics_operation(engine),
    calls.TraceCall: _trace,
    calls.ReadyCall: _ready,
}
WATCHES: Final[dict[type, Callable[[Engine, Any], WatchOperation]]] = {
    calls.WatchCall: _watch,
    calls.WatchTopicsCall: _watch_topics,
}
