"""Metrics: the samples of one scrape.

`Scrape` reads the counters of the engine, the logs, the connections and the quotas and returns one
list of samples, with those of the state machines; `kafka.metrics` has those of the Kafka side,
`health` those of pressure and retention. `observe.metrics` turns the list into Prometheus text or
JSON.

A key with prefixes gets the samples of what it may name; numbers of the server as a whole are left
out for it. What a scrape costs is bounded: sums over topics come from `health.overview`, which
adds up so many topics a sample, and the lag of consumer groups is limited to a number of rows.

`metrics_listener` beside this module serves metrics and probes on a port of their own, so that a
scraper needs no way to the data. The same keys apply there. It is off unless that port is
configured.

Samples are read on the loop thread, as the owner of the state. Names, labels and help texts of all
metrics are in `observe.metrics`. Start reading at `Scrape`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from headwater.core.units import US_PER_S
from headwater.engine.engine import Engine
from headwater.engine.machines import operations as engine_operations
from headwater.engine.metrics import TOPICS_MAX, class_samples, engine_samples, topic_samples
from headwater.engine.metrics import machine_samples as engine_machine_samples
from headwater.observe.metrics import Sample, metrics_as_json, metrics_as_text
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.backend import Backend
from headwater.server.health.overview import Overview
from headwater.server.health.reports import damaged_records, ledgers_of, retention_samples
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import Route
from headwater.server.http.topic_handlers import answer
from headwater.server.kafka import metrics as kafka_metrics
from headwater.server.machines import operations

if TYPE_CHECKING:
    from headwater.server.kafka.listener import KafkaListener
    from headwater.server.rcpx.listener import RcpxListener


_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


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
            samples += _gateway_samples(overview)
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


def _gateway_samples(overview: Overview) -> list[Sample]:
    samples: list[Sample] = []
    for each in overview.gateways:
        label = (str(each.slot),)
        samples += [
            Sample("gateway_connections", each.connections, label),
            Sample("gateway_requests", each.requests, label),
            Sample("gateway_cpu_seconds", each.cpu_us / US_PER_S, label),
            Sample("gateway_starts", each.starts, label),
        ]
    return samples


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


def machine_samples(engine: Engine, key: ApiKey) -> list[Sample]:
    """As the owner. A key with prefixes gets the number of its own machines and instances."""
    if key.prefixes:
        store = engine.machines.store
        own = None if store is None else engine_operations.counts(store, operations.sees_of(key))
        return [
            Sample("machines", 0 if own is None else own.machines),
            Sample("machine_instances", 0 if own is None else own.instances),
        ]
    return engine_machine_samples(engine.machines.store)


def metrics(scrape: Scrape, exchange: Exchange) -> None:
    samples = scrape.collect(exchange.key)
    if b"application/json" in exchange.headers.get(b"accept", b""):
        answer(exchange, 200, {"metrics": metrics_as_json(samples)})
    else:
        exchange.answer(200, metrics_as_text(samples), {"content-type": _TEXT})


METRICS_ROUTES: Final = (
    Route("GET", "/v0/metrics", metrics, "Metrics", Scope.READ, served_by=Scrape),
    Route("GET", "/metrics", metrics, "Metrics", Scope.READ, served_by=Scrape),
)  # fmt: skip
