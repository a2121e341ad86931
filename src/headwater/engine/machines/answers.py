"""What machines answer. Contexts and definitions are JSON bytes, ready to be put into an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.model.machines.instance import Instance
from headwater.model.machines.values import object_of


class MachinePut(NamedTuple):
    machine: str
    version: int
    checksum: str
    created: bool
    """False when this very definition was there already."""


class MachineVersion(NamedTuple):
    machine: str
    version: int
    definition: bytes
    checksum: str


class MachineVersions(NamedTuple):
    machine: str
    versions: Sequence[int]

    @property
    def latest(self) -> int:
        return self.versions[-1]


class Created(NamedTuple):
    instance_id: str
    machine: str
    version: int
    state: str
    wal_offset: int
    applied: bool
    """False for a repeat under the same idempotency key, as in the answers below."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    instance_id: str
    machine: str
    version: int
    from_state: str
    to_state: str
    ctx: bytes
    wal_offset: int
    applied: bool
    event_id: str | None

    @property
    def context(self) -> dict[str, Any]:
        return object_of(self.ctx)


class DeletedInstance(NamedTuple):
    instance_id: str
    wal_offset: int
    applied: bool


class Pong(NamedTuple):
    pong: bool = True


class Flushed(NamedTuple):
    instances_removed: int
    machines_removed: int


class SnapshotNoted(NamedTuple):
    name: str
    wal_offset: int
    instance_id: str | None = None


Answer: TypeAlias = (
    MachinePut | Created | Applied | DeletedInstance | Instance | Pong | Flushed | SnapshotNoted
)


class OperationOutcome(NamedTuple):
    """What became of one operation of a batch: an answer or an error."""

    answer: Answer | None
    error: HeadwaterError | None = None


class BatchDone(NamedTuple):
    mode: str
    outcomes: Sequence[OperationOutcome]


class InstancesListed(NamedTuple):
    instances: Sequence[Instance]
    total: int
    has_more: bool


class Compacted(NamedTuple):
    snapshot: str
    wal_offset: int
    instance_count: int
    snapshot_bytes: int
    segments_deleted: int
    bytes_reclaimed: int = 0
    """What the deleted segments took."""


class InstanceSnapshot(NamedTuple):
    """A snapshot of one instance: its file, and what it shows."""

    snapshot: str
    instance_id: str
    state: str
    wal_offset: int
    size_bytes: int
    checksum: str
    """CRC32C of the file, in hex."""


class WalStats(NamedTuple):
    current_offset: int
    """Where the next entry goes."""
    latest_offset: int | None
    """Of the newest entry; None in an empty log."""
    segment_count: int
    total_size_bytes: int
    oldest_segment: int
    newest_segment: int
    entry_count: int
    damaged_entries: int
    bytes_written: int
    bytes_read: int
    writes: int
    reads: int
    fsyncs: int
    state: str
    """writable, full or poisoned."""
