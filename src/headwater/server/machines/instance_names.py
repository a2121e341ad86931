"""Whose an instance's id is: tenants give the same id to different instances, unseen by each other.

A key with prefixes, or of an organisation of its own, speaks for a tenant: the organisation, if it
is not the first, and the key's first prefix. What its keys call `one` is `acme.:one` to the server:
in the log, in snapshots, in `machines:transitions`, to webhooks, and to keys without a tenant,
which see all instances by their full names. So no tenant learns of another's ids by being refused,
and none can take one away. See docs/decisions/0033-ids-of-instances-belong-to-tenants.md.

Instances from before that, and those that a key without a tenant made for one, have a plain id.
A tenant that may name their machine goes on to use them by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headwater.api import machine_requests as requests
from headwater.engine.machines.operations import open_store
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.watchers import TransitionEvent
from headwater.engine.operation import AsOwner, Operation
from headwater.server.access.keys import ORGANISATION_DEFAULT, ApiKey
from headwater.server.access.tenants import own_id
from headwater.wire import machine_answers as wire

if TYPE_CHECKING:
    from headwater.engine.engine import Engine

T = TypeVar("T")
R = TypeVar("R", bound=requests.Request)
_UNKNOWN: Final = object()


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
