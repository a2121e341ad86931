"""The calls about machines, and how their transitions are followed.

What changes something carries an idempotency key, yours or a new one, and the server keeps keys for
a day: so all of them can be sent again when no answer came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from headwater.client.answers import decode
from headwater.client.calls import Call, Repeat
from headwater.client.errors import NoAnswerError, error_of
from headwater.client.events import Event, EventParser
from headwater.client.retry import may_retry
from headwater.client.steps import Answer, Manner, Now, Pause, Steps, call_steps
from headwater.client.watching import Follow, HandOver, NextBytes, WatchSteps
from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.core.json_text import json_text
from headwater.engine import machine_asks as asks
from headwater.engine.machine_face import Moved
from headwater.engine.machines import requests
from headwater.engine.machines.watchers import WatchFilter
from headwater.wire import machine_answers as answers

T = TypeVar("T")


def ask_steps(ask: asks.MachineCall, manner: Manner) -> Steps[Any]:
    """What a server answers."""
    return (yield from call_steps(_CALLS[type(ask)](ask, manner), manner))


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


def _put(ask: requests.PutMachine, _manner: Manner) -> Call[Any]:
    path = _version(ask.machine, ask.version)
    body = _json(definition=ask.definition)
    return Call("PUT", path, _reader(answers.MachinePutAnswer), body=body)


def _get_machine(ask: asks.GetMachine, _manner: Manner) -> Call[Any]:
    return Call("GET", _version(*ask), _reader(answers.MachineAnswer))


def _list_machines(_ask: asks.ListMachines, _manner: Manner) -> Call[Any]:
    return Call("GET", "/v0/machines", _reader(answers.MachineListAnswer))


def _draw(ask: asks.DrawMachine, _manner: Manner) -> Call[Any]:
    query = {"format": ask.form}
    if ask.instance_id is not None:
        query["instance"] = ask.instance_id
    return Call("GET", _version(ask.machine, ask.version) + "/drawing", _text, query=query)


def _create(ask: requests.CreateInstance, manner: Manner) -> Call[Any]:
    body = _json(
        machine=ask.machine,
        version=ask.version,
        instance_id=ask.instance_id,
        initial_ctx=ask.context,
        idempotency_key=ask.idempotency_key or manner.new_key(),
        ttl_ms=ask.ttl_ms,
    )
    return Call("POST", "/v0/instances", _reader(answers.InstanceMadeAnswer), body=body)


def _get_instance(ask: asks.GetInstance, _manner: Manner) -> Call[Any]:
    return Call("GET", _instance(ask.instance_id), _reader(answers.InstanceAnswer))


def _list_instances(ask: asks.ListInstances, _manner: Manner) -> Call[Any]:
    given = {"machine": ask.machine, "state": ask.state}
    query = {name: value for name, value in given.items() if value is not None}
    query |= {"limit": str(ask.limit), "offset": str(ask.offset)}
    return Call("GET", "/v0/instances", _reader(answers.InstanceListAnswer), query=query)


def _apply(ask: requests.ApplyEvent, manner: Manner) -> Call[Any]:
    body = _json(
        event=ask.event,
        payload=ask.payload,
        expected_state=ask.expected_state,
        expected_wal_offset=ask.expected_wal_offset,
        event_id=ask.event_id,
        idempotency_key=ask.idempotency_key or manner.new_key(),
    )
    path = _instance(ask.instance_id, "/events")
    return Call("POST", path, _reader(answers.EventAppliedAnswer), body=body)


def _delete(ask: requests.DeleteInstance, manner: Manner) -> Call[Any]:
    query = {"idempotency_key": ask.idempotency_key or manner.new_key()}
    read = _reader(answers.InstanceDeletedAnswer)
    return Call("DELETE", _instance(ask.instance_id), read, query=query)


def _migrate(ask: requests.MigrateInstance, _manner: Manner) -> Call[Any]:
    """Not repeated: it has no key, and twice may be a conflict."""
    body = _json(version=ask.version, state_map=ask.state_map)
    path = _instance(ask.instance_id, "/migrate")
    return Call("POST", path, _reader(answers.MigratedAnswer), Repeat.NEVER, body=body)


def _batch(ask: asks.Batch, manner: Manner) -> Call[Any]:
    operations = [_operation(each, manner) for each in ask.operations]
    body = _json(operations=operations, mode=ask.mode)
    return Call("POST", "/v0/instances/batch", _reader(answers.BatchAnswer), body=body)


_OPERATIONS: Final[dict[type, str]] = {
    requests.CreateInstance: "CREATE_INSTANCE",
    requests.ApplyEvent: "APPLY_EVENT",
    requests.DeleteInstance: "DELETE_INSTANCE",
}
_RENAMED: Final = {"context": "initial_ctx"}


def _operation(request: Any, manner: Manner) -> dict[str, Any]:
    name = _OPERATIONS.get(type(request))
    if name is None:
        raise InvalidRequestError("a batch has CreateInstance, ApplyEvent and DeleteInstance only")
    params = {_RENAMED.get(field, field): value for field, value in request._asdict().items()}
    params.pop("reason", None)
    params.pop("again", None)
    params["idempotency_key"] = params["idempotency_key"] or manner.new_key()
    return {
        "op": name,
        "params": {field: value for field, value in params.items() if value is not None},
    }


def _history(ask: asks.ReadHistory, _manner: Manner) -> Call[Any]:
    path, query = _instance(ask.instance_id, "/history"), {"limit": str(ask.limit)}
    return Call("GET", path, _reader(answers.HistoryAnswer), query=query)


def _snapshot_instance(ask: asks.SnapshotInstance, _manner: Manner) -> Call[Any]:
    path = _instance(ask.instance_id, "/snapshot")
    return Call("POST", path, _reader(answers.InstanceSnapshotAnswer))


def _read_wal(ask: asks.ReadWal, _manner: Manner) -> Call[Any]:
    body = _json(from_offset=ask.from_offset, limit=ask.limit, newest=ask.newest or None)
    return Call("POST", "/v0/machines/wal/read", _reader(answers.WalReadAnswer), body=body)


def _wal_stats(_ask: asks.GetWalStats, _manner: Manner) -> Call[Any]:
    return Call("GET", "/v0/machines/wal/stats", _reader(answers.WalStatsAnswer))


def _compact(_ask: asks.Compact, _manner: Manner) -> Call[Any]:
    return Call("POST", "/v0/machines/compact", _reader(answers.CompactedAnswer), body=b"{}")


_CALLS: Final[dict[type, Callable[[Any, Manner], Call[Any]]]] = {
    requests.PutMachine: _put,
    asks.GetMachine: _get_machine,
    asks.ListMachines: _list_machines,
    asks.DrawMachine: _draw,
    requests.CreateInstance: _create,
    asks.GetInstance: _get_instance,
    asks.ListInstances: _list_instances,
    requests.ApplyEvent: _apply,
    requests.DeleteInstance: _delete,
    requests.MigrateInstance: _migrate,
    asks.Batch: _batch,
    asks.ReadHistory: _history,
    asks.SnapshotInstance: _snapshot_instance,
    asks.ReadWal: _read_wal,
    asks.GetWalStats: _wal_stats,
    asks.Compact: _compact,
}


# -- following


class _Place(msgspec.Struct):
    wal_offset: int


def follow_steps(
    wanted: WatchFilter, from_offset: int | None, idle_ms: int | None, manner: Manner
) -> WatchSteps:
    """For ever, or until nothing came for a while. After a broken connection it goes on behind the
    last transition that was handed over: none is left out, none comes twice."""
    query = _watch_query(wanted, from_offset, idle_ms)
    last: int | None = None
    failures = 0
    heard: float = yield Now()
    while True:
        error: HeadwaterError = NoAnswerError("the server ended the stream")
        try:
            answer: Answer = yield Follow(_watch_call(query, last))
            if not answer.is_good:
                raise error_of(answer.status, answer.headers, answer.body)
            parser = EventParser()
            while True:
                chunk: bytes = yield NextBytes()
                if not chunk:
                    break
                failures, heard = 0, (yield Now())
                for event in parser.feed(chunk):
                    if event.name == "idle":
                        return
                    last, found = _taken(event, last)
                    if found is not None:
                        yield HandOver([found])  # type: ignore[list-item]
        except HeadwaterError as caught:
            error = caught
            if not may_retry(error):
                raise
        failures += 1
        pause = manner.retry.delay_s(failures, error, manner.rng)
        if (yield Now()) - heard + pause > manner.retry.give_up_after_s:
            raise error
        yield Pause(pause)


def _watch_query(
    wanted: WatchFilter, from_offset: int | None, idle_ms: int | None
) -> dict[str, str]:
    lists = {
        "machines": wanted.machines,
        "events": wanted.events,
        "from_states": wanted.from_states,
        "to_states": wanted.to_states,
    }
    for name, words in lists.items():
        if any("," in word for word in words):
            raise InvalidRequestError(f"{name}: names with commas cannot be watched for over HTTP")
    query = {name: ",".join(sorted(words)) for name, words in lists.items() if words}
    single = {"instance_id": wanted.instance_id, "from_offset": from_offset, "idle_ms": idle_ms}
    return query | {name: str(value) for name, value in single.items() if value is not None}


def _watch_call(query: dict[str, str], last: int | None) -> Call[bytes]:
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    if last is not None:
        headers["last-event-id"] = str(last)
    return Call("GET", "/v0/instances/watch", bytes, query=query, headers=headers)


def _taken(event: Event, last: int | None) -> tuple[int | None, Moved | None]:
    """How far that is, and what is handed over."""
    if event.name == "transition":
        moved = decode(event.data, answers.TransitionAnswer)
        return moved.wal_offset, moved
    if event.name == "gap":
        return last, decode(event.data, answers.GapAnswer)
    if event.name == "begin" and last is None:
        return decode(event.data, _Place).wal_offset - 1, None
    return last, None
