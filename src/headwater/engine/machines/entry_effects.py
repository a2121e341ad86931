"""From an entry to what it makes of the tables: the same for a live change and for the log's."""

from __future__ import annotations

import sys
from typing import Any, Final

from headwater.core.errors import DamageError
from headwater.engine.machines.tables import EntryEffect, RememberedAnswer, Tables
from headwater.format.machines import bodies
from headwater.model.machines.definition import Definition, parse_definition
from headwater.model.machines.errors import MachineError
from headwater.model.machines.instance import Instance
from headwater.model.machines.instance_changes import (
    applied_instance,
    created_instance,
    replayed_event,
)
from headwater.model.machines.values import object_of


def remembered_of(
    body: bodies.CreateInstanceEntry | bodies.ApplyEventEntry | bodies.DeleteInstanceEntry,
    offset: int,
    instance: Instance,
) -> RememberedAnswer | None:
    """The answer for a repeat under the same key; None without a key."""
    key = body.idempotency_key
    if key is None:
        return None
    if isinstance(body, bodies.CreateInstanceEntry):
        return RememberedAnswer(
            "create", body.machine, key, body.at, instance, body.state, "", offset
        )
    if isinstance(body, bodies.ApplyEventEntry):
        return RememberedAnswer(
            "apply", body.instance_id, key, body.at, instance, body.from_state, body.event, offset,
            body.event_id,
        )  # fmt: skip
    return RememberedAnswer(
        "delete", body.instance_id, key, body.at, instance, body.state, "", offset
    )


def effect_of(tables: Tables, offset: int, body: bodies.Body) -> EntryEffect:
    """The effect of an entry that was read from the log."""
    read: Any = _READERS.get(type(body))
    effect: EntryEffect = EntryEffect(body, offset) if read is None else read(tables, offset, body)
    return effect


def _put_machine(_tables: Tables, offset: int, body: bodies.PutMachineEntry) -> EntryEffect:
    try:
        definition = parse_definition(body.machine, body.version, object_of(bytes(body.definition)))
    except MachineError as error:
        raise DamageError(
            f"version {body.version} of machine {body.machine!r} is no definition: {error}",
            offset=offset,
            advice="use the version of Headwater that wrote it",
        ) from error
    return EntryEffect(body, offset, definition=definition)


def _create(tables: Tables, offset: int, body: bodies.CreateInstanceEntry) -> EntryEffect:
    machine, state = _shared(tables, body.machine, body.version, body.state)
    instance = created_instance(body, offset, machine, state)
    before = tables.instances.get(body.instance_id)  # only when its delete was lost to damage
    remembered = remembered_of(body, offset, instance)
    return EntryEffect(body, offset, before, instance, None, remembered)


def _apply(tables: Tables, offset: int, body: bodies.ApplyEventEntry) -> EntryEffect:
    machine, state = _shared(tables, body.machine, body.version, body.to_state)
    before = tables.instances.get(body.instance_id)
    after = replayed_event(body, offset, before, machine, state)
    return EntryEffect(body, offset, before, after, None, remembered_of(body, offset, after))


def _delete(tables: Tables, offset: int, body: bodies.DeleteInstanceEntry) -> EntryEffect:
    before = tables.instances.get(body.instance_id)
    if before is None:  # its creation was lost to damage; so be it
        return EntryEffect(bodies.Checkpoint(body.at), offset)
    return EntryEffect(body, offset, before, None, None, remembered_of(body, offset, before))


def _shared(tables: Tables, machine: str, version: int, state: str) -> tuple[str, str]:
    """The texts that all instances of a machine share, instead of a copy for each."""
    definition: Definition | None = tables.machines.get(machine, {}).get(version)
    if definition is None:
        return sys.intern(machine), sys.intern(state)
    return definition.machine, definition.states.get(state, state)


__all__ = ["applied_instance", "created_instance", "effect_of", "remembered_of"]

_READERS: Final = {
    bodies.PutMachineEntry: _put_machine,
    bodies.CreateInstanceEntry: _create,
    bodies.ApplyEventEntry: _apply,
    bodies.DeleteInstanceEntry: _delete,
}
