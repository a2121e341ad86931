"""Who needs old log, the gaps that consumers got, and the records that cannot be read: for status,
metrics and readiness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

from headwater.engine.engine import Engine
from headwater.engine.state.damage import DamageLedger
from headwater.model.retention import HoldOwner, RetentionHold
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.backend import Backend
from headwater.server.machines.webhooks import Webhooks
from headwater.wire.status_answers import DamageSeen, GapSeen, HoldSeen, PlaceSeen

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


def holds_of(engine: Engine) -> list[RetentionHold]:
    store = engine.machines.store
    return [] if store is None else store.retention_holds()


def holds_seen(engine: Engine) -> list[HoldSeen]:
    now_ms = engine.core.clock.wall_ms()
    return [
        HoldSeen(
            owner=hold.owner.value,
            name=hold.label,
            log=hold.log,
            position=None if hold.position is None else str(hold.position),
            behind_bytes=hold.behind_bytes,
            held_bytes=hold.held_bytes,
            age_ms=max(0, now_ms - hold.since_ms),
            still_ms=max(0, now_ms - hold.moved_ms),
            durable=hold.durable,
            gives_way=hold.gives_way,
        )
        for hold in holds_of(engine)
    ]


def gaps_seen(engine: Engine, webhooks: Webhooks) -> list[GapSeen]:
    """Since the start: consumers that got a gap in place of what they should have had."""
    return list(_gaps(engine, webhooks))


def gaps_in_brief(engine: Engine, webhooks: Webhooks) -> list[dict[str, object]]:
    """For readiness, which needs no key: without the names of receivers."""
    return [
        {"owner": gap.owner, "gaps": gap.gaps, "reason": gap.reason,
         "first_offset": gap.first_offset, "last_offset": gap.last_offset}
        for gap in _gaps(engine, webhooks)
    ]  # fmt: skip


def _gaps(engine: Engine, webhooks: Webhooks) -> Iterator[GapSeen]:
    feeder = engine.machines.feeder
    if feeder is not None and feeder.last_gap is not None:
        last = feeder.last_gap
        yield GapSeen(
            owner=HoldOwner.TRANSITIONS_TOPIC.value,
            name=feeder.topic,
            gaps=feeder.gaps,
            first_offset=str(last.offset),
            last_offset=str(last.resume - 1),
            reason=last.reason.value,
        )
    for delivery in webhooks.deliveries:
        if delivery.last_gap is not None:
            first, until, reason = delivery.last_gap
            yield GapSeen(
                owner=HoldOwner.WEBHOOK.value,
                name=delivery.webhook.label,
                gaps=delivery.gaps,
                first_offset=str(first),
                last_offset=str(until),
                reason=reason.value,
            )


def retention_samples(engine: Engine, webhooks: Webhooks) -> list[Sample]:
    """One of each for every kind of owner, the one that is furthest behind."""
    now_ms = engine.core.clock.wall_ms()
    holds = holds_of(engine)
    samples: list[Sample] = []
    for owner in HoldOwner:
        label = (owner.value,)
        own = [hold for hold in holds if hold.owner is owner]
        keeping = [hold for hold in own if hold.held_bytes and not hold.gives_way]
        still_ms = max((now_ms - hold.moved_ms for hold in keeping), default=0)
        samples += [
            Sample("retention_holds", len(own), label),
            Sample("retention_held_bytes", max((h.held_bytes for h in keeping), default=0), label),
            Sample("retention_hold_age_seconds", max(0, still_ms) / 1_000, label),
        ]
    feeder = engine.machines.feeder
    deliveries = webhooks.deliveries
    samples += [
        Sample("machine_transition_gaps", 0 if feeder is None else feeder.gaps),
        Sample("webhook_gaps", sum(each.gaps for each in deliveries)),
    ]
    return samples
