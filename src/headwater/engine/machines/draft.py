"""One change on its way: checked, numbered and turned into entries before anything is written.

A draft sees what is committed, what is still on its way to the disk, and what it did itself. If
any part of it is refused, nothing of it happened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from headwater.api import machine_requests as requests
from headwater.engine.machines.answers import (
    Answer,
    Applied,
    Created,
    DeletedInstance,
    Flushed,
    MachinePut,
    Pong,
    SnapshotNoted,
)
from headwater.engine.machines.tables import Ahead, EntryEffect, InstanceDeletion, Tables
from headwater.format.machines import bodies
from headwater.format.machines.entry import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    PAYLOAD_BYTES_MAX,
    EntryType,
    encode_entries,
)
from headwater.model.machines.definition import (
    MIGRATION_EVENT,
    Definition,
    check_machine_name,
    check_version,
    parse_definition,
    same_definition,
)
from headwater.model.machines.errors import (
    CONFLICT,
    INSTANCE_EXISTS,
    INSTANCE_NOT_FOUND,
    MACHINE_VERSION_EXISTS,
    MACHINE_VERSION_LIMIT_EXCEEDED,
    MachineError,
    bad_request,
)
from headwater.model.machines.instance import (
    Instance,
    Key,
    RememberedAnswer,
    applied_instance,
    check_expected,
    choose,
    created_instance,
    merged,
    migrated_state,
    remembered_of,
)
from headwater.model.machines.values import (
    EMPTY,
    checked_key,
    checked_text,
    checked_whole,
    object_bytes,
)

_UNKNOWN: Final[Any] = object()
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_TTL_MS_MAX: Final = 100 * 365 * 86_400_000


class Draft:
    # Defaults stand in the class: most drafts are one event and have neither keys nor definitions.
    definitions: Mapping[tuple[str, int], Definition] = _NOTHING
    _keys: Mapping[Key, RememberedAnswer] = _NOTHING
    _deletions: Mapping[str, InstanceDeletion] = _NOTHING
    size = 0
    is_plain = False
    """Its entries are without the checksum of their header."""
    overhead = OVERHEAD_BYTES
    sees: requests.Sees | None = None
    """Set for a caller who may not see all machines."""

    def __init__(
        self,
        tables: Tables,
        ahead: Ahead,
        offset: int,
        synced: int,
        now_ms: int,
        expiry_ms: Callable[[], int],
        versions_max: int,
    ) -> None:
        self._tables = tables
        self._ahead = ahead
        self._offset = offset
        self._synced = synced
        self._now_ms = now_ms
        self._expiry_ms = expiry_ms
        self._versions_max = versions_max
        self._instances: dict[str, Instance | None] = {}
        self._payloads: list[tuple[EntryType, bytes]] = []
        self.effects: list[EntryEffect] = []
        self.answers: list[Answer] = []

    def add(self, request: requests.Request) -> None:
        """One more operation; MachineError when the rules refuse it."""
        self.answers.append(_OPERATIONS[type(request)](self, request))

    def encode(self, sequence: int, *, is_batch: bool = True) -> bytes:
        """The entries as they go into the log: those of a batch count together or not at all."""
        return encode_entries(self._payloads, sequence, is_batch=is_batch, is_plain=self.is_plain)

    def note_in(self, ahead: Ahead) -> None:
        """It is on its way: later drafts see it."""
        ahead.note(self._instances, self.definitions, self._keys, self._deletions)

    def forget_in(self, ahead: Ahead) -> None:
        """It is committed."""
        ahead.forget(self._instances, self.definitions, self._keys, self._deletions)

    # -- what it sees

    def _newest(self, name: str) -> Instance | None:
        """The newest instance of this id, be its time up or not."""
        newest: Instance | None = self._instances.get(name, _UNKNOWN)
        if newest is _UNKNOWN:
            newest = self._ahead.instances.get(name, _UNKNOWN)
            if newest is _UNKNOWN:
                return self._tables.instances.get(name)
        return newest

    def _find(self, name: str) -> Instance | None:
        """The newest instance of this id; None when there is none, or its time is up."""
        newest = self._newest(name)
        return None if newest is None or self._is_expired(newest) else newest

    def _is_taken(self, name: str) -> bool:
        """Is this the id of an instance; where ids are kept for ever, was it ever?"""
        tables = self._tables
        if not tables.keeps_retired_ids:
            return self._find(name) is not None
        ever = (self._instances, self._ahead.instances, tables.instances, tables.retired_ids)
        return any(name in each for each in ever)

    def _is_expired(self, instance: Instance) -> bool:
        return 0 < instance.expires_at <= self._expiry_ms()

    def _present(self, name: object) -> Instance:
        instance = self._newest(name) if type(name) is str else None
        if instance is None or (instance.expires_at and self._is_expired(instance)):
            raise _no_instance(checked_text(name, "the instance id"))
        return instance if self.sees is None else self._seen(instance)

    def _seen(self, instance: Instance) -> Instance:
        if self.sees is not None and not self.sees(instance.machine):
            raise _no_instance(instance.id)
        return instance

    def _known_definition(self, machine: str, version: int) -> Definition | None:
        versions = self._tables.machines.get(machine)
        definition = None if versions is None else versions.get(version)
        if definition is None:
            pair = (machine, version)
            definition = self.definitions.get(pair) or self._ahead.definitions.get(pair)
        return definition

    def _definition(self, machine: object, version: int | None) -> Definition:
        name = check_machine_name(machine)
        on_the_way = (*self._ahead.definitions, *self.definitions)
        newer = [number for each, number in on_the_way if each == name]
        if version is None and newer:
            version = max(*newer, *self._tables.machines.get(name, {0: None}))
        if version is not None:
            known = self._known_definition(name, check_version(version))
            if known is not None:
                return known
        return self._tables.definition(name, version)

    def _remembered(self, kind: str, scope: str, key: str | None) -> RememberedAnswer | None:
        if key is None:
            return None
        full = (kind, scope, checked_key(key))
        return self._keys.get(full) or self._ahead.keys.get(full) or self._tables.keys.get(full)

    def _remember(self, remembered: RememberedAnswer | None) -> RememberedAnswer | None:
        if remembered is not None:
            self._keys = {**self._keys, remembered.full_key: remembered}
        return remembered

    # -- what it does

    def _next_offset(self) -> int:
        return self._offset + self.size

    def _write(self, body: bodies.Body, effect: EntryEffect) -> None:
        payload = bodies.encode_body(body)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise bad_request(f"an entry of {len(payload)} bytes is over {PAYLOAD_BYTES_MAX}")
        self._payloads.append((bodies.TYPE_OF[type(body)], payload))
        self.effects.append(effect)
        self.size += self.overhead + len(payload)

    def put_machine(self, request: requests.PutMachine) -> MachinePut:
        given, strict = request.definition, request.strict
        wanted = parse_definition(request.machine, request.version, given, strict=strict)
        name, version = wanted.machine, wanted.version
        known = self._known_definition(name, version)
        if known is not None:
            if not same_definition(known, wanted):
                raise MachineError(
                    MACHINE_VERSION_EXISTS,
                    f"version {version} of {name!r} is another definition; versions never change, "
                    "use a new one",
                    details={"machine": name, "version": version, "checksum": known.checksum},
                )
            return MachinePut(name, version, known.checksum, created=False)
        self._check_version_count(name)
        self.definitions = {**self.definitions, (name, version): wanted}
        body = bodies.PutMachineEntry(
            name, version, msgspec.Raw(wanted.canonical), wanted.checksum, self._now_ms,
            self._synced,
        )  # fmt: skip
        self._write(body, EntryEffect(body, self._next_offset(), definition=wanted))
        return MachinePut(name, version, wanted.checksum, created=True)

    def _check_version_count(self, name: str) -> None:
        on_the_way = (*self._ahead.definitions, *self.definitions)
        count = len(self._tables.machines.get(name, ())) + sum(
            1 for machine, _ in on_the_way if machine == name
        )
        if self._versions_max and count >= self._versions_max:
            raise MachineError(
                MACHINE_VERSION_LIMIT_EXCEEDED,
                f"machine {name!r} has {count} versions; {self._versions_max} are kept at most",
                details={"machine": name, "versions_max": self._versions_max},
            )

    def create_instance(self, request: requests.CreateInstance) -> Created:
        definition = self._definition(request.machine, request.version)
        known = self._remembered("create", definition.machine, request.idempotency_key)
        if known is not None:
            return created_again(known, request)
        name = request.instance_id
        name = str(uuid.uuid4()) if name is None else checked_text(name, "the instance id")
        if self._is_taken(name):
            raise MachineError(
                INSTANCE_EXISTS, f"there is an instance {name!r} already, or was before"
            )
        context = request.context
        ctx = EMPTY if context is None else object_bytes(context, "the context")
        expires_at = self._expiry(request.ttl_ms)
        expired = self._newest(name)
        if expired is not None:  # its id may be used again before maintenance deletes it
            self._delete(expired, "ttl", None)
        offset = self._next_offset()
        body = bodies.CreateInstanceEntry(
            name, definition.machine, definition.version, definition.initial, msgspec.Raw(ctx),
            self._now_ms, self._synced, request.idempotency_key, expires_at,
        )  # fmt: skip
        instance = created_instance(body, offset, definition.machine, definition.initial)
        remembered = self._remember(remembered_of(body, offset, instance))
        self._instances[name] = instance
        self._write(body, EntryEffect(body, offset, None, instance, None, remembered))
        return Created(
            name, definition.machine, definition.version, instance.state, offset, applied=True
        )

    def _expiry(self, ttl_ms: int | None) -> int:
        if ttl_ms is None:
            return 0
        return self._now_ms + checked_whole(ttl_ms, "ttl_ms", 1, _TTL_MS_MAX)

    def apply_event(self, request: requests.ApplyEvent) -> Applied:
        name, event, payload, expected_state, expected_offset, event_id, key = request
        if key is not None:
            known = self._remembered("apply", checked_text(name, "the instance id"), key)
            if known is not None:
                self._seen(known.instance)
                return applied_again(known, request)
        before = self._present(name)
        if expected_state is not None or expected_offset is not None:
            check_expected(before, expected_state, expected_offset)
        definition = self._known_definition(before.machine, before.version)
        if definition is None:  # its entry was lost to damage
            definition = self._tables.definition(before.machine, before.version)
        transition = choose(definition, before, event)
        ctx, raw = before.ctx, bodies.NO_PAYLOAD
        if payload is not None:
            raw = msgspec.Raw(object_bytes(payload, "the payload"))
            ctx = merged(ctx, payload)
        if event_id is not None:
            checked_text(event_id, "the event id")
        body = bodies.ApplyEventEntry(
            before.id, before.machine, before.version, transition.event, before.state,
            transition.to_state, self._now_ms, before.last_wal_offset, self._synced, raw, event_id,
            key, 0, self._tables.is_doubtful(before),
        )  # fmt: skip
        return self._apply(body, before, transition.to_state, ctx)

    def _apply(
        self, body: bodies.ApplyEventEntry, before: Instance, to_state: str, ctx: bytes
    ) -> Applied:
        offset = self._offset + self.size
        after = applied_instance(body, offset, before, to_state, ctx)
        remembered = None
        if body.idempotency_key is not None:
            remembered = remembered_of(body, offset, after)
        # First what may refuse it, then what is seen: others may be in this draft already.
        self._write(body, EntryEffect(body, offset, before, after, None, remembered))
        if remembered is not None:
            self._remember(remembered)
        self._instances[after.id] = after
        return Applied(
            after.id, after.machine, after.version, body.from_state, to_state, ctx, offset,
            True, body.event_id,
        )  # fmt: skip

    def delete_instance(self, request: requests.DeleteInstance) -> DeletedInstance:
        name = checked_text(request.instance_id, "the instance id")
        known = self._remembered("delete", name, request.idempotency_key)
        if known is not None:
            self._seen(known.instance)
            return DeletedInstance(name, known.wal_offset, applied=False)
        before = self._find(name) if request.reason is None else self._newest(name)
        if before is None and request.again:
            return self._deleted_again(name)
        if before is None or (request.reason is not None and not self._is_expired(before)):
            raise _no_instance(name)
        return self._delete(self._seen(before), request.reason, request.idempotency_key)

    def _delete(self, before: Instance, reason: str | None, key: str | None) -> DeletedInstance:
        offset = self._next_offset()
        body = bodies.DeleteInstanceEntry(
            before.id, before.machine, before.version, before.state, self._now_ms,
            before.last_wal_offset, self._synced, reason, key,
        )  # fmt: skip
        remembered = self._remember(remembered_of(body, offset, before))
        self._instances[before.id] = None
        self._deletions = {**self._deletions, before.id: InstanceDeletion(offset, before.machine)}
        self._write(body, EntryEffect(body, offset, before, None, None, remembered))
        return DeletedInstance(before.id, offset, applied=True)

    def _deleted_again(self, name: str) -> DeletedInstance:
        known = self._deletions.get(name) or self._ahead.deletions.get(name)
        known = known or self._tables.deletions.get(name)
        if known is None or (self.sees is not None and not self.sees(known.machine)):
            raise _no_instance(name)
        return DeletedInstance(name, known.wal_offset, applied=False)

    def migrate_instance(self, request: requests.MigrateInstance) -> Applied:
        before = self._present(request.instance_id)
        version = check_version(request.version)
        if version <= before.version:
            raise MachineError(
                CONFLICT,
                f"{before.id!r} has version {before.version}; it can only go to a newer one",
                details={"version": before.version},
            )
        definition = self._definition(before.machine, version)
        state_map = request.state_map
        to_state = migrated_state(definition, before, state_map)
        body = bodies.ApplyEventEntry(
            before.id, before.machine, version, MIGRATION_EVENT, before.state, to_state,
            self._now_ms, before.last_wal_offset, self._synced, bodies.NO_PAYLOAD, None, None,
            before.version, self._tables.is_doubtful(before),
        )  # fmt: skip
        return self._apply(body, before, to_state, before.ctx)

    def read_instance(self, request: requests.ReadInstance) -> Instance:
        instance = self._present(request.instance_id)
        if self._tables.is_doubtful(instance) and not instance.doubtful:
            return msgspec.structs.replace(instance, doubtful=True)
        return instance

    def ping(self, _request: requests.Ping) -> Pong:
        return Pong()

    def flush_all(self, _request: requests.FlushAll) -> Flushed:
        tables = self._tables
        answer = Flushed(len(tables.instances), sum(map(len, tables.machines.values())))
        body = bodies.Checkpoint(self._now_ms, self._synced, flushed=True)
        self._write(body, EntryEffect(body, self._next_offset()))
        return answer

    def note_snapshot(self, request: requests.NoteSnapshot) -> SnapshotNoted:
        body = bodies.SnapshotTaken(
            request.name, request.wal_offset, self._now_ms, self._synced, request.instance_id
        )
        self._write(body, EntryEffect(body, self._next_offset()))
        return SnapshotNoted(request.name, self._next_offset(), request.instance_id)


class PlainDraft(Draft):
    """For a log that other readers of the plain form read as well."""

    is_plain = True
    overhead = HEADER_BYTES


def _no_instance(name: object) -> MachineError:
    return MachineError(INSTANCE_NOT_FOUND, f"there is no instance {name!r}")


# -- repeats under a known idempotency key: the answer of the first call, with applied: false


def created_again(known: RememberedAnswer, request: requests.CreateInstance) -> Created:
    instance = known.instance
    if request.instance_id not in (None, instance.id):
        raise _another(known, f"made {instance.id!r}")
    return Created(
        instance.id, instance.machine, instance.version, known.from_state, known.wal_offset, False
    )


def applied_again(known: RememberedAnswer, request: requests.ApplyEvent) -> Applied:
    if request.event != known.event:
        raise _another(known, f"applied {known.event!r}")
    after = known.instance
    return Applied(
        after.id, after.machine, after.version, known.from_state, after.state, after.ctx,
        known.wal_offset, False, known.event_id,
    )  # fmt: skip


def _another(known: RememberedAnswer, what: str) -> MachineError:
    return MachineError(
        CONFLICT,
        f"idempotency key {known.key!r} was used for another request: it {what}",
        details={"idempotency_key": known.key, "wal_offset": known.wal_offset},
    )


_OPERATIONS: Final[dict[type, Callable[[Draft, Any], Answer]]] = {
    requests.PutMachine: Draft.put_machine,
    requests.CreateInstance: Draft.create_instance,
    requests.ApplyEvent: Draft.apply_event,
    requests.DeleteInstance: Draft.delete_instance,
    requests.MigrateInstance: Draft.migrate_instance,
    requests.ReadInstance: Draft.read_instance,
    requests.Ping: Draft.ping,
    requests.FlushAll: Draft.flush_all,
    requests.NoteSnapshot: Draft.note_snapshot,
}
