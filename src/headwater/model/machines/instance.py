"""An instance as it is at one moment, which transition an event causes, and what that makes of it.

An instance is never changed: every event makes a new one. So a reference to one is a consistent
view, and a snapshot is a list of them. The context stays JSON bytes until a reader parses it.

What an entry makes of an instance is pure, so the store, a start and a batch job agree. Damage may
have taken entries away. What is read then is kept as far as it can be, and marked: an instance
never looks sound when an entry about it may be missing.

An answer under an idempotency key is what a call that comes again is told.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from headwater.format.machines import bodies
from headwater.format.machines.bodies import ApplyEventEntry, CreateInstanceEntry, InstanceBody
from headwater.model.machines.definition import Definition, Transition
from headwater.model.machines.errors import (
    CONFLICT,
    GUARD_FAILED,
    INVALID_TRANSITION,
    MachineError,
    bad_request,
)
from headwater.model.machines.values import EMPTY, checked_text, object_bytes, object_of


class Instance(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """In snapshots it is a list in this order, so new fields go last and have a default."""

    id: str
    machine: str
    version: int
    state: str
    ctx: bytes
    created_at: int
    """Milliseconds since 1970, as is `updated_at`."""
    updated_at: int
    last_wal_offset: int
    last_event_id: str | None = None
    expires_at: int = 0
    """When it deletes itself; 0 for never."""
    doubtful: bool = False
    """Entries about it were lost to damage, or may have been: its state may not be the last."""

    @property
    def context(self) -> dict[str, Any]:
        return object_of(self.ctx)


def choose(definition: Definition, instance: Instance, event: str) -> Transition:
    """The first alternative whose guard holds on the context as it is before the event."""
    events = definition.table.get(instance.state)
    alternatives = None if events is None or type(event) is not str else events.get(event)
    if alternatives is None:
        checked_text(event, "the event")
        allowed = definition.events_of(instance.state)
        raise MachineError(
            INVALID_TRANSITION,
            f"{instance.id!r} is in state {instance.state!r}, where {event!r} leads nowhere; "
            f"possible here: {', '.join(allowed) or 'nothing'}",
            details={"state": instance.state, "event": event, "possible": allowed},
        )
    ctx: dict[str, Any] | None = None
    for transition in alternatives:
        if transition.guard is None:
            return transition
        if ctx is None:
            ctx = object_of(instance.ctx)
        if transition.guard.holds(ctx):
            return transition
    raise MachineError(
        GUARD_FAILED,
        f"{event!r} in state {instance.state!r} of {instance.id!r}: no guard holds",
        details={
            "state": instance.state,
            "event": event,
            "guards": [each.guard.text for each in alternatives if each.guard is not None],
        },
    )


def merged(ctx: bytes, payload: dict[str, Any] | None) -> bytes:
    """The context with the payload's fields put over its own, one level deep."""
    if not payload:
        return ctx
    return object_bytes({**object_of(ctx), **payload}, "the context with the payload in it")


def check_expected(instance: Instance, state: str | None, wal_offset: int | None) -> None:
    """CONFLICT when another change came first."""
    if state is not None and state != instance.state:
        raise MachineError(
            CONFLICT,
            f"{instance.id!r} is in state {instance.state!r}, not {state!r}",
            details={"expected_state": state, "state": instance.state},
        )
    if wal_offset is not None and wal_offset != instance.last_wal_offset:
        raise MachineError(
            CONFLICT,
            f"{instance.id!r} was last changed at {instance.last_wal_offset}, not {wal_offset}",
            details={
                "expected_wal_offset": wal_offset,
                "last_wal_offset": instance.last_wal_offset,
            },
        )


def migrated_state(definition: Definition, instance: Instance, state_map: object) -> str:
    """The state in the other version, or CONFLICT when there is no such state."""
    if not isinstance(state_map, dict | None):
        raise bad_request("state_map must be a JSON object of states")
    wanted = (state_map or {}).get(instance.state, instance.state)
    if not isinstance(wanted, str):
        raise bad_request("state_map maps states to states, which are texts")
    if wanted not in definition.states:
        raise MachineError(
            CONFLICT,
            f"version {definition.version} of {definition.machine!r} has no state {wanted!r}; "
            f"map {instance.state!r} to one it has",
            details={"state": instance.state, "states": sorted(definition.states)},
        )
    return definition.states[wanted]


def created_instance(
    body: bodies.CreateInstanceEntry, offset: int, machine: str, state: str
) -> Instance:
    return Instance(
        body.instance_id, machine, body.version, state, bytes(body.initial_ctx), body.at, body.at,
        offset, None, body.expires_at,
    )  # fmt: skip


def applied_instance(
    body: bodies.ApplyEventEntry, offset: int, before: Instance, state: str, ctx: bytes
) -> Instance:
    return Instance(
        before.id, before.machine, body.version, state, ctx, before.created_at, body.at, offset,
        before.last_event_id if body.event_id is None else body.event_id, before.expires_at,
        body.doubtful,
    )  # fmt: skip


def replayed_event(
    body: bodies.ApplyEventEntry, offset: int, before: Instance | None, machine: str, state: str
) -> Instance:
    """The instance after an event that was read from the log."""
    if before is None:  # its creation was lost to damage
        before = Instance(
            body.instance_id, machine, body.version, body.from_state, EMPTY, body.at, body.at, 0
        )
    ctx = before.ctx
    whole = before.last_wal_offset == body.previous and not before.doubtful
    payload = body.payload_json
    if payload is not None:
        try:
            ctx = merged(ctx, object_of(payload))
        except MachineError:
            whole = False
    after = applied_instance(body, offset, before, state, ctx)
    return after if whole or after.doubtful else _doubtful(after)


def _doubtful(instance: Instance) -> Instance:
    return Instance(
        instance.id, instance.machine, instance.version, instance.state, instance.ctx,
        instance.created_at, instance.updated_at, instance.last_wal_offset,
        instance.last_event_id, instance.expires_at, True,
    )  # fmt: skip


REMEMBERED_BYTES: Final = 736
"""What remembering a key costs besides its texts and its context: two objects and references to
them."""
Key: TypeAlias = tuple[str, str, str]
"""The kind of request (create, apply, delete), its machine or instance, and the key itself."""


class RememberedAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer under an idempotency key. In snapshots it is a list in this order."""

    kind: str
    scope: str
    key: str
    at: int
    instance: Instance
    """As the first call left it; for a delete, as it was before."""
    from_state: str
    event: str
    wal_offset: int
    event_id: str | None = None

    @property
    def full_key(self) -> Key:
        return (self.kind, self.scope, self.key)

    @property
    def memory_bytes(self) -> int:
        """About what it keeps from being used otherwise. The context counts in full: the instance
        has moved on by the time it matters."""
        return REMEMBERED_BYTES + len(self.scope) + len(self.key) + len(self.instance.ctx)


def remembered_of(body: InstanceBody, offset: int, instance: Instance) -> RememberedAnswer | None:
    """The answer for a repeat under the same key; None without a key."""
    key = body.idempotency_key
    if key is None:
        return None
    if isinstance(body, CreateInstanceEntry):
        return RememberedAnswer(
            "create", body.machine, key, body.at, instance, body.state, "", offset
        )
    if isinstance(body, ApplyEventEntry):
        return RememberedAnswer(
            "apply", body.instance_id, key, body.at, instance, body.from_state, body.event, offset,
            body.event_id,
        )  # fmt: skip
    return RememberedAnswer(
        "delete", body.instance_id, key, body.at, instance, body.state, "", offset
    )
