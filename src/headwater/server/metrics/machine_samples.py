"""Samples of the state machines; zeros until they are used."""

from __future__ import annotations

from headwater.engine.engine import Engine
from headwater.engine.machines.operations import counts
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey
from headwater.server.machines.operations import sees_of
from headwater.wal.committer import LogState


def machine_samples(engine: Engine, key: ApiKey) -> list[Sample]:
    """As the owner. A key with prefixes gets the number of its own machines and instances."""
    if key.prefixes:
        store = engine.machines.store
        own = None if store is None else counts(store, sees_of(key))
        return [
            Sample("machines", 0 if own is None else own.machines),
            Sample("machine_instances", 0 if own is None else own.instances),
        ]
    values = {
        "machines": 0,
        "machine_instances": 0,
        "machine_watchers": 0,
        "machine_wal_entries": 0,
        "machine_wal_fsyncs": 0,
        "machine_wal_bytes_written": 0,
        "machine_wal_bytes": 0,
        "machine_wal_segments": 0,
        "machine_wal_read_only": 0,
        "machine_wal_damaged_entries": 0,
        "machine_compactions": 0,
        "machine_idempotency_keys": 0,
        "machine_idempotency_bytes": 0,
        "machine_idempotency_keys_forgotten": 0,
    }
    store = engine.machines.store
    if store is not None:
        held, stats = counts(store), store.wal_stats()
        values |= {
            "machines": held.machines,
            "machine_instances": held.instances,
            "machine_watchers": store.watcher_count,
            "machine_wal_entries": store.book.committed_sequence - 1,
            "machine_wal_fsyncs": stats.fsyncs,
            "machine_wal_bytes_written": stats.bytes_written,
            "machine_wal_bytes": stats.total_size_bytes,
            "machine_wal_segments": stats.segment_count,
            "machine_wal_read_only": int(store.log_state is not LogState.WRITABLE),
            "machine_wal_damaged_entries": stats.damaged_entries,
            "machine_compactions": store.compactor.count,
            "machine_idempotency_keys": len(store.tables.keys),
            "machine_idempotency_bytes": store.tables.keys_bytes,
            "machine_idempotency_keys_forgotten": store.tables.keys_forgotten,
        }
    return [Sample(name, value) for name, value in values.items()]
