"""What is answered about machines and instances, over HTTP and RCPX alike.

Names are those of the published client's models. Every place in the WAL stands there twice: as the
number, and as text for readers that do not keep large numbers exact.
"""

from __future__ import annotations

from typing import Any

import msgspec


class MachinePutAnswer(msgspec.Struct):
    machine: str
    version: int
    stored_checksum: str
    created: bool


class MachineAnswer(msgspec.Struct):
    machine: str
    version: int
    definition: dict[str, Any]
    checksum: str


class MachineListed(msgspec.Struct):
    machine: str
    versions: list[int]


class MachineListAnswer(msgspec.Struct):
    items: list[MachineListed]


class InstanceMadeAnswer(msgspec.Struct):
    instance_id: str
    machine: str
    version: int
    state: str
    wal_offset: int
    wal_offset_text: str
    applied: bool
    """False for a repeat, which did nothing."""


class InstanceAnswer(msgspec.Struct, omit_defaults=True):
    instance_id: str
    machine: str
    version: int
    state: str
    ctx: dict[str, Any]
    last_wal_offset: int
    last_wal_offset_text: str
    created_at: int
    updated_at: int
    last_event_id: str | None = None
    expires_at: int | None = None
    damaged: bool = False
    """Entries of its history could not be read: it may not be what it should be."""


class InstanceListed(msgspec.Struct):
    id: str
    machine: str
    version: int
    state: str
    created_at: int
    updated_at: int
    last_wal_offset: int
    last_wal_offset_text: str


class InstanceListAnswer(msgspec.Struct):
    instances: list[InstanceListed]
    total: int
    has_more: bool


class InstanceDeletedAnswer(msgspec.Struct):
    instance_id: str
    deleted: bool
    wal_offset: int
    wal_offset_text: str
    applied: bool


class EventAppliedAnswer(msgspec.Struct):
    instance_id: str
    from_state: str
    to_state: str
    ctx: msgspec.Raw
    wal_offset: int
    wal_offset_text: str
    applied: bool
    event_id: str | None = None


class BatchOneAnswer(msgspec.Struct, omit_defaults=True):
    status: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class BatchAnswer(msgspec.Struct):
    results: list[BatchOneAnswer]
    success_count: int
    failure_count: int


class MigratedAnswer(msgspec.Struct):
    instance_id: str
    from_version: int
    to_version: int
    from_state: str
    to_state: str
    wal_offset: int
    wal_offset_text: str


class HistoryEntry(msgspec.Struct, omit_defaults=True):
    wal_offset: int
    wal_offset_text: str
    type: str
    ts: int
    event: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    payload: dict[str, Any] | None = None
    event_id: str | None = None
    version: int | None = None


class HistoryAnswer(msgspec.Struct):
    instance_id: str
    entries: list[HistoryEntry]
    complete: bool
    """False when the beginning was compacted away."""


class WalEntryAnswer(msgspec.Struct):
    offset: int
    offset_text: str
    sequence: int
    type: str
    ts: int
    data: dict[str, Any]


class WalReadAnswer(msgspec.Struct):
    entries: list[WalEntryAnswer]
    next_offset: int
    next_offset_text: str
    has_more: bool


class WalIoAnswer(msgspec.Struct):
    bytes_written: int
    bytes_read: int
    writes: int
    reads: int
    fsyncs: int


class WalStatsAnswer(msgspec.Struct):
    entry_count: int
    segment_count: int
    total_size_bytes: int
    current_offset: int
    current_offset_text: str
    latest_offset: int | None
    oldest_segment: int
    newest_segment: int
    corrupt_entries: int
    io_stats: WalIoAnswer


class CompactedAnswer(msgspec.Struct):
    snapshot_id: str
    snapshots_created: int
    wal_offset: int
    wal_offset_text: str
    segments_deleted: int
    bytes_reclaimed: int


class InstanceSnapshotAnswer(msgspec.Struct):
    snapshot_id: str
    instance_id: str
    state: str
    wal_offset: int
    wal_offset_text: str
    size_bytes: int
    checksum: str
