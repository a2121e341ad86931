"""The calls about machines, and how their transitions are followed.

What changes something carries an idempotency key, yours or a new one, and the server keeps keys for
a day: so all of them can be sent again when no answer came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import Moved, WatchFilter
from headwater.client.answers import decode
from headwater.client.calls import HttpCall, RepeatRule
from headwater.client.errors import NoAnswerError, error_of
from headwater.client.events import EventParser, SseEvent
from headwater.client.operations import (
    ClientOperation,
    HttpAnswer,
    Now,
    Pause,
    RetryPolicy,
    call_operation,
)
from headwater.client.retry import may_retry
from headwater.client.watch import Follow, NextBytes, WatchOperation
from headwater.core.driver import HandOver
from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.core.json_text import json_text
from headwater.wire import machine_answers as answers

T = TypeVar("T")


def machine_operation(request: requests.MachineCall, policy: RetryPolicy) -> ClientOperation[Any]:
    """One call, with retries."""
    return (yield from call_operation(_CALLS[type(request)](request, policy), policy))


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    return lambda body: decode(body, kind)


def _text(body: bytes) -> str:
    return body.decode()


def _json(**fields: Any) -> bytes:
    given = {name: value for name, value in fields.items() if value is not None}
    return json_text(given, "the request")


def _version(machine: str, version: int | None) -> str:
    shown = "latest" if version is None else str(version)
    return f"/v0/machines/{quote(machine, safe='')}/versions/{shown}"


def _instance(instance_id: str, rest: str = "") -> str:
    if not instance_id:
        raise InvalidRequestError("the id of an instance is not empty")
    return f"/v0/instances/{quote(instance_id, safe='')}{rest}"


def _put(request: requests.PutMachine, _policy: RetryPolicy) -> HttpCall[Any]:
    path = _version(request.machine, request.version)
    body = _json(definition=request.definition)
    return HttpCall("PUT", path, _reader(answers.MachinePutAnswer), body=body)


def _get_machine(request: requests.GetMachine, _policy: RetryPolicy) -> HttpCall[Any]:
    return HttpCall("GET", _version(*request), _reader(answers.MachineAnswer))


def _list_machines(_request: requests.ListMachines, _policy: RetryPolicy) -> HttpCall[Any]:
    return HttpCall("GET", "/v0/machines", _reader(answers.MachineListAnswer))


def _draw(request: requests.DrawMachine, _policy: RetryPolicy) -> HttpCall[Any]:
    query = {"format": request.form}
    if request.instance_id is not None:
        query["instance"] = request.instance_id
    return HttpCall(
        "GET", _version(request.machine, request.version) + "/drawing", _text, query=query
    )


def _create(request: requests.CreateInstance, policy: RetryPolicy) -> HttpCall[Any]:
    body = _json(
        machine=request.machine,
        version=request.version,
        instance_id=request.instance_id,
        initial_ctx=request.context,
        idempotency_key=request.idempotency_key or policy.new_key(),
        ttl_ms=request.ttl_ms,
    )
    return HttpCall("POST", "/v0/instances", _reader(answers.InstanceMadeAnswer), body=body)


def _get_instance(request: requests.GetInstance, _policy: RetryPolicy) -> HttpCall[Any]:
    return HttpCall("GET", _instance(request.instance_id), _reader(answers.InstanceAnswer))


def _list_instances(request: requests.ListInstances, _policy: RetryPolicy) -> HttpCall[Any]:
    given = {"machine": request.machine, "state": request.state}
    query = {name: value for name, value in given.items() if value is not None}
    query |= {"limit": str(request.limit), "offset": str(request.offset)}
    return HttpCall("GET", "/v0/instances", _reader(answers.InstanceListAnswer), query=query)


def _apply(request: requests.ApplyEvent, policy: RetryPolicy) -> HttpCall[Any]:
    body = _json(
        event=request.event,
        payload=request.payload,
        expected_state=request.expected_state,
        expected_wal_offset=request.expected_wal_offset,
        event_id=request.event_id,
        idempotency_key=request.idempotency_key or policy.new_key(),
    )
    path = _instance(request.instance_id, "/events")
    return HttpCall("POST", path, _reader(answers.EventAppliedAnswer), body=body)


def _delete(request: requests.DeleteInstance, policy: RetryPolicy) -> HttpCall[Any]:
    query = {"idempotency_key": request.idempotency_key or policy.new_key()}
    read = _reader(answers.InstanceDeletedAnswer)
    return HttpCall("DELETE", _instance(request.instance_id), read, query=query)


def _migrate(request: requests.MigrateInstance, _policy: RetryPolicy) -> HttpCall[Any]:
    """Not repeated: it has no key, and twice may be a conflict."""
    body = _json(version=request.version, state_map=request.state_map)
    path = _instance(request.instance_id, "/migrate")
    return HttpCall("POST", path, _reader(answers.MigratedAnswer), RepeatRule.NEVER, body=body)


def _batch(request: requests.Batch, policy: RetryPolicy) -> HttpCall[Any]:
    operations = [_operation(each, policy) for each in request.operations]
    body = _json(operations=operations, mode=request.mode)
    return HttpCall("POST", "/v0/instances/batch", _reader(answers.BatchAnswer), body=body)


_OPERATIONS: Final[dict[type, str]] = {
    requests.CreateInstance: "CREATE_INSTANCE",
    requests.ApplyEvent: "APPLY_EVENT",
    requests.DeleteInstance: "DELETE_INSTANCE",
}
_RENAMED: Final = {"context": "initial_ctx"}


def _operation(request: Any, policy: RetryPolicy) -> dict[str, Any]:
    name = _OPERATIONS.get(type(request))
    if name is None:
        raise InvalidRequestError("a batch has CreateInstance, ApplyEvent and DeleteInstance only")
    params = {_RENAMED.get(field, field): value for field, value in request._asdict().items()}
    params.pop("reason", None)
    params.pop("again", None)
    params["idempotency_key"] = params["idempotency_key"] or policy.new_key()
    return {
        "op": name,
        "params": {field: value for field, value in params.items() if value is not None},
    }


def _history(request: requests.ReadHistory, _policy: RetryPolicy) -> HttpCall[Any]:
    path, query = _instance(request.instance_id, "/history"), {"limit": str(request.limit)}
    return HttpCall("GET", path, _reader(answers.HistoryAnswer), query=query)


def _snapshot_instance(request: requests.SnapshotInstance, _policy: RetryPolicy) -> HttpCall[Any]:
    path = _instance(request.instance_id, "/snapshot")
    return HttpCall("POST", path, _reader(answers.InstanceSnapshotAnswer))


def _read_wal(request: requests.ReadWal, _policy: RetryPolicy) -> HttpCall[Any]:
    body = _json(
        from_offset=request.from_offset, limit=request.limit, newest=request.newest or None
    )
    return HttpCall("POST", "/v0/machines/wal/read", _reader(answers.WalReadAnswer), body=body)


def _wal_stats(_request: requests.GetWalStats, _policy: RetryPolicy) -> HttpCall[Any]:
    return HttpCall("GET", "/v0/machines/wal/stats", _reader(answers.WalStatsAnswer))


def _compact(_request: requests.Compact, _policy: RetryPolicy) -> HttpCall[Any]:
    return HttpCall("POST", "/v0/machines/compact", _reader(answers.CompactedAnswer), body=b"{}")


_CALLS: Final[dict[type, Callable[[Any, RetryPolicy], HttpCall[Any]]]] = {
    requests.PutMachine: _put,
    requests.GetMachine: _get_machine,
    requests.ListMachines: _list_machines,
    requests.DrawMachine: _draw,
    requests.CreateInstance: _create,
    requests.GetInstance: _get_instance,
    requests.ListInstances: _list_instances,
    requests.ApplyEvent: _apply,
    requests.DeleteInstance: _delete,
    requests.MigrateInstance: _migrate,
    requests.Batch: _batch,
    requests.ReadHistory: _history,
    requests.SnapshotInstance: _snapshot_instance,
    requests.ReadWal: _read_wal,
    requests.GetWalStats: _wal_stats,
    requests.Compact: _compact,
}


# -- following


class _BeginEvent(msgspec.Struct):
    wal_offset: int


def follow_operation(
    filters: WatchFilter, from_offset: int | None, idle_ms: int | None, policy: RetryPolicy
) -> WatchOperation:
    """For ever, or until nothing came for a while. After a broken connection it goes on behind the
    last transition that was handed over: none is left out, none comes twice."""
    query = _watch_query(filters, from_offset, idle_ms)
    last: int | None = None
    failures = 0
    last_received: float = yield Now()
    while True:
        error: HeadwaterError = NoAnswerError("the server ended the stream")
        try:
            answer: HttpAnswer = yield Follow(_watch_call(query, last))
            if not answer.is_good:
                raise error_of(answer.status, answer.headers, answer.body)
            parser = EventParser()
            while True:
                chunk: bytes = yield NextBytes()
                if not chunk:
                    break
                failures, last_received = 0, (yield Now())
                for event in parser.feed(chunk):
                    if event.name == "idle":
                        return
                    last, moved = _taken(event, last)
                    if moved is not None:
                        yield HandOver([moved])
        except HeadwaterError as caught:
            error = caught
            if not may_retry(error):
                raise
        failures += 1
        pause = policy.retry.delay_s(failures, error, policy.rng)
        if (yield Now()) - last_received + pause > policy.retry.give_up_after_s:
            raise error
        yield Pause(pause)


def _watch_query(
    filters: WatchFilter, from_offset: int | None, idle_ms: int | None
) -> dict[str, str]:
    lists = {
        "machines": filters.machines,
        "events": filters.events,
        "from_states": filters.from_states,
        "to_states": filters.to_states,
    }
    for name, words in lists.items():
        if any("," in word for word in words):
            raise InvalidRequestError(f"{name}: names with commas cannot be watched for over HTTP")
    query = {name: ",".join(sorted(words)) for name, words in lists.items() if words}
    single = {"instance_id": filters.instance_id, "from_offset": from_offset, "idle_ms": idle_ms}
    return query | {name: str(value) for name, value in single.items() if value is not None}


def _watch_call(query: dict[str, str], last: int | None) -> HttpCall[bytes]:
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    if last is not None:
        headers["last-event-id"] = str(last)
    return HttpCall("GET", "/v0/instances/watch", bytes, query=query, headers=headers)


def _taken(event: SseEvent, last: int | None) -> tuple[int | None, Moved | None]:
    """How far that is, and what is handed over."""
    if event.name == "transition":
        moved = decode(event.data, answers.TransitionAnswer)
        return moved.wal_offset, moved
    if event.name == "gap":
        return last, decode(event.data, answers.GapAnswer)
    if event.name == "begin" and last is None:
        return decode(event.data, _BeginEvent).wal_offset - 1, None
    return last, None
