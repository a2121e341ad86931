"""How the server reports damage in readiness, status and metrics; `watches` has its log lines.

Readers get a tombstone or an error. This is for operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

from headwater.engine.state.damage import DamageLedger
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.backend import Backend
from headwater.wire.status_answers import DamageSeen, PlaceSeen

ENTRIES_LISTED_MAX: Final = 100
"""In one answer; the log has more."""


def ledgers_of(backend: Backend) -> Iterator[DamageLedger]:
    yield backend.engine.core.damage
    if backend.kafka_store is not None:
        yield backend.kafka_store.core.damage


def parts_seen(backend: Backend, key: ApiKey) -> dict[str, list[dict[str, Any]]]:
    """Which parts of the directory are away, and what the last start repaired in the others."""
    parts, is_admin = backend.engine.core.parts, _is_admin(key)

    def shown(detail: dict[str, Any], field: str) -> dict[str, Any]:
        path = detail[field]
        return detail if is_admin or path is None else detail | {field: PurePath(path).name}

    return {
        "unavailable": [shown(each, "file") for each in parts.details()],
        "mended": [shown(each, "path") for each in parts.repairs()],
    }


def _is_admin(key: ApiKey) -> bool:
    return Scope.ADMIN in key.scopes and not key.prefixes


def damage_seen(backend: Backend, key: ApiKey) -> DamageSeen:
    """What this key may know: damage in topics that it may name. The path shows where the server
    keeps its data, so it is for an admin; any other key gets the file's name."""
    entries = [
        entry
        for ledger in ledgers_of(backend)
        for entry in list(ledger.ranges)
        if not entry.repaired and _may_see(key, entry.topic, entry.organisation)
    ]
    is_admin = _is_admin(key)
    return DamageSeen(
        damaged_records(backend, key).total(),
        [
            PlaceSeen(
                entry.topic,
                entry.path if is_admin else entry.file,
                entry.offset,
                entry.first_seq,
                entry.last_seq,
                entry.reason,
            )
            for entry in entries[:ENTRIES_LISTED_MAX]
        ],
        max(len(entries) - ENTRIES_LISTED_MAX, 0),
    )


def damaged_records(backend: Backend, key: ApiKey) -> Counter[str]:
    """Records that were met and cannot be read, by topic, of those that the key may name."""
    records: Counter[str] = Counter()
    for ledger in ledgers_of(backend):
        for (topic, organisation), count in ledger.records.items():
            if _may_see(key, topic, organisation):
                records[topic] += count
    return records


def _may_see(key: ApiKey, topic: str, organisation: int | None) -> bool:
    return key.may_name(topic) and organisation in (None, key.organisation)
