"""How an open database carries out each call: the operation that stands for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from headwater.api import call_list as calls
from headwater.api.call_list import ApiCall, Records, WatchingCall
from headwater.api.watch_starts import watch_starts
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


# -- topics


def _create(engine: Engine, call: calls.CreateCall) -> Operation[Any]:
    return create_operation(engine, call.topic, call.settings)


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


def _diff(engine: Engine, call: calls.DiffCall) -> Operation[Any]:
    return diff_operation(engine, call.topic, request_of(call))


def _delete(engine: Engine, call: calls.DeleteCall) -> Operation[Any]:
    return delete_operation(engine, call.topic, call.before_seq, call.match)


def _state(engine: Engine, call: calls.StateCall) -> Operation[Any]:
    return state_operation(engine, call.topic)


def _topics(engine: Engine, call: calls.TopicsCall) -> Operation[Any]:
    return topics_operation(engine, call.prefix)


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


# -- queues


def _claim(engine: Engine, call: calls.ClaimCall) -> Operation[Any]:
    return claim_operation(engine, call.topic, call.node, call.limit, call.lease_ms, call.wait_ms)


def _ack(engine: Engine, call: calls.AckCall) -> Operation[Any]:
    return ack_operation(engine, call.topic, call.node, call.seqs, call.lease_ids)


def _nack(engine: Engine, call: calls.NackCall) -> Operation[Any]:
    return nack_operation(engine, call.topic, call.node, call.seqs, call.lease_ids, call.delay_ms)


def _extend(engine: Engine, call: calls.ExtendCall) -> Operation[Any]:
    return extend_operation(engine, call.topic, call.node, call.seqs, call.lease_ids, call.lease_ms)


def _requeue(engine: Engine, call: calls.RequeueCall) -> Operation[Any]:
    return requeue_operation(engine, call.topic, call.seqs)


def _queue_stats(engine: Engine, call: calls.QueueStatsCall) -> Operation[Any]:
    return queue_stats_operation(engine, call.topic)


# -- routers


def _put_router(engine: Engine, call: calls.PutRouterCall) -> Operation[Any]:
    state, _created = yield from put_router_operation(engine, call.router, call.settings)
    return state


def _router(engine: Engine, call: calls.RouterCall) -> Operation[Any]:
    return router_operation(engine, call.router)


def _routers(engine: Engine, call: calls.RoutersCall) -> Operation[Any]:
    return routers_operation(engine, call.prefix, call.source, call.dest)


def _delete_router(engine: Engine, call: calls.DeleteRouterCall) -> Operation[Any]:
    return delete_router_operation(engine, call.router)


# -- the whole


def _metrics(engine: Engine, _call: calls.MetricsCall) -> Operation[Any]:
    return metrics_operation(engine)


def _trace(engine: Engine, call: calls.TraceCall) -> Operation[Any]:
    return (yield AsOwner(lambda: engine.core.waits.trace(call.after)))


def _ready(engine: Engine, _call: calls.ReadyCall) -> Operation[Any]:
    return (yield AsOwner(lambda: readiness_of(engine)))


OPERATIONS: Final[dict[type, Callable[[Engine, Any], Operation[Any]]]] = {
    calls.CreateCall: _create,
    calls.AppendCall: _append,
    calls.DiffCall: _diff,
    calls.ArrowCall: arrow_page_operation,
    calls.DeleteCall: _delete,
    calls.StateCall: _state,
    calls.TopicsCall: _topics,
    calls.DropCall: _drop,
    calls.ClaimCall: _claim,
    calls.AckCall: _ack,
    calls.NackCall: _nack,
    calls.ExtendCall: _extend,
    calls.RequeueCall: _requeue,
    calls.QueueStatsCall: _queue_stats,
    calls.PutRouterCall: _put_router,
    calls.RouterCall: _router,
    calls.RoutersCall: _routers,
    calls.DeleteRouterCall: _delete_router,
    calls.MetricsCall: _metrics,
    calls.TraceCall: _trace,
    calls.ReadyCall: _ready,
}
WATCHES: Final[dict[type, Callable[[Engine, Any], WatchOperation]]] = {
    calls.WatchCall: _watch,
    calls.WatchTopicsCall: _watch_topics,
}
