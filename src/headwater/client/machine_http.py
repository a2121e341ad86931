"""The calls about machines, and how their transitions are followed.

What changes something carries an idempotency key, yours or a new one, and the server keeps keys for
a day: so all of them can be sent again when no answer came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import WatchFilter
from headwater.client.answers import decode, reader
from headwater.client.calls import HttpCall, RepeatRule, follow_stream
from headwater.client.operations import ClientOperation, HttpAnswer, RetryPolicy, call_operation
from headwater.client.watch import SseEvent, WatchOperation, follow_events
from headwater.core.driver import HandOver
from headwater.core.errors import InvalidRequestError
from headwater.core.json_text import json_text
from headwater.wire import machine_answers as answers

_FIELD: Final = re.compile(r"\{(\w+)\}")


def machine_operation(request: requests.MachineCall, policy: RetryPolicy) -> ClientOperation[Any]:
    """One call, with retries."""
    return (yield from call_operation(_call_of(request, policy), policy))


class _Carried(Enum):
    """Where those fields of a request go that are not in its path."""

    QUERY = "query"
    BODY = "body"
    NOT = "not"


class _MachineRoute(NamedTuple):
    """The request over HTTP that a call is."""

    method: str
    path: str
    """With fields of the call in braces."""
    answer: type
    carried: _Carried = _Carried.NOT
    repeat: RepeatRule = RepeatRule.ALWAYS
    renamed: Mapping[str, str] = {"context": "initial_ctx"}


_VERSION: Final = "/v0/machines/{machine}/versions/{version}"
_INSTANCE: Final = "/v0/instances/{instance_id}"
_ROUTES: Final[dict[type, _MachineRoute]] = {
    requests.PutMachine: _MachineRoute("PUT", _VERSION, answers.MachinePutAnswer, _Carried.BODY),
    requests.GetMachine: _MachineRoute("GET", _VERSION, answers.MachineAnswer),
    requests.ListMachines: _MachineRoute("GET", "/v0/machines", answers.MachineListAnswer),
    requests.DrawMachine: _MachineRoute(
        "GET",
        f"{_VERSION}/drawing",
        str,
        _Carried.QUERY,
        renamed={"form": "format", "instance_id": "instance"},
    ),
    requests.CreateInstance: _MachineRoute(
        "POST", "/v0/instances", answers.InstanceMadeAnswer, _Carried.BODY
    ),
    requests.GetInstance: _MachineRoute("GET", _INSTANCE, answers.InstanceAnswer),
    requests.ListInstances: _MachineRoute(
        "GET", "/v0/instances", answers.InstanceListAnswer, _Carried.QUERY
    ),
    requests.ApplyEvent: _MachineRoute(
        "POST", f"{_INSTANCE}/events", answers.EventAppliedAnswer, _Carried.BODY
    ),
    requests.DeleteInstance: _MachineRoute(
        "DELETE", _INSTANCE, answers.InstanceDeletedAnswer, _Carried.QUERY
    ),
    # Not repeated: it has no key, and twice may be a conflict.
    requests.MigrateInstance: _MachineRoute(
        "POST", f"{_INSTANCE}/migrate", answers.MigratedAnswer, _Carried.BODY, RepeatRule.NEVER
    ),
    requests.Batch: _MachineRoute(
        "POST", "/v0/instances/batch", answers.BatchAnswer, _Carried.BODY
    ),
    requests.ReadHistory: _MachineRoute(
        "GET", f"{_INSTANCE}/history", answers.HistoryAnswer, _Carried.QUERY
    ),
    requests.SnapshotInstance: _MachineRoute(
        "POST", f"{_INSTANCE}/snapshot", answers.InstanceSnapshotAnswer
    ),
    requests.ReadWal: _MachineRoute(
        "POST", "/v0/machines/wal/read", answers.WalReadAnswer, _Carried.BODY
    ),
    requests.GetWalStats: _MachineRoute("GET", "/v0/machines/wal/stats", answers.WalStatsAnswer),
    requests.Compact: _MachineRoute(
        "POST", "/v0/machines/compact", answers.CompactedAnswer, _Carried.BODY
    ),
}
_OPERATIONS: Final[dict[type, str]] = {
    requests.CreateInstance: "CREATE_INSTANCE",
    requests.ApplyEvent: "APPLY_EVENT",
    requests.DeleteInstance: "DELETE_INSTANCE",
}
_NOT_SENT: Final = frozenset(("strict", "reason", "again"))
"""Fields of calls that only the embedded library takes."""


def _call_of(request: Any, policy: RetryPolicy) -> HttpCall[Any]:
    route = _ROUTES[type(request)]
    fields = _sent(request, policy)
    in_path = {name: fields.pop(name, None) for name in _FIELD.findall(route.path)}
    path = _FIELD.sub(lambda found: _path_part(found[1], in_path[found[1]]), route.path)
    named = {route.renamed.get(name, name): value for name, value in fields.items()}
    query = named if route.carried is _Carried.QUERY else {}
    body = json_text(named, "the request") if route.carried is _Carried.BODY else None
    read = bytes.decode if route.answer is str else reader(route.answer)
    texts = {name: str(value) for name, value in query.items()}
    return HttpCall(route.method, path, read, route.repeat, query=texts, body=body)


def _sent(request: Any, policy: RetryPolicy) -> dict[str, Any]:
    """Its fields that say something; with a key of its own where none was given."""
    given = request._asdict()
    if "idempotency_key" in given:
        given["idempotency_key"] = given["idempotency_key"] or policy.new_key()
    if isinstance(request, requests.Batch):
        given["operations"] = [_operation(each, policy) for each in request.operations]
    return {
        name: value
        for name, value in given.items()
        if value is not None and value is not False and name not in _NOT_SENT
    }


def _path_part(name: str, value: Any) -> str:
    if name == "instance_id" and not value:
        raise InvalidRequestError("the id of an instance is not empty")
    return "latest" if value is None else quote(str(value), safe="")


def _operation(request: Any, policy: RetryPolicy) -> dict[str, Any]:
    """Part of a batch."""
    name = _OPERATIONS.get(type(request))
    if name is None:
        raise InvalidRequestError("a batch has CreateInstance, ApplyEvent and DeleteInstance only")
    renamed = _ROUTES[type(request)].renamed
    fields = _sent(request, policy)
    return {"op": name, "params": {renamed.get(field, field): fields[field] for field in fields}}


# -- following


class _BeginEvent(msgspec.Struct):
    wal_offset: int


def follow_operation(
    filters: WatchFilter, from_offset: int | None, idle_ms: int | None, policy: RetryPolicy
) -> WatchOperation:
    """For ever, or until nothing came for a while. After a broken connection it goes on behind the
    last transition that was handed over: none is left out, none comes twice."""
    yield from follow_events(_Transitions(_watch_query(filters, from_offset, idle_ms)), policy)


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


class _Transitions:
    """Transitions as they happen, and which was the last one."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._is_over = False
        self._query = query
        self._last: int | None = None

    def stream(self) -> HttpCall[bytes]:
        last = None if self._last is None else str(self._last)
        return follow_stream("/v0/instances/watch", self._query, last)

    def is_over(self) -> bool:
        return self._is_over

    def is_forgotten(self, _answer: HttpAnswer) -> bool:
        return False

    def take(self, event: SseEvent) -> HandOver | None:
        if event.name == "transition":
            moved = decode(event.data, answers.TransitionAnswer)
            self._last = moved.wal_offset
            return HandOver([moved])
        if event.name == "gap":
            return HandOver([decode(event.data, answers.GapAnswer)])
        if event.name == "begin" and self._last is None:
            self._last = decode(event.data, _BeginEvent).wal_offset - 1
        self._is_over = event.name == "idle"
        return None
