"""The JSON inside entries, by type. Unset fields are left out; the order is that of the class.

`synced` is a witness: the writer knew that everything before this offset was on stable storage.
`previous` is the offset of the entry before about the same instance, so a reader can walk an
instance's history back, and sees when an entry between is missing.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from headwater.core.errors import FormatError
from headwater.format.machines.entry import EntryType, MachineEntry

NO_PAYLOAD: Final = msgspec.Raw()
"""Stands for a field that is left out: a raw value cannot be None."""


class PutMachineEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    machine: str
    version: int
    definition: msgspec.Raw
    checksum: str
    at: int
    synced: int = 0


class CreateInstanceEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    instance_id: str
    machine: str
    version: int
    state: str
    initial_ctx: msgspec.Raw
    at: int
    synced: int = 0
    idempotency_key: str | None = None
    expires_at: int = 0


class ApplyEventEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    instance_id: str
    machine: str
    version: int
    """That the instance has afterwards; a migration says the one before in `from_version`."""
    event: str
    from_state: str
    to_state: str
    at: int
    previous: int
    synced: int = 0
    payload: msgspec.Raw = NO_PAYLOAD
    event_id: str | None = None
    idempotency_key: str | None = None
    from_version: int = 0
    doubtful: bool = False

    @property
    def payload_json(self) -> bytes | None:
        return None if self.payload is NO_PAYLOAD else bytes(self.payload)


class DeleteInstanceEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    instance_id: str
    machine: str
    version: int
    state: str
    at: int
    previous: int
    synced: int = 0
    reason: str | None = None
    """`ttl` when no client asked for it."""
    idempotency_key: str | None = None


class SnapshotTaken(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    snapshot: str
    wal_offset: int
    at: int
    synced: int = 0
    instance_id: str | None = None
    """Set when it is a snapshot of one instance only."""


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    at: int
    synced: int = 0
    flushed: bool = False
    """All machines and instances were removed on request."""


InstanceBody: TypeAlias = CreateInstanceEntry | ApplyEventEntry | DeleteInstanceEntry
"""Those about one instance."""
Body: TypeAlias = PutMachineEntry | InstanceBody | SnapshotTaken | Checkpoint


class _Witness(msgspec.Struct):
    synced: int = 0


TYPE_OF: Final[dict[type, EntryType]] = {
    PutMachineEntry: EntryType.PUT_MACHINE,
    CreateInstanceEntry: EntryType.CREATE_INSTANCE,
    ApplyEventEntry: EntryType.APPLY_EVENT,
    DeleteInstanceEntry: EntryType.DELETE_INSTANCE,
    SnapshotTaken: EntryType.SNAPSHOT,
    Checkpoint: EntryType.CHECKPOINT,
}
_DECODERS: Final[dict[EntryType, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(body) for body, kind in TYPE_OF.items()
}
_witness: Final = msgspec.json.Decoder(_Witness).decode
encode_body: Final = msgspec.json.Encoder().encode


def decode_body(entry: MachineEntry) -> Body:
    return decode_payload(entry.kind, entry.payload)


def decode_payload(kind: EntryType, payload: bytes) -> Body:
    try:
        body: Body = _DECODERS[kind].decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"an entry's JSON is not that of a {kind.name}: {error}") from error
    return body


def witness_of(payload: bytes) -> int:
    """The offset everything before which was synced when this entry was written; 0 if unsaid."""
    try:
        return _witness(payload).synced
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0
