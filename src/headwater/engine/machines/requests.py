"""Requests that change machines or instances. Also the parts of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Sees = Callable[[str], bool]
"""May the caller see this machine? Instances of other machines do not exist for the caller."""


class PutMachine(NamedTuple):
    machine: str
    version: int
    definition: dict[str, Any]
    strict: bool = True
    """Refuse fields of a definition that are not known; else they are kept."""


class CreateInstance(NamedTuple):
    machine: str
    version: int | None = None
    """None: the newest version there is."""
    instance_id: str | None = None
    context: dict[str, Any] | None = None
    idempotency_key: str | None = None
    ttl_ms: int | None = None


class ApplyEvent(NamedTuple):
    instance_id: str
    event: str
    payload: dict[str, Any] | None = None
    expected_state: str | None = None
    expected_wal_offset: int | None = None
    event_id: str | None = None
    idempotency_key: str | None = None


class DeleteInstance(NamedTuple):
    instance_id: str
    idempotency_key: str | None = None
    reason: str | None = None
    again: bool = False
    """Succeed where it was deleted before."""


class MigrateInstance(NamedTuple):
    instance_id: str
    version: int
    state_map: dict[str, str] | None = None


class ReadInstance(NamedTuple):
    """Part of a batch: an instance as the operations before it left it."""

    instance_id: str


class Ping(NamedTuple):
    """Part of a batch, and answered in its turn."""


class FlushAll(NamedTuple):
    """Remove every instance and every machine."""


class NoteSnapshot(NamedTuple):
    """A snapshot is complete."""

    name: str
    wal_offset: int
    instance_id: str | None = None


Request: TypeAlias = (
    PutMachine
    | CreateInstance
    | ApplyEvent
    | DeleteInstance
    | MigrateInstance
    | ReadInstance
    | Ping
    | FlushAll
    | NoteSnapshot
)
