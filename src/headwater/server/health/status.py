"""GET /v0/status: the server at a glance, for the dashboard and for other clients.

What it costs does not grow with the number of topics: sums over them are added up a part at a
time, so that a page which asks every second delays no other request.
"""

from __future__ import annotations

import itertools
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.core.durability import Durability
from headwater.core.units import US_PER_MS
from headwater.core.version import __version__
from headwater.engine.engine import Engine
from headwater.engine.metrics import COUNTERS, add_topic, class_sum
from headwater.engine.pressure import PressureControl
from headwater.model.pressure import Rung
from headwater.server.access.keys import ANYONE, ApiKey
from headwater.server.health.damage import damage_seen, parts_seen
from headwater.server.health.log_states import shards_of, state_of
from headwater.server.health.pressure import rung_meaning
from headwater.server.health.retention import gaps_seen, holds_seen
from headwater.server.http.exchange import Exchange
from headwater.server.http.topic_handlers import answer
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US, WalCounters
from headwater.wal.shard import Shard
from headwater.wire.status_answers import (
    PressureSeen,
    RungSeen,
    ShardSeen,
    SyncBucket,
    SyncLatency,
    Totals,
)

if TYPE_CHECKING:
    from headwater.server.app import App

TOPICS_PER_SAMPLE: Final = 2_000
"""One answer adds up so many topics; with more of them, a sum takes several answers."""


def status(app: App, exchange: Exchange) -> None:
    engine, key = app.engine, app.key_of(exchange)
    body: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "state": state_of(app),
        "now_ms": app.clock.wall_ms(),
        "uptime_ms": (app.now_us() - app.started_us) // US_PER_MS,
        "totals": app.topic_totals(key).sample(engine),
        "own_part": bool(key.prefixes),
        **(_NOTHING if key.prefixes else _whole(app)),
        **parts_seen(app, key),
        "damage": damage_seen(app, key),
    }
    answer(exchange, 200, body)


def _whole(app: App) -> dict[str, Any]:
    """What is only known of the server as a whole."""
    core = app.engine.core
    return {
        "connections": len(app.connections),
        "sse_connections": app.sse_connections,
        "watch_sessions": len(app.sessions),
        "tail_bytes": core.tail_bytes,
        "counters": {name: getattr(core.counters, name) for name in COUNTERS},
        "pressure": _pressure(app.engine.pressure_control),
        "shards": [_shard(*each) for each in shards_of(app)],
        "retention_holds": holds_seen(app),
        "gaps": gaps_seen(app),
    }


_NOTHING: Final[dict[str, Any]] = {
    "connections": 0,
    "sse_connections": 0,
    "watch_sessions": 0,
    "tail_bytes": 0,
    "counters": dict.fromkeys(COUNTERS, 0),
    "pressure": PressureSeen(0.0, {}, [], 0, 0, 0.0),
    "shards": [],
    "retention_holds": [],
    "gaps": [],
}
"""The same for a key with prefixes: the numbers would show what others do."""


class TopicTotals:
    """Sums over all topics that a key may name. Up to `TOPICS_PER_SAMPLE` topics they are exact;
    with more of them, each sample adds up some, and the answer is the last completed round.
    """

    def __init__(self, key: ApiKey = ANYONE) -> None:
        self._key = key
        self._names: Iterator[str] | None = None
        self._sums: Counter[str] = Counter()
        self._seen = 0
        self._whole: Counter[str] | None = None

    def sample(self, engine: Engine) -> Totals:
        registry = engine.core.registry
        if self._names is None or len(registry) <= TOPICS_PER_SAMPLE:
            self._names = iter([topic.name for topic in registry])
            self._sums, self._seen = Counter(), 0
        for name in itertools.islice(self._names, TOPICS_PER_SAMPLE):
            topic = registry.find(name) if self._key.may_name(name) else None
            if topic is not None:  # dropped since the round began
                add_topic(engine, topic, self._sums)
        self._seen += TOPICS_PER_SAMPLE
        if self._seen >= len(registry):
            self._whole, self._names = self._sums, None
        return self._totals(engine, self._sums if self._whole is None else self._whole)

    def topics_of(self, durability: Durability) -> int:
        """How many topics of a class there were at the last sample."""
        sums = self._sums if self._whole is None else self._whole
        return sums[class_sum(durability)]

    def _totals(self, engine: Engine, sums: Counter[str]) -> Totals:
        core, key = engine.core, self._key
        fixed = {"topics": len(core.registry), "routers": len(core.routers)}
        if key.prefixes:
            own = sum(key.may_name(router.name) for router in core.routers)
            fixed = {"topics": sums["topics"], "routers": own}
        names = (field.name for field in msgspec.structs.fields(Totals) if field.name not in fixed)
        return Totals(**fixed, **{name: sums[name] for name in names})


def _pressure(pressure_control: PressureControl) -> PressureSeen:
    governor = pressure_control.governor
    return PressureSeen(
        pressure=round(governor.pressure, 3),
        signals={name: round(part, 3) for name, part in governor.parts.items()},
        rungs=[
            RungSeen(
                rung.value,
                rung in governor.rungs,
                pressure_control.transitions[rung, True],
                rung_meaning(rung),
            )
            for rung in Rung
        ],
        writes_refused=pressure_control.writes_refused,
        ready_topics=pressure_control.ready_topics,
        scheduling_latency_ms=round(governor.latency_us / US_PER_MS, 3),
    )


def _shard(log: str, number: int, shard: Shard) -> ShardSeen:
    counters = shard.counters
    buckets = list(counters.sync_us_buckets)
    ends = [bound / US_PER_MS for bound in SYNC_LATENCY_BOUNDS_US]
    return ShardSeen(
        log=log,
        shard=number,
        state=shard.state.value,
        frames=counters.frames,
        groups=counters.groups,
        bytes_written=counters.bytes_written,
        rotations=counters.rotations,
        queue_depth=shard.queue_depth,
        queue_depth_peak=counters.queue_depth_peak,
        submit_full=counters.submit_full,
        fsync=_latency(counters, buckets),
        fsync_buckets=[
            SyncBucket(upto, count) for upto, count in zip([*ends, None], buckets, strict=True)
        ],
    )


def _latency(counters: WalCounters, buckets: Sequence[int]) -> SyncLatency:
    count = sum(buckets)
    p50, p90, p99 = (round(percentile_us(buckets, share) / US_PER_MS, 3) for share in _SHARES)
    return SyncLatency(
        count=count,
        mean_ms=round(counters.sync_us_total / max(count, 1) / US_PER_MS, 3),
        last_ms=round(counters.sync_us_last / US_PER_MS, 3),
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
    )


_SHARES: Final = (0.5, 0.9, 0.99)


def percentile_us(buckets: Sequence[int], share: float) -> float:
    """Where in the histogram so large a share lies below, evenly spread within a bucket. What is
    beyond the last bound counts as that bound: nothing more is known."""
    wanted = sum(buckets) * share
    low = seen = 0
    for count, high in zip(
        buckets, (*SYNC_LATENCY_BOUNDS_US, SYNC_LATENCY_BOUNDS_US[-1]), strict=True
    ):
        if count and seen + count >= wanted:
            return low + (high - low) * (wanted - seen) / count
        seen += count
        low = high
    return 0.0
