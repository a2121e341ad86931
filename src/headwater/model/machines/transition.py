"""Which transition an event causes, and what it makes of the context."""

from __future__ import annotations

from typing import Any

from headwater.model.machines.definition import Definition, Transition
from headwater.model.machines.errors import (
    CONFLICT,
    GUARD_FAILED,
    INVALID_TRANSITION,
    MachineError,
    bad_request,
)
from headwater.model.machines.instance import Instance
from headwater.model.machines.values import checked_text, object_bytes, object_of


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
