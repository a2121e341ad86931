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
from headwater.server.backend import Backend
from headwater.server.health.damage import damaged_records, ledgers_of
from headwater.server.health.overview import Overview
from headwater.server.health.pressure import pressure_samples
from headwater.server.health.retention import retention_samples
from headwater.server.health.status import COUNTERS
from headwater.server.kafka.metrics import kafka_samples
from headwater.server.metrics.machine_samples import machine_samples
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US

if TYPE_CHECKING:
    from headwater.server.kafka.listener import KafkaListener
    from headwater.server.rcpx.listener import RcpxListener

TOPICS_MAX: Final = 1_000
"""Per-topic gauges are given for so many topics."""


class Scrape:
    """Where the samples of one server come from."""

    def __init__(self, overview: Overview, kafka: KafkaListener, rcpx: RcpxListener | None) -> None:
        self._overview = overview
        self._backend = overview.backend
        self._kafka = kafka
        self._rcpx = rcpx

    def collect(self, key: ApiKey) -> list[Sample]:
        """What this key may know. One with prefixes gets those of its own topics, routers,
        machines and lags, and of the rest only whether the server is well: what others do is not
        its business."""
        overview, backend, kafka = self._overview, self._backend, self._kafka
        samples = [
            Sample("ready", int(backend.database is not None and not backend.draining)),
            Sample("recovery_progress", backend.recovery_progress),
            Sample("uptime_ms", overview.uptime_ms),
        ]
        if not key.prefixes:
            samples += [Sample(name, count) for name, count in overview.open.items()]
        if backend.database is not None:
            engine = backend.engine
            samples += _topic_samples(overview, engine, key)
            if not key.prefixes:
                samples += _engine_samples(engine)
                samples += _shard_samples(engine)
                samples += retention_samples(engine, overview.webhooks)
                samples += self._machine_clients()
            samples += machine_samples(engine, key)
        if kafka.endpoint is not None and kafka.store is not None:
            samples += kafka_samples(kafka.endpoint, kafka.store, key)
        return samples

    def _machine_clients(self) -> list[Sample]:
        rcpx, deliveries = self._rcpx, self._overview.webhooks.deliveries
        return [
            Sample("rcpx_connections", 0 if rcpx is None else len(rcpx.connections)),
            Sample("webhook_deliveries", sum(each.delivered for each in deliveries)),
            Sample("webhook_failures", sum(each.failures for each in deliveries)),
        ]


def _engine_samples(engine: Engine) -> list[Sample]:
    core = engine.core
    samples = [Sample("tail_bytes", core.tail_bytes), *pressure_samples(engine.pressure_control)]
    samples += [Sample(name, getattr(core.counters, name)) for name in COUNTERS]
    return samples


def _topic_samples(overview: Overview, engine: Engine, key: ApiKey) -> list[Sample]:
    core = engine.core
    topic_totals = overview.topic_totals(key)
    totals = topic_totals.sample(engine)
    samples = [
        Sample("topics", totals.topics),
        Sample("routers", totals.routers),
        Sample("queue_topics", totals.queues),
        Sample("queue_leases_in_flight", totals.jobs_in_flight),
        Sample("records_live", totals.records),
        Sample("bytes_live", totals.bytes),
        Sample("housekeeping_failing", int(overview.backend.maintenance_error is not None)),
    ]
    samples += [
        Sample("part_unavailable", int(part in core.parts.away), (part.value,)) for part in Part
    ]
    samples += _damage_samples(overview.backend, key)
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


def _damage_samples(backend: Backend, key: ApiKey) -> list[Sample]:
    """Of topics that have damage, and those that are listed anyway; Kafka's are partitions."""
    records = damaged_records(backend, key)
    named = (topic.name for topic in backend.engine.core.registry if key.may_name(topic.name))
    seen = sorted({*records, *itertools.islice(named, TOPICS_MAX)})
    samples = [Sample("damaged_records", records.total())]
    if not key.prefixes:
        damaged = sum(ledger.count for ledger in ledgers_of(backend))
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
