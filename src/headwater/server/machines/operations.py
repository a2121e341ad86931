"""What the network may ask of machines: one function for each, for HTTP and RCPX alike.

A key with prefixes sees the machines whose names begin with one of them, and their instances;
others are as if they were not there. For changes the engine itself looks, at the very instance that
is changed: an id may be of another machine than it was a moment ago.

Tenants give the same id to different instances, unseen by each other. A key with prefixes, or of an
organisation of its own, speaks for a tenant: the organisation, if it is not the first, and the
key's first prefix. What its keys call `one` is `acme.:one` to the server: in the log, in snapshots,
in `machines:transitions`, to webhooks, and to keys without a tenant, which see all instances by
their full names. So no tenant learns of another's ids by being refused, and none can take one away.
See docs/decisions/0033-ids-of-instances-belong-to-tenants.md.

Instances from before that, and those that a key without a tenant made for one, have a plain id.
A tenant that may name their machine goes on to use them by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import WatchFilter
from headwater.engine.engine import Engine
from headwater.engine.machines import operations as engine_operations
from headwater.engine.machines import responses
from headwater.engine.machines.operations import open_store
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.watchers import TransitionEvent
from headwater.engine.operation import AsOwner, OneStep, Operation, Work
from headwater.model.machines.errors import INSTANCE_NOT_FOUND, MachineError
from headwater.model.machines.instance import Instance
from headwater.server.access.keys import ORGANISATION_DEFAULT, ApiKey, Scope, own_id
from headwater.wire import machine_answers as wire
from headwater.wire.http_errors import HttpError
from headwater.wire.machine_requests import (
    ApplyEventBody,
    ApplyEventParams,
    BatchApply,
    BatchCreate,
    BatchDelete,
    BatchedParams,
    CreateInstanceBody,
    CreateInstanceParams,
    DeleteInstanceParams,
    InstanceParams,
    ListInstancesParams,
    MigrateBody,
    NoParams,
    WalReadBody,
    nearest_limit,
    offset_of,
)

if TYPE_CHECKING:
    from headwater.engine.engine import Engine


R = TypeVar("R", bound=requests.Request)
_UNKNOWN: Final = object()
T = TypeVar("T")


def full_request(store: MachineStore, key: ApiKey, request: R) -> R:
    """The same request about the instance that this key means. As the owner."""
    if not key.tenant:
        return request
    given: Any = getattr(request, "instance_id", None)
    if not isinstance(given, str) or not given:
        return request  # no instance, one without a name, or nothing that is an id
    params: Any = request
    full: R = params._replace(instance_id=_full(store, key, given, request))
    return full


def full_id(store: MachineStore, key: ApiKey, given: str) -> str:
    """As the owner."""
    return _full(store, key, given, None) if key.tenant and given else given


def full_id_operation(engine: Engine, key: ApiKey, given: str) -> Operation[str]:
    if not key.tenant:
        return given
    store = yield from open_store(engine)
    full: str = yield AsOwner(lambda: full_id(store, key, given))
    return full


def _full(store: MachineStore, key: ApiKey, given: str, request: requests.Request | None) -> str:
    own = key.tenant + given
    if _is_known(store, key, own, request):
        return own
    makes = isinstance(request, requests.CreateInstance)
    if makes and key.organisation != ORGANISATION_DEFAULT:
        return own  # plain ids are those of the first organisation
    return given if _is_known(store, key, given, request) else own


def _is_known(
    store: MachineStore, key: ApiKey, name: str, request: requests.Request | None
) -> bool:
    """Whether there is such an instance, or was, that this key may know of."""
    tables, ahead = store.tables, store.book.ahead
    instance: Any = ahead.instances.get(name, _UNKNOWN)
    if instance is _UNKNOWN:
        instance = tables.instances.get(name)
    if instance is not None:
        return key.may_name(instance.machine)
    deleted = ahead.deletions.get(name) or tables.deletions.get(name)
    if deleted is not None and not isinstance(request, requests.CreateInstance):
        return key.may_name(deleted.machine)
    full_key = _repeated(name, request)
    known = None if full_key is None else ahead.keys.get(full_key) or tables.keys.get(full_key)
    return known is not None and known.instance.id == name and key.may_name(known.instance.machine)


def _repeated(name: str, request: requests.Request | None) -> tuple[str, str, str] | None:
    """Under what a first call of this request is remembered."""
    if isinstance(request, requests.CreateInstance):
        kind, scope = "create", request.machine
    elif isinstance(request, requests.ApplyEvent):
        kind, scope = "apply", name
    elif isinstance(request, requests.DeleteInstance):
        kind, scope = "delete", name
    else:
        return None
    key = request.idempotency_key
    return (kind, scope, key) if isinstance(key, str) else None


# -- the other way: what a tenant gets


def own_answer(key: ApiKey, answer: T) -> T:
    """The answer with ids as this key has them. It is fresh, and changed in place."""
    if not key.tenant:
        return answer
    if isinstance(answer, wire.InstanceListAnswer):
        for each in answer.instances:
            each.id = own_id(key, each.id)
    elif isinstance(answer, wire.BatchAnswer):
        for one in answer.results:
            if one.error is not None:
                one.error = _own_error(key, one.error)
            own_answer(key, one.result)
    elif isinstance(answer, msgspec.Struct) and hasattr(answer, "instance_id"):
        answer.instance_id = own_id(key, answer.instance_id)
    return answer


def own_event(key: ApiKey, event: TransitionEvent) -> TransitionEvent:
    """The same one where nothing of it differs, so that it is printed once for all."""
    if not key.tenant or not event.instance_id.startswith(key.tenant):
        return event
    return event._replace(instance_id=own_id(key, event.instance_id))


def _own_error(key: ApiKey, error: dict[str, Any]) -> dict[str, Any]:
    return {**error, "message": str(error["message"]).replace(key.tenant, "")}


def put_machine(
    engine: Engine,
    key: ApiKey,
    machine: str,
    version: int,
    definition: dict[str, Any],
    *,
    strict: bool = True,
) -> Work[wire.MachinePutAnswer]:
    key.require_name(machine)
    request = requests.PutMachine(machine, version, definition, strict)
    return _change(engine, key, request, responses.put)


def get_machine(
    engine: Engine, key: ApiKey, machine: str, version: int | None
) -> Operation[wire.MachineAnswer]:
    key.require_name(machine)
    defined = yield from engine_operations.query_operation(
        engine, lambda store: store.get_machine(machine, version)
    )
    return responses.machine(defined)


def list_machines(engine: Engine, key: ApiKey) -> Operation[wire.MachineListAnswer]:
    listed = yield from engine_operations.query_operation(engine, MachineStore.list_machines)
    return responses.machines([each for each in listed if key.may_name(each.machine)])


def draw(
    engine: Engine,
    key: ApiKey,
    machine: str,
    version: int | None,
    *,
    form: str,
    instance_id: str | None,
) -> Operation[str]:
    key.require_name(machine)
    if key.tenant and instance_id is not None:
        instance_id = (yield from require_seen(engine, key, instance_id)).id
    return (
        yield from engine_operations.draw_operation(engine, machine, version, form, instance_id)
    )


# -- instances


def create_instance(
    engine: Engine, key: ApiKey, body: CreateInstanceBody
) -> Work[wire.InstanceMadeAnswer]:
    key.require_name(body.machine)
    return _change(engine, key, _create(body), responses.created)


def get_instance(engine: Engine, key: ApiKey, instance_id: str) -> Operation[wire.InstanceAnswer]:
    instance = yield from require_seen(engine, key, instance_id)
    return own_answer(key, responses.instance(instance))


def list_instances(
    engine: Engine, key: ApiKey, wanted: ListInstancesParams
) -> Operation[wire.InstanceListAnswer]:
    require_named_machines(key, None if wanted.machine is None else [wanted.machine])
    limit, offset = nearest_limit(wanted.limit), wanted.offset or 0
    listed = yield from engine_operations.query_operation(
        engine, lambda store: store.list_instances(wanted.machine, wanted.state, limit, offset)
    )
    return own_answer(key, responses.instances(listed))


def apply_event(
    engine: Engine, key: ApiKey, instance_id: str, body: ApplyEventBody
) -> Work[wire.EventAppliedAnswer]:
    return _change(engine, key, event_request(instance_id, body), responses.applied)


def delete_instance(
    engine: Engine,
    key: ApiKey,
    instance_id: str,
    idempotency_key: str | None,
    *,
    again: bool = False,
) -> Work[wire.InstanceDeletedAnswer]:
    request = requests.DeleteInstance(instance_id, idempotency_key, again=again)
    return _change(engine, key, request, responses.deleted)


def migrate(
    engine: Engine, key: ApiKey, instance_id: str, body: MigrateBody
) -> Work[wire.MigratedAnswer]:
    request = requests.MigrateInstance(instance_id, body.version, body.state_map)
    return _change(engine, key, request, responses.migrated)


def run_batch(
    engine: Engine, key: ApiKey, operations: Sequence[BatchedParams], mode: str
) -> Operation[wire.BatchAnswer]:
    """Operations whose params are checked already."""
    for each in operations:
        if isinstance(each, CreateInstanceBody):
            key.require_name(each.machine)
        elif isinstance(each, BatchDelete):
            key.require(Scope.DELETE)
        elif isinstance(each, InstanceParams):
            key.require(Scope.READ)
    wanted = [_request(each) for each in operations]
    if key.tenant:
        store = yield from engine_operations.open_store(engine)
        wanted = yield AsOwner(lambda: [full_request(store, key, each) for each in wanted])
    done = yield from engine_operations.batch_operation(engine, wanted, mode, sees_of(key))
    return own_answer(key, responses.batch(done))


def history(
    engine: Engine, key: ApiKey, instance_id: str, limit: int
) -> Operation[wire.HistoryAnswer]:
    if key.tenant:
        instance_id = (yield from require_seen(engine, key, instance_id)).id
    page = yield from engine_operations.history_operation(engine, instance_id, limit)
    return own_answer(key, responses.history(instance_id, page))


def snapshot_instance(
    engine: Engine, key: ApiKey, instance_id: str
) -> Operation[wire.InstanceSnapshotAnswer]:
    if key.tenant:
        instance_id = (yield from require_seen(engine, key, instance_id)).id
    made = yield from engine_operations.snapshot_instance_operation(engine, instance_id)
    return own_answer(key, responses.one_snapshot(made))


# -- the log


def read_wal(
    engine: Engine, key: ApiKey, body: WalReadBody, bytes_max: int | None = None
) -> Operation[wire.WalReadAnswer]:
    if key.prefixes:
        raise HttpError("forbidden", "the log has everybody's entries; this key may not see them")
    offset = offset_of(body.from_offset) or 0
    page = yield from engine_operations.read_wal_operation(
        engine, offset, body.limit, body.newest, bytes_max
    )
    return responses.entries(page)


def wal_stats(engine: Engine, key: ApiKey) -> Operation[wire.WalStatsAnswer]:
    """A key with prefixes gets what every answer has: where the log ends and whether it is
    healthy. How much is in it says something about other keys."""
    stats = yield from engine_operations.query_operation(engine, MachineStore.wal_stats)
    whole = responses.stats(stats)
    if not key.prefixes:
        return whole
    return wire.WalStatsAnswer(
        0, 0, 0, whole.current_offset, whole.current_offset_text, None, 0, 0, 0, whole.state,
        wire.WalIoAnswer(0, 0, 0, 0, 0), own_part=True,
    )  # fmt: skip


def compact(engine: Engine, _key: ApiKey) -> Operation[wire.CompactedAnswer]:
    return (yield from responses.compact_operation(engine))


# -- inside


def sees_of(key: ApiKey) -> requests.Sees | None:
    """What the engine is to ask about machines; None for a key that sees them all."""
    return key.may_name if key.prefixes else None


def _change(
    engine: Engine, key: ApiKey, request: requests.Request, respond: Callable[[Any], T]
) -> Work[T]:
    """One change, which waits for the log only, once the machines are open."""
    store = engine.machines.store
    if store is None:
        return _change_later(engine, key, request, respond)
    full = full_request(store, key, request)
    return OneStep(
        partial(store.submit, full, sees_of(key)), lambda answer: own_answer(key, respond(answer))
    )


def _change_later(
    engine: Engine, key: ApiKey, request: requests.Request, respond: Callable[[Any], T]
) -> Operation[T]:
    store = yield from engine_operations.open_store(engine)
    full: requests.Request = yield AsOwner(lambda: full_request(store, key, request))
    done = yield from engine_operations.change_operation(engine, full, sees_of(key))
    return own_answer(key, respond(done))


def require_named_machines(key: ApiKey, machines: list[str] | None) -> None:
    """A key that sees some machines only has to say which it means."""
    if not key.prefixes:
        return
    if not machines:
        raise HttpError("forbidden", "this key sees some machines only; name those you mean")
    for machine in machines:
        key.require_name(machine)


def require_seen(engine: Engine, key: ApiKey, instance_id: str) -> Operation[Instance]:
    """INSTANCE_NOT_FOUND when it is of a machine that this key may not name."""
    full = yield from full_id_operation(engine, key, instance_id)
    instance = yield from engine_operations.get_instance_operation(engine, full)
    if not key.may_name(instance.machine):
        raise MachineError(INSTANCE_NOT_FOUND, f"there is no instance {instance_id!r}")
    return instance


def seen_by(engine: Engine, key: ApiKey, wanted: WatchFilter) -> Operation[WatchFilter]:
    """What is left to watch for a key that sees some machines only. An instance's id may have been
    of another machine before, and may be again: that one is not theirs to see."""
    if wanted.instance_id is None:
        require_named_machines(key, list(wanted.machines))
        return wanted
    instance = yield from require_seen(engine, key, wanted.instance_id)
    wanted = replace(wanted, instance_id=instance.id)
    if not key.prefixes:
        return wanted
    require_named_machines(key, list(wanted.machines) or [instance.machine])
    return replace(wanted, machines=wanted.machines or frozenset((instance.machine,)))


def _create(body: CreateInstanceBody) -> requests.CreateInstance:
    return requests.CreateInstance(
        body.machine,
        body.version,
        body.instance_id,
        body.initial_ctx,
        body.idempotency_key,
        body.ttl_ms,
    )


def event_request(instance_id: str, body: ApplyEventBody) -> requests.ApplyEvent:
    return requests.ApplyEvent(
        instance_id,
        body.event,
        body.payload,
        body.expected_state,
        offset_of(body.expected_wal_offset),
        body.event_id,
        body.idempotency_key,
    )


def _request(params: BatchedParams) -> requests.Request:
    return _REQUESTS[type(params)](params)


_REQUESTS: Final[dict[type, Callable[[Any], requests.Request]]] = {
    BatchCreate: _create,
    CreateInstanceParams: _create,
    BatchApply: lambda p: event_request(p.instance_id, p),
    ApplyEventParams: lambda p: event_request(p.instance_id, p),
    BatchDelete: lambda p: requests.DeleteInstance(p.instance_id, p.idempotency_key),
    DeleteInstanceParams: lambda p: requests.DeleteInstance(
        p.instance_id, p.idempotency_key, again=True
    ),
    InstanceParams: lambda p: requests.ReadInstance(p.instance_id),
    NoParams: lambda _: requests.Ping(),
}
