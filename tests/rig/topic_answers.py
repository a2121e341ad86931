"""Everything an engine answers about its topics, to be held against what another one answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headwater.core.errors import StorageError
from headwater.engine.database import Database

Event = tuple[Any, ...]

CLAIM_MAX = 3
KEY = "told-once"
REPEATED = {"data": "again"}


@dataclass
class Answers:
    """By topic or router. A topic that is refused is only in `refused`."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    """What a reader from 0 meets: records, and ("tombstone", first, last, reason)."""
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    """What changes with each record that cannot be read: numbers, queues, a claim."""
    routers: dict[str, Any] = field(default_factory=dict)
    repeats: dict[str, Any] = field(default_factory=dict)
    """Seqs that a write sent again under its key is answered with."""
    refused: dict[str, str] = field(default_factory=dict)
    topics: list[str] = field(default_factory=list)

    def of(self, name: str) -> tuple[Any, ...]:
        parts = (self.events, self.states, self.counts, self.repeats, self.refused)
        return tuple(part.get(name) for part in parts)


def ask_everything(db: Database) -> Answers:
    """Reads come first: what they meet may change what is counted. Nothing here raises for one
    topic that is refused, as long as the refusal says where."""
    found = Answers()
    found.topics = sorted(topic.name for topic in db.engine.core.registry)
    for name in found.topics:
        _or_refused(found, name, partial(_read, db, found, name))
    for router in db.routers():
        found.routers[router.router] = router
    for name in found.topics:
        if name not in found.refused:
            _or_refused(found, name, partial(_count, db, found, name))
    return found


def _or_refused(found: Answers, name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except StorageError as error:
        if error.path is None:
            raise AssertionError(f"{name}: refused without a place: {error}") from error
        for part in (found.events, found.states, found.counts, found.repeats):
            part.pop(name, None)
        found.refused[name] = str(error)


def _read(db: Database, found: Answers, name: str) -> None:
    events: list[Event] = []
    cursor = 0
    for _ in range(1_000):
        diff = db.diff(name, cursor, limit=5)
        if diff.tombstone is not None:
            gone = diff.tombstone
            events.append(("tombstone", gone.gap_from, gone.gap_to, gone.reason))
        events += [(r.seq, r.ts, r.data, r.tag, r.node, r.meta) for r in diff.records]
        assert diff.next_from_seq > cursor or diff.caught_up, f"{name}: the cursor stands still"
        cursor = diff.next_from_seq
        if diff.caught_up:
            found.events[name] = events
            return
    raise AssertionError(f"{name}: a reader that never catches up")


def _count(db: Database, found: Answers, name: str) -> None:
    state = db.state(name)
    found.states[name] = {
        "type": state.type,
        "head_seq": state.head_seq,
        "evict_floor": state.evict_floor,
        "epoch": state.epoch,
        "config": state.config,
    }
    counts: list[Any] = [state.earliest_seq, state.count, state.bytes]
    if state.type == "queue":
        counts.append(db.queue_stats(name))
        claimed = db.claim(name, "worker", CLAIM_MAX)
        counts.append(
            [(job.record.seq, job.record.data, job.deliveries) for job in claimed.jobs],
        )
    found.counts[name] = counts
    if db.engine.topic(name).keys.lookup(KEY.encode(), db.engine.core.clock.wall_ms()):
        again = db.append(name, REPEATED, idempotency_key=KEY)
        found.repeats[name] = (again.first_seq, again.last_seq, again.deduped)
