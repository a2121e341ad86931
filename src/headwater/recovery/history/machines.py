"""The machines' log: what its entries make of definitions, instances and idempotency keys.

PUT_MACHINE      gives a machine a version, which never changes.
CREATE_INSTANCE  makes an instance, in the state and with the context it says. One that is there
                 already was deleted, by an entry that damage took.
APPLY_EVENT      moves an instance to a state and puts the fields of the payload over those of its
                 context. It says which entry about the instance came before it: where that is not
                 the one that was read, or where there is no instance, damage took entries, and the
                 instance is marked as in doubt from here on.
DELETE_INSTANCE  takes an instance away. Nothing, when damage took its creation.
CHECKPOINT       takes everything away if it was made by a request to remove all; nothing else.
SNAPSHOT         is about files; `recovery.machines.survey` reads them.

An entry that was written under a key gives the answer that the next call with this key gets.

The fold keeps definitions and instances in the reader's own tables, so that the entries of a start,
which may be millions, cost no more calls than they must.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from headwater.core.errors import FormatError
from headwater.format.machines import bodies
from headwater.format.machines.bodies import decode_payload
from headwater.format.machines.entry import EntryType
from headwater.model.machines.definition import Definition, parse_definition
from headwater.model.machines.errors import MachineError
from headwater.model.machines.instance import (
    Instance,
    RememberedAnswer,
    created_instance,
    remembered_of,
    replayed_event,
)
from headwater.model.machines.values import object_of


class MachineSink(Protocol):
    """What a reader does about it, beside what its tables say then. One that derives from this
    class may leave out what it does not need."""

    __slots__ = ()

    def made(self, instance: Instance) -> None:
        """There was no instance of its id before."""
        return

    def deleted(self, before: Instance, offset: int, at: int) -> None:
        """It is out of the table. `at`: when that was, in milliseconds since 1970."""
        return

    def flushed(self) -> None:
        """All definitions and instances are out of the tables, and no key counts any more."""
        return

    def remember(self, answer: RememberedAnswer) -> None:
        """The answer for a call that comes again."""
        return


class MachineFold:
    __slots__ = ("_instances", "_machines", "_sink")

    def __init__(
        self,
        machines: dict[str, dict[int, Definition]],
        instances: dict[str, Instance],
        sink: MachineSink,
    ) -> None:
        """The tables are the reader's: machines by name and version, instances by id."""
        self._machines = machines
        self._instances = instances
        self._sink = sink

    def take(self, kind: EntryType, payload: bytes, offset: int) -> None:
        """The next entry of the log. FormatError when it is not what this version writes."""
        _RULES[kind](self, decode_payload(kind, payload), offset)

    # -- one for each kind of entry

    def _define(self, body: bodies.PutMachineEntry, _offset: int) -> None:
        try:
            definition = parse_definition(
                body.machine, body.version, object_of(bytes(body.definition))
            )
        except MachineError as error:
            what = f"version {body.version} of machine {body.machine!r} is no definition: {error}"
            raise FormatError(what) from error
        self._machines.setdefault(definition.machine, {})[definition.version] = definition

    def _create(self, body: bodies.CreateInstanceEntry, offset: int) -> None:
        name, instances = body.instance_id, self._instances
        machine, state = self._shared(body.machine, body.version, body.state)
        instance = created_instance(body, offset, machine, state)
        is_new = name not in instances
        instances[name] = instance
        if is_new:
            self._sink.made(instance)
        if body.idempotency_key is not None:
            self._remember(body, offset, instance)

    def _apply(self, body: bodies.ApplyEventEntry, offset: int) -> None:
        name, instances = body.instance_id, self._instances
        machine, state = self._shared(body.machine, body.version, body.to_state)
        before = instances.get(name)
        after = replayed_event(body, offset, before, machine, state)
        instances[name] = after
        if before is None:
            self._sink.made(after)
        if body.idempotency_key is not None:
            self._remember(body, offset, after)

    def _delete(self, body: bodies.DeleteInstanceEntry, offset: int) -> None:
        before = self._instances.pop(body.instance_id, None)
        if before is not None:
            self._sink.deleted(before, offset, body.at)
            self._remember(body, offset, before)

    def _checkpoint(self, body: bodies.Checkpoint, _offset: int) -> None:
        if empties(body):
            self._machines.clear()
            self._instances.clear()
            self._sink.flushed()

    def _about_files(self, body: bodies.SnapshotTaken, _offset: int) -> None:
        """Those who read the files have drawn their conclusions."""

    def _remember(self, body: bodies.InstanceBody, offset: int, instance: Instance) -> None:
        answer = remembered_of(body, offset, instance)
        if answer is not None:
            self._sink.remember(answer)

    def _shared(self, machine: str, version: int, state: str) -> tuple[str, str]:
        """The texts that all instances of a machine share, instead of a copy for each."""
        versions = self._machines.get(machine)
        definition = None if versions is None else versions.get(version)
        if definition is None:
            return sys.intern(machine), sys.intern(state)
        return definition.machine, definition.states.get(state, state)


_RULES: Final[dict[EntryType, Callable[[MachineFold, Any, int], None]]] = {
    EntryType.PUT_MACHINE: MachineFold._define,
    EntryType.CREATE_INSTANCE: MachineFold._create,
    EntryType.APPLY_EVENT: MachineFold._apply,
    EntryType.DELETE_INSTANCE: MachineFold._delete,
    EntryType.SNAPSHOT: MachineFold._about_files,
    EntryType.CHECKPOINT: MachineFold._checkpoint,
}


# -- whose an entry is

OF_INSTANCES: Final = frozenset(
    {EntryType.CREATE_INSTANCE, EntryType.APPLY_EVENT, EntryType.DELETE_INSTANCE}
)
"""Entries that are about one instance each."""


class EntryAbout(msgspec.Struct):
    """What every entry about an instance says."""

    instance_id: str
    at: int


_decode_about: Final = msgspec.json.Decoder(EntryAbout).decode


def about(payload: bytes) -> EntryAbout:
    """Of an entry `OF_INSTANCES`, without what else it says."""
    try:
        return _decode_about(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"an entry's JSON names no instance: {error}") from error


def empties(body: bodies.Body) -> bool:
    """Everything was removed on request: nothing that came before counts any more."""
    return type(body) is bodies.Checkpoint and body.flushed


def entry_before(body: bodies.InstanceBody) -> int:
    """Where the entry before is that is about the same instance; 0: this one made it."""
    return 0 if isinstance(body, bodies.CreateInstanceEntry) else body.previous


class InstanceChains:
    """Whether entries about an instance name the one before, as far as entries were read."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        """The newest entry about each instance."""

    def take(self, body: bodies.Body, offset: int) -> str:
        """What is wrong with what the next entry says; empty when nothing is."""
        if empties(body):
            self._last.clear()
        if not isinstance(body, bodies.InstanceBody):
            return ""
        named = entry_before(body)
        known = self._last.get(body.instance_id, named)
        self._last[body.instance_id] = offset
        if isinstance(body, bodies.CreateInstanceEntry) or named == known < offset:
            return ""
        return f"the entry before about the same instance is at {known}, and it says {named}"

    def interrupt(self) -> None:
        """Entries about any instance may be missing here."""
        self._last.clear()
