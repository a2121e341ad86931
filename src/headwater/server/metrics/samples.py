"""The samples of one scrape, read at the moment of the request."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from headwater.engine.engine import Engine
from headwater.engine.metrics import TOPICS_MAX, class_samples, engine_samples, topic_samples
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey
from headwater.server.backend import Backend
from headwater.server.health.damage import damaged_records, ledgers_of
from headwater.server.health.overview import Overview
from headwater.server.health.retention import retention_samples
from headwater.server.kafka import metrics as kafka_metrics
from headwater.server.metrics.machine_samples import machine_samples

if TYPE_CHECKING:
    from headwater.server.kafka.listener import KafkaListener
    from headwater.server.rcpx.listener import RcpxListener


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
                samples += engine_samples(engine)
                samples += retention_samples(engine, overview.webhooks)
                samples += self._machine_clients()
            samples += machine_samples(engine, key)
        if kafka.endpoint is not None and kafka.store is not None:
            samples += kafka_metrics.kafka_samples(kafka.endpoint, kafka.store, key)
        return samples

    def _machine_clients(self) -> list[Sample]:
        rcpx, deliveries = self._rcpx, self._overview.webhooks.deliveries
        return [
            Sample("rcpx_connections", 0 if rcpx is None else rcpx.open_connections),
            Sample("webhook_deliveries", sum(each.delivered for each in deliveries)),
            Sample("webhook_failures", sum(each.failures for each in deliveries)),
        ]


def _topic_samples(overview: Overview, engine: Engine, key: ApiKey) -> list[Sample]:
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
    samples += class_samples(topic_totals.topics_of)
    samples += topic_samples(engine, key.may_name)
    return samples + _damage_samples(overview.backend, key)


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
