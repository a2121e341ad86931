"""How a client carries out each call: the operation that stands for it, made of requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from headwater.api import call_list
from headwater.api.call_list import ApiCall, WatchingCall
from headwater.client import calls
from headwater.client.errors import ForbiddenError
from headwater.client.operations import (
    ClientOperation,
    RetryPolicy,
    call_operation,
    pages_operation,
)
from headwater.client.watch import (
    WatchOperation,
    polling_operation,
    watch_operation,
    watch_request,
)
from headwater.config.topic import check_topic_name

T = TypeVar("T")
Make = Callable[[Any, RetryPolicy], ClientOperation[Any]]


def operation_of(call: ApiCall[T], policy: RetryPolicy) -> ClientOperation[T]:
    """A call that cannot be sent is refused here, before the first step."""
    return OPERATIONS[type(call)](call, policy)


def watch_of(call: WatchingCall[Any], policy: RetryPolicy) -> WatchOperation:
    return WATCHES[type(call)](call, policy)


def _once_answered(make: Callable[[Any], calls.HttpCall[Any]]) -> Make:
    """A call that is one request."""
    return lambda call, policy: call_operation(make(call), policy)


def _create(call: call_list.CreateCall, policy: RetryPolicy) -> ClientOperation[Any]:
    yield from call_operation(calls.put_topic(call), policy)
    try:
        state = call_list.StateCall(call.topic)
        return (yield from call_operation(calls.get_topic(state), policy))
    except ForbiddenError as error:
        raise ForbiddenError(
            f"the topic {call.topic!r} is there with these settings, but this key may not read them"
        ) from error


def _append(call: call_list.AppendCall, policy: RetryPolicy) -> ClientOperation[Any]:
    if call.idempotency_key is None:
        call = msgspec.structs.replace(call, idempotency_key=policy.new_key())
    return call_operation(calls.append(call), policy)


def _topics(call: call_list.TopicsCall, policy: RetryPolicy) -> ClientOperation[Any]:
    return pages_operation(partial(calls.list_topics, call), policy)


def _put_router(call: call_list.PutRouterCall, policy: RetryPolicy) -> ClientOperation[Any]:
    yield from call_operation(calls.put_router(call), policy)
    state = call_list.RouterCall(call.router)
    return (yield from call_operation(calls.get_router(state), policy))


def _routers(call: call_list.RoutersCall, policy: RetryPolicy) -> ClientOperation[Any]:
    return pages_operation(partial(calls.list_routers, call), policy)


def _watch(call: call_list.WatchCall, policy: RetryPolicy) -> WatchOperation:
    begin = None if call.tail else call.from_seq
    topic = check_topic_name(call.topic)
    watch = watch_request(topic, call.node, call.match, from_seq=begin, single=True)
    if call.idle_ms is None:
        return watch_operation(watch, policy)
    return polling_operation(topic, begin, call.idle_ms, watch.node, call.match, policy)


def _watch_topics(call: call_list.WatchTopicsCall, policy: RetryPolicy) -> WatchOperation:
    from_seq = None if call.tail else 0
    return watch_operation(
        watch_request(call.topics, call.node, call.match, from_seq=from_seq), policy
    )


OPERATIONS: Final[dict[type, Make]] = {
    call_list.CreateCall: _create,
    call_list.AppendCall: _append,
    call_list.DiffCall: _once_answered(calls.diff),
    call_list.ArrowCall: _once_answered(calls.arrow),
    call_list.DeleteCall: _once_answered(calls.delete),
    call_list.StateCall: _once_answered(calls.get_topic),
    call_list.TopicsCall: _topics,
    call_list.DropCall: _once_answered(calls.drop),
    call_list.ClaimCall: _once_answered(calls.claim),
    call_list.AckCall: _once_answered(calls.ack),
    call_list.NackCall: _once_answered(calls.nack),
    call_list.ExtendCall: _once_answered(calls.extend),
    call_list.RequeueCall: _once_answered(calls.requeue),
    call_list.QueueStatsCall: _once_answered(calls.queue_stats),
    call_list.PutRouterCall: _put_router,
    call_list.RouterCall: _once_answered(calls.get_router),
    call_list.RoutersCall: _routers,
    call_list.DeleteRouterCall: _once_answered(calls.delete_router),
    call_list.MetricsCall: _once_answered(calls.metrics),
    call_list.TraceCall: _once_answered(calls.trace),
    call_list.ReadyCall: _once_answered(calls.ready),
}
WATCHES: Final[dict[type, Callable[[Any, RetryPolicy], WatchOperation]]] = {
    call_list.WatchCall: _watch,
    call_list.WatchTopicsCall: _watch_topics,
}
