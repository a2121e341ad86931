"""GET /v0/status: the server at a glance, for the dashboard and for other clients."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any, Final

from headwater.core.units import US_PER_MS
from headwater.core.version import __version__
from headwater.engine.metrics import COUNTERS
from headwater.engine.pressure import PressureControl
from headwater.model.pressure import Rung
from headwater.server.gateway_slots import GatewayFigures
from headwater.server.health.overview import Overview
from headwater.server.health.reports import damage_seen, gaps_seen, holds_seen, parts_seen
from headwater.server.health.watches import rung_meaning, shards_of, state_of
from headwater.server.http.exchange import Exchange
from headwater.server.http.topic_handlers import answer
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US, WalCounters
from headwater.wal.shard import Shard
from headwater.wire.status_answers import (
    GatewaySeen,
    PressureSeen,
    RungSeen,
    ShardSeen,
    SyncBucket,
    SyncLatency,
)


def status(overview: Overview, exchange: Exchange) -> None:
    backend, key = overview.backend, exchange.key
    engine = backend.engine
    body: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "state": state_of(backend),
        "now_ms": engine.core.clock.wall_ms(),
        "uptime_ms": overview.uptime_ms,
        "totals": overview.topic_totals(key).sample(engine),
        "own_part": bool(key.prefixes),
        **(_NOTHING if key.prefixes else _whole(overview)),
        **parts_seen(backend, key),
        "damage": damage_seen(backend, key),
    }
    answer(exchange, 200, body)


def _whole(overview: Overview) -> dict[str, Any]:
    """What is only known of the server as a whole."""
    engine = overview.backend.engine
    core = engine.core
    return {
        **overview.open,
        "gateways": [_gateway(each) for each in overview.gateways],
        "tail_bytes": core.tail_bytes,
        "counters": {name: getattr(core.counters, name) for name in COUNTERS},
        "pressure": _pressure(engine.pressure_control),
        "shards": [_shard(*each) for each in shards_of(overview.backend)],
        "retention_holds": holds_seen(engine),
        "gaps": gaps_seen(engine, overview.webhooks),
    }


_NOTHING: Final[dict[str, Any]] = {
    "connections": 0,
    "sse_connections": 0,
    "watch_sessions": 0,
    "gateways": [],
    "tail_bytes": 0,
    "counters": dict.fromkeys(COUNTERS, 0),
    "pressure": PressureSeen(0.0, {}, [], 0, 0, 0.0),
    "shards": [],
    "retention_holds": [],
    "gaps": [],
}
"""The same for a key with prefixes: the numbers would show what others do."""


def _gateway(figures: GatewayFigures) -> GatewaySeen:
    return GatewaySeen(
        gateway=figures.slot,
        pid=figures.pid,
        connections=figures.connections,
        http_connections=figures.http_connections,
        requests=figures.requests,
        starts=figures.starts,
        cpu_ms=figures.cpu_us // US_PER_MS,
    )


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
