"""Every RCPX operation: what it takes, what it needs, what it does. A table; and HELLO, AUTH, PING,
BYE: getting to know each other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from headwater.core.errors import ClosedError, HeadwaterError, InvalidRequestError
from headwater.core.units import US_PER_S
from headwater.core.version import __version__
from headwater.engine.machines import operations as engine_operations
from headwater.engine.machines.responses import with_records
from headwater.engine.machines.store import MachineStore
from headwater.engine.operation import Operation, Work
from headwater.model.machines.errors import bad_request
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.backend import Backend
from headwater.server.machines import operations as machines
from headwater.server.operation_runner import OperationRunner
from headwater.server.rcpx import subscriptions
from headwater.server.rcpx.caller import RcpxCaller, Result
from headwater.wire import machine_requests as requests
from headwater.wire.http_errors import HttpError
from headwater.wire.machine_answers import BatchAnswer, MachineResponse
from headwater.wire.machine_requests import (
    BATCH_OPERATIONS_MAX,
    LIST_LIMIT_MAX,
    AuthParams,
    HelloParams,
    NoParams,
)
from headwater.wire.rcpx import (
    PAYLOAD_BYTES_MAX,
    VERSION,
    RcpxProtocolError,
    Request,
    WireMode,
)

FEATURES: Final = (
    "idempotency", "batch", "atomic_batch", "watch", "watch_from_offset", "wal_read", "compaction",
    "ttl", "migrate", "history",
)  # fmt: skip
_SCOPES: Final = {
    "read": Scope.READ,
    "write": Scope.WRITE,
    "delete": Scope.DELETE,
    "owner": Scope.OWN,
    "admin": Scope.ADMIN,
}
WAL_PAGE_BYTES: Final = PAYLOAD_BYTES_MAX // 4
"""Of the log in one answer, which contains it twice and has to fit into a frame."""
_EMPTY: Final = b"{}"
_encode = msgspec.json.Encoder().encode
Run = Callable[[Any, Any], Result | Work[MachineResponse | Result]]


def hello(connection: RcpxCaller, params: HelloParams) -> Result:
    if params.protocol_version != VERSION:
        raise RcpxProtocolError(
            "UNSUPPORTED_PROTOCOL",
            f"protocol version {params.protocol_version}; this server speaks {VERSION}",
        )
    mode = _agreed_mode(connection.mode, params.wire_modes)
    connection.greet(params.client_name[:128])
    body: dict[str, Any] = {
        "protocol_version": VERSION,
        "wire_mode": mode.value,
        "server_name": "headwater",
        "server_version": __version__,
        "auth_required": connection.key is None,
        "features": FEATURES,
        "limits": {
            "max_frame_size": PAYLOAD_BYTES_MAX,
            "max_instances_per_list": LIST_LIMIT_MAX,
            "max_batch_operations": BATCH_OPERATIONS_MAX,
            "max_requests_under_way": connection.endpoint.limits.pipeline,
        },
    }
    return Result(_encode(body), then=partial(connection.change_mode, mode))


def _agreed_mode(spoken: WireMode | None, offered: list[str]) -> WireMode:
    """The one that is spoken already if the client offers it, else its first that is known."""
    spoken = spoken or WireMode.FRAMES
    if not offered or spoken.value in offered:
        return spoken
    known = {mode.value: mode for mode in WireMode}
    for name in offered:
        if name in known:
            return known[name]
    raise RcpxProtocolError(
        "UNSUPPORTED_PROTOCOL", f"none of the wire modes is known; known are: {', '.join(known)}"
    )


def auth(connection: RcpxCaller, params: AuthParams) -> Result:
    if params.method != "bearer":
        raise InvalidRequestError("the only method is bearer, with the secret of an API key")
    try:
        key = connection.endpoint.access.keys.find_secret(params.token.encode("utf-8", "replace"))
    except HttpError as error:
        raise RcpxProtocolError("AUTH_FAILED", str(error)) from error
    connection.admit(key)
    return Result(_encode({"authenticated": True, "permissions": _permissions(key)}))


def _permissions(key: ApiKey) -> list[str]:
    return [name for name, scope in _SCOPES.items() if scope in key.scopes]


def ping(_connection: RcpxCaller, _params: NoParams) -> Result:
    return Result(b'{"pong":true}')


def bye(connection: RcpxCaller, _params: NoParams) -> Result:
    return Result(b'{"goodbye":true}', then=connection.say_goodbye)


@dataclass(frozen=True, slots=True)
class RcpxOperation:
    params: msgspec.json.Decoder[Any]
    run: Run
    scope: Scope = Scope.NONE
    is_open: bool = False
    """Needs no key."""
    is_write: bool = False
    """The log keeps its order with other writes of the same connection."""


class RcpxRunner(OperationRunner[MachineResponse | Result]):
    __slots__ = ("_connection", "_request_id")

    def __init__(
        self,
        connection: RcpxCaller,
        request_id: bytes,
        operation: Work[MachineResponse | Result],
    ) -> None:
        super().__init__(connection.endpoint.backend, connection.usage, operation)
        self._connection = connection
        self._request_id = request_id

    def _enter(self) -> None:
        self._usage.begin()
        self._connection.under_way += 1

    def _leave(self) -> None:
        self._usage.end()
        self._connection.ended()

    def _succeed(self, result: MachineResponse | Result) -> None:
        answer = self._connection.answer
        if not isinstance(result, Result):
            answer(self._request_id, _encode(result), getattr(result, "wal_offset", None))
            return
        answer(self._request_id, result.body, result.wal_offset)
        if result.then is not None:
            result.then()

    def _fail(self, error: HeadwaterError) -> None:
        self._connection.fail(self._request_id, error)

    def _break(self, error: Exception) -> None:
        self._connection.broken(self._request_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._connection.endpoint.spawn(work)


def is_write(backend: Backend, name: str) -> bool:
    """May it begin while writes that came before it are under way? The first request of all opens
    the machines, which takes files and threads: nothing joins that one."""
    operation = OPERATIONS.get(name)
    if operation is None or not operation.is_write:
        return False
    return backend.engine.machines.store is not None


def begin_operation(connection: RcpxCaller, request_id: bytes, request: Request) -> None:
    """Check key and params; answer at once, or when it is done. Raises refusals."""
    operation = OPERATIONS.get(request.op)
    if operation is None:
        raise bad_request(f"there is no operation {request.op[:40]!r}")
    if not connection.greeted and request.op != "HELLO":
        raise bad_request("the first operation is HELLO")
    if not operation.is_open:
        key = connection.key
        if key is None:
            raise HttpError("unauthorized", "AUTH first, with the secret of an API key")
        if request.op not in connection.granted:
            key.require(operation.scope)
            connection.granted.add(request.op)
        if connection.endpoint.backend.draining:
            raise ClosedError("shutting down; nothing was done")
    try:
        params = operation.params.decode(_EMPTY if request.params == b"null" else request.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"{request.op}: params cannot be read: {error}") from error
    outcome = operation.run(connection, params)
    if not isinstance(outcome, Result):
        RcpxRunner(connection, request_id, outcome).begin()
        return
    connection.answer(request_id, outcome.body, outcome.wal_offset)
    if outcome.then is not None:
        outcome.then()


def _of_machines(make: Callable[..., Work[Any]]) -> Run:
    """An operation that HTTP has too: `make` takes engine, key and params."""

    def run(connection: RcpxCaller, params: Any) -> Work[MachineResponse | Result]:
        return make(connection.endpoint.backend.engine, connection.key, params)

    return run


def _info(connection: RcpxCaller, _params: requests.NoParams) -> Operation[Result]:
    endpoint = connection.endpoint
    engine = endpoint.backend.engine
    stats = yield from engine_operations.query_operation(engine, MachineStore.wal_stats)
    key = connection.key
    assert key is not None
    sees = machines.sees_of(key)
    counts = yield from engine_operations.query_operation(
        engine, lambda store: engine_operations.counts(store, sees)
    )
    whole = not key.prefixes  # others' connections and entries are none of a tenant's business
    body = {
        "server_name": "headwater",
        "version": __version__,
        "server_version": __version__,
        "protocol_version": VERSION,
        "max_frame_bytes": PAYLOAD_BYTES_MAX,
        "max_batch_ops": requests.BATCH_OPERATIONS_MAX,
        "uptime_secs": endpoint.uptime_us // US_PER_S,
        "features": FEATURES,
        "stats": {
            "connections": len(endpoint.connections) if whole else 1,
            "machines": counts.machines,
            "instances": counts.instances,
            "wal_offset": stats.current_offset,
            "wal_size_bytes": stats.total_size_bytes if whole else 0,
        },
        "config": {
            "auth_required": bool(len(endpoint.access.keys)),
            "max_connections": endpoint.connections.connections_max,
            "fsync_policy": engine.core.settings.machines.fsync_policy.kind.value,
        },
    }
    return Result(_encode(body), stats.current_offset)


def _put_machine(engine: Any, key: Any, params: requests.PutMachineParams) -> Work[Any]:
    machine, version = params.machine, params.version
    return machines.put_machine(engine, key, machine, version, params.definition, strict=False)


def _delete_instance(engine: Any, key: Any, params: requests.DeleteInstanceParams) -> Work[Any]:
    name, repeat = params.instance_id, params.idempotency_key
    return machines.delete_instance(engine, key, name, repeat, again=True)


def _batch(engine: Any, key: Any, params: requests.BatchParams) -> Operation[Any]:
    given = params.ops if params.operations is None else params.operations
    if given is None:
        raise bad_request("a batch has a list of operations")
    operations = [
        requests.batch_params(each, index, requests.RCPX_BATCH_PARAMS)
        for index, each in enumerate(given)
    ]
    if not operations:
        return BatchAnswer([], 0, 0)
    return (yield from machines.run_batch(engine, key, operations, params.mode or "best_effort"))


def _read_wal(engine: Any, key: Any, params: requests.WalReadParams) -> Operation[Any]:
    body = requests.WalReadBody(
        params.from_offset or 0, requests.nearest_limit(params.limit), params.newest
    )
    page = yield from machines.read_wal(engine, key, body, WAL_PAGE_BYTES)
    return with_records(page)


def _flush_all(connection: RcpxCaller, _params: requests.NoParams) -> Operation[Result]:
    flushed = yield from engine_operations.flush_all_operation(connection.endpoint.backend.engine)
    body = {"flushed": True, **flushed._asdict()}
    return Result(_encode(body))


def _operation(
    params: type[msgspec.Struct], run: Run, scope: Scope = Scope.NONE, *, is_open: bool = False
) -> RcpxOperation:
    return RcpxOperation(msgspec.json.Decoder(params), run, scope, is_open)


def _write(params: type[msgspec.Struct], run: Run, scope: Scope = Scope.WRITE) -> RcpxOperation:
    return RcpxOperation(msgspec.json.Decoder(params), run, scope, is_write=True)


READ, WRITE, DELETE, ADMIN = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN

OPERATIONS: Final[dict[str, RcpxOperation]] = {
    "HELLO": _operation(requests.HelloParams, hello, is_open=True),
    "AUTH": _operation(requests.AuthParams, auth, is_open=True),
    "PING": _operation(requests.NoParams, ping, is_open=True),
    "BYE": _operation(requests.NoParams, bye, is_open=True),
    "INFO": _operation(requests.NoParams, _info, READ),
    "PUT_MACHINE": _write(
        requests.PutMachineParams,
        _of_machines(_put_machine),
    ),
    "GET_MACHINE": _operation(
        requests.GetMachineParams,
        _of_machines(lambda e, k, p: machines.get_machine(e, k, p.machine, p.version)),
        READ,
    ),
    "LIST_MACHINES": _operation(
        requests.NoParams, _of_machines(lambda e, k, _: machines.list_machines(e, k)), READ
    ),
    "CREATE_INSTANCE": _write(
        requests.CreateInstanceParams, _of_machines(machines.create_instance)
    ),
    "GET_INSTANCE": _operation(
        requests.InstanceParams,
        _of_machines(lambda e, k, p: machines.get_instance(e, k, p.instance_id)),
        READ,
    ),
    "LIST_INSTANCES": _operation(
        requests.ListInstancesParams, _of_machines(machines.list_instances), READ
    ),
    "DELETE_INSTANCE": _write(
        requests.DeleteInstanceParams, _of_machines(_delete_instance), DELETE
    ),
    "APPLY_EVENT": _write(
        requests.ApplyEventParams,
        _of_machines(lambda e, k, p: machines.apply_event(e, k, p.instance_id, p)),
    ),
    "BATCH": _write(requests.BatchParams, _of_machines(_batch)),
    "MIGRATE_INSTANCE": _write(
        requests.MigrateParams,
        _of_machines(lambda e, k, p: machines.migrate(e, k, p.instance_id, p)),
    ),
    "HISTORY": _operation(
        requests.HistoryParams,
        _of_machines(
            lambda e, k, p: machines.history(e, k, p.instance_id, requests.nearest_limit(p.limit))
        ),
        READ,
    ),
    "WATCH_INSTANCE": _operation(requests.WatchInstanceParams, subscriptions.watch_instance, READ),
    "WATCH_ALL": _operation(requests.WatchAllParams, subscriptions.watch_all, READ),
    "UNWATCH": _operation(requests.UnwatchParams, subscriptions.unwatch, READ),
    "SNAPSHOT_INSTANCE": _operation(
        requests.InstanceParams,
        _of_machines(lambda e, k, p: machines.snapshot_instance(e, k, p.instance_id)),
        WRITE,
    ),
    "WAL_READ": _operation(requests.WalReadParams, _of_machines(_read_wal), ADMIN),
    "WAL_STATS": _operation(
        requests.NoParams, _of_machines(lambda e, k, _: machines.wal_stats(e, k)), READ
    ),
    "COMPACT": _operation(
        requests.CompactParams, _of_machines(lambda e, k, _: machines.compact(e, k)), ADMIN
    ),
    "FLUSH_ALL": _operation(requests.NoParams, _flush_all, ADMIN),
}
