"""What is answered about machines and instances, over HTTP and RCPX alike.

Names are those of the published client's models. Every position in the WAL stands there twice: as
the number, and as text for readers that do not keep large numbers exact.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.wire.answers import Spent


class MachineResponse(msgspec.Struct, kw_only=True):
    """Base of all of them."""

    performance: Spent | msgspec.UnsetType = msgspec.UNSET
    """Over HTTP: where the time went."""


class MachinePutAnswer(MachineResponse):
    machine: str
    version: int
    stored_checksum: str
    created: bool


class MachineAnswer(MachineResponse):
    machine: str
    version: int
    definition: Any
    checksum: str


class MachineListed(msgspec.Struct):
    machine: str
    versions: list[int]
    latest: int


class MachineListAnswer(MachineResponse):
    items: list[MachineListed]


class InstanceMadeAnswer(MachineResponse):
    instance_id: str
    machine: str
    version: int
    state: str
    wal_offset: int
    wal_offset_text: str
    applied: bool
    """False for a repeat, which did nothing."""


class InstanceAnswer(MachineResponse, omit_defaults=True):
    instance_id: str
    machine: str
    version: int
    state: str
    ctx: Any
    last_wal_offset: int
    last_wal_offset_text: str
    created_at: int
    updated_at: int
    last_event_id: str | None = None
    expires_at: int | None = None
    doubtful: bool = False
    """Entries about it were lost to damage, or may have been: it may not be what it should be."""


class InstanceListed(msgspec.Struct):
    id: str
    machine: str
    version: int
    state: str
    created_at: int
    updated_at: int
    last_wal_offset: int
    last_wal_offset_text: str


class InstanceListAnswer(MachineResponse):
    instances: list[InstanceListed]
    total: int
    has_more: bool


class InstanceDeletedAnswer(MachineResponse):
    instance_id: str
    deleted: bool
    wal_offset: int
    wal_offset_text: str
    applied: bool


class EventAppliedAnswer(MachineResponse):
    instance_id: str
    from_state: str
    to_state: str
    ctx: Any
    wal_offset: int
    wal_offset_text: str
    applied: bool
    event_id: str | None = None


class BatchOneAnswer(msgspec.Struct, omit_defaults=True):
    status: str
    """ok or error."""
    result: Any = None
    """What the operation answers by itself."""
    error: dict[str, Any] | None = None


class BatchAnswer(MachineResponse):
    results: list[BatchOneAnswer]
    success_count: int
    failure_count: int


class MigratedAnswer(MachineResponse):
    instance_id: str
    machine: str
    version: int
    from_state: str
    to_state: str
    wal_offset: int
    wal_offset_text: str


class HistoryEntry(msgspec.Struct, omit_defaults=True):
    wal_offset: int
    wal_offset_text: str
    type: str
    """CreateInstance, ApplyEvent or DeleteInstance."""
    ts: int
    event: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    payload: Any = None
    """Of an event; of a creation, the context it began with."""
    event_id: str | None = None
    version: int | None = None
    reason: str | None = None
    """Why it was deleted, when no client requested that."""


class HistoryAnswer(MachineResponse):
    instance_id: str
    entries: list[HistoryEntry]
    """Oldest first."""
    complete: bool
    """True when the first of them is the creation."""
    doubtful: bool
    gone_before: str | None
    """Entries before this offset were compacted away."""
    damaged_at: str | None
    """An entry that cannot be read; what is older is not shown."""


class WalEntryAnswer(msgspec.Struct):
    offset: int
    offset_text: str
    sequence: int
    type: str
    data: Any


class BadBytes(msgspec.Struct):
    """A region of the log that is no entry."""

    offset: str
    resume: str


class WalRecord(msgspec.Struct):
    """An entry as the published clients read it: `entry` has its type among its fields."""

    sequence: int
    offset: int
    entry: Any


class WalReadAnswer(MachineResponse):
    entries: list[WalEntryAnswer]
    next_offset: int
    next_offset_text: str
    has_more: bool
    oldest_offset: str
    """What is before it was compacted away."""
    damaged: list[BadBytes]
    records: list[WalRecord] | msgspec.UnsetType = msgspec.UNSET
    """Over RCPX: the same entries once more."""


class WalIoAnswer(msgspec.Struct):
    bytes_written: int
    bytes_read: int
    writes: int
    reads: int
    fsyncs: int


class WalStatsAnswer(MachineResponse):
    entry_count: int
    segment_count: int
    total_size_bytes: int
    current_offset: int
    current_offset_text: str
    latest_offset: int | None
    oldest_segment: int
    newest_segment: int
    damaged_entries: int
    """That were passed over at the last start."""
    state: str
    """writable, full or poisoned."""
    io_stats: WalIoAnswer
    own_part: bool = False
    """True for a key with prefixes: numbers about all entries are 0."""


class CompactedAnswer(MachineResponse):
    snapshot_id: str
    snapshot_bytes: int
    instance_count: int
    wal_offset: int
    wal_offset_text: str
    segments_deleted: int
    bytes_reclaimed: int
    snapshots_created: int
    total_snapshots: int
    """Files of snapshots, those of single instances among them."""
    wal_segments: int
    """That are left."""


class InstanceSnapshotAnswer(MachineResponse):
    snapshot_id: str
    instance_id: str
    state: str
    wal_offset: int
    wal_offset_text: str
    size_bytes: int
    checksum: str
    """CRC32C of the file, in hex."""


class TransitionAnswer(msgspec.Struct, omit_defaults=True):
    """An instance moved. What is pushed to watchers."""

    instance_id: str
    machine: str
    version: int
    event: str
    from_state: str
    to_state: str
    ts: int
    wal_offset: int
    wal_offset_text: str
    payload: Any = None
    event_id: str | None = None
    ctx: Any = None
    """After the event; not known of events that are read from the log."""


class GapAnswer(msgspec.Struct):
    """Transitions that a watcher did not get: it was slow, or they are gone."""

    first_offset: int
    last_offset: int
    missed: int | None = None
    """How many, where that is known."""
    reason: str | None = None
    """behind: the watcher was slow, the log has them. compacted, damaged: the log has not."""
