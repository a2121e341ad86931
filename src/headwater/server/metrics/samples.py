"""The samples of one scrape, read at the moment of the request."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from headwater.engine.engine import Engine
from headwater.engine.metrics import TOPICS_MAX, class_samples, engine_samples, topic_samples
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey
from headwater.server.health.damage import damaged_records, ledgers_of
from headwater.server.health.retention import retention_samples
from headwater.server.kafka.metrics import kafka_samples
from headwater.server.metrics.machine_samples import machine_samples

if TYPE_CHECKING:
    from headwater.server.app import App


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
            samples += engine_samples(engine)
            samples += retention_samples(app)
        samples += machine_samples(app, key)
    kafka = app.kafka
    if kafka is not None and kafka.endpoint is not None and kafka.store is not None:
        samples += kafka_samples(kafka.endpoint, kafka.store, key)
    return samples


def _topic_samples(app: App, engine: Engine, key: ApiKey) -> list[Sample]:
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
    samples += class_samples(topic_totals.topics_of)
    samples += topic_samples(engine, key.may_name)
    return samples + _damage_samples(app, key)


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
