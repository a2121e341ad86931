"""The samples of one scrape, read at the moment of the request."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from headwater.config.topic import TopicType
from headwater.core.durability import Durability
from headwater.engine.engine import Engine
from headwater.engine.queues.claims import Queues
from headwater.engine.state.parts import Part
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey
from headwater.server.health.damage import damaged_records, ledgers_of
from headwater.server.health.pressure import pressure_samples
from headwater.server.health.retention import retention_samples
from headwater.server.health.status import COUNTERS
from headwater.server.kafka.metrics import kafka_samples
from headwater.server.metrics.machine_samples import machine_samples
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US

if TYPE_CHECKING:
    from headwater.server.app import App

TOPICS_MAX: Final = 1_000
"""Per-topic gauges are given for so many topics."""


def collect(app: App, key: ApiKey) -> list[Sample]:
    """What this key may know. One with prefixes gets those of its own topics, routers, machines and
    lags, and of the rest only whether the server is well: what others do is not its business."""
    samples = [
        Sample("ready", int(app.database is not None and not app.draining)),
        Sample("recovery_progress", app.recovery_progress),
        Sample("uptime_ms", (app.now_us() - app.started_us) // 1_000),
    ]
    if not key.prefixes:
        samples += [
            Sample("connections", len(app.connections)),
            Sample("sse_connections", app.sse_connections),
            Sample("watch_sessions", len(app.sessions)),
        ]
    if app.database is not None:
        engine = app.database.engine
        samples += _topic_samples(app, engine, key)
        if not key.prefixes:
            samples += _engine_samples(engine)
            samples += _shard_samples(engine)
            samples += retention_samples(app)
        samples += machine_samples(app, key)
    kafka = app.kafka
    if kafka is not None and kafka.endpoint is not None and kafka.store is not None:
        samples += kafka_samples(kafka.endpoint, kafka.store, key)
    return samples


def _engine_samples(engine: Engine) -> list[Sample]:
    core = engine.core
    samples = [Sample("tail_bytes", core.tail_bytes), *pressure_samples(engine.pressure_control)]
    samples += [Sample(name, getattr(core.counters, name)) for name in COUNTERS]
    return samples


def _topic_samples(app: App, engine: Engine, key: ApiKey) -> list[Sample]:
    core = engine.core
    topic_totals = app.topic_totals(key)
    totals = topic_totals.sample(engine)
    samples = [
        Sample("topics", totals.topics),
        Sample("routers", totals.routers),
        Sample("queue_topics", totals.queues),
        Sample("queue_leases_in_flight", totals.jobs_in_flight),
        Sample("records_live", totals.records),
        Sample("bytes_live", totals.bytes),
        Sample("housekeeping_failing", int(app.maintenance_error is not None)),
    ]
    samples += [
        Sample("part_unavailable", int(part in core.parts.away), (part.value,)) for part in Part
    ]
    samples += _damage_samples(app, key)
    samples += [
        Sample("topics_by_class", topic_totals.topics_of(durability), (durability.value,))
        for durability in Durability
    ]
    named = (topic for topic in core.registry if key.may_name(topic.name))
    for topic in itertools.islice(named, TOPICS_MAX):
        state = engine.state(topic)
        label = (topic.name,)
        samples += [
            Sample("topic_head_seq", state.head_seq, label),
            Sample("topic_earliest_seq", state.earliest_seq, label),
            Sample("topic_records_live", state.count, label),
            Sample("topic_bytes_live", state.bytes, label),
        ]
        if topic.log.settings.type is TopicType.QUEUE:
            stats = Queues(engine).glance(topic)
            samples += [
                Sample("topic_queue_ready", stats.ready, label),
                Sample("topic_queue_in_flight", stats.in_flight, label),
                Sample("topic_queue_delayed", stats.delayed, label),
                Sample("topic_queue_dead_lettered", stats.dead_lettered, label),
                Sample("topic_queue_blocked", stats.blocked, label),
            ]
    seen = (router for router in core.routers if key.may_name(router.name))
    for router in itertools.islice(seen, TOPICS_MAX):
        samples += [
            Sample("router_lag", router.lag, (router.name,)),
            Sample("router_held", int(router.cursor.held), (router.name,)),
        ]
    return samples


def _damage_samples(app: App, key: ApiKey) -> list[Sample]:
    """Of topics that have damage, and those that are listed anyway; Kafka's are partitions."""
    records = damaged_records(app, key)
    named = (topic.name for topic in app.engine.core.registry if key.may_name(topic.name))
    seen = sorted({*records, *itertools.islice(named, TOPICS_MAX)})
    samples = [Sample("damaged_records", records.total())]
    if not key.prefixes:
        damaged = sum(ledger.count for ledger in ledgers_of(app))
        samples.append(Sample("damaged_places", damaged))
    samples += [Sample("topic_damaged_records", records[name], (name,)) for name in seen]
    return samples


def _shard_samples(engine: Engine) -> list[Sample]:
    samples = []
    assert engine.core.wal is not None
    for index, shard in enumerate(engine.core.wal.shards):
        label = (f"{index:02d}",)
        counters = shard.counters
        samples += [
            Sample("wal_frames", counters.frames, label),
            Sample("wal_batches", counters.groups, label),
            Sample("wal_fsyncs", counters.syncs, label),
            Sample("wal_bytes_written", counters.bytes_written, label),
            Sample("wal_rotations", counters.rotations, label),
            Sample("wal_submit_full", counters.submit_full, label),
            Sample("wal_queue_depth", shard.queue_depth, label),
            Sample("wal_queue_depth_peak", counters.queue_depth_peak, label),
            Sample("wal_read_only", counters.read_only, label),
        ]
        bounds = [str(bound / 1_000_000) for bound in SYNC_LATENCY_BOUNDS_US] + ["+Inf"]
        sums = list(itertools.accumulate(counters.sync_us_buckets))
        buckets = list(zip(bounds, sums, strict=True))
        value = (buckets, counters.sync_us_total / 1_000_000)
        samples.append(Sample("wal_fsync_latency_seconds", value, label))
    return samples
