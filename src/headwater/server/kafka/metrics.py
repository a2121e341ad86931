"""Samples of the Kafka side, read at the moment of the request."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey as Key
from headwater.server.kafka.listing import may_see, offsets_of
from headwater.wal.committer import LogState
from headwater.wire.kafka.apis import ApiKey

if TYPE_CHECKING:
    from headwater.engine.kafka.store import KafkaStore
    from headwater.server.kafka.endpoint import KafkaEndpoint

LAGS_MAX: Final = 1_000
"""Lags are given for so many pairs of group and topic."""


def kafka_samples(endpoint: KafkaEndpoint, store: KafkaStore, key: Key) -> list[Sample]:
    """Names only of the key's own organisation, and with its prefixes."""
    lags = list(itertools.islice(_lags(endpoint, key), LAGS_MAX))
    if key.prefixes:
        return lags
    counters = endpoint.counters
    samples = [
        Sample("kafka_connections", len(endpoint.connections)),
        Sample("kafka_bytes_in", counters.bytes_in),
        Sample("kafka_bytes_out", counters.bytes_out),
        Sample("kafka_batches_produced", counters.batches_in),
        Sample("kafka_records_produced", counters.records_in),
        Sample("kafka_records_fetched", counters.records_out),
        Sample("kafka_hang_ups", counters.hang_ups),
        Sample("kafka_produces_dropped", counters.produces_dropped),
        Sample("kafka_sign_ins_refused", counters.sign_ins_refused),
        Sample("kafka_group_members", endpoint.coordinator.members),
        Sample("kafka_topics", len(store.core.registry)),
        Sample("kafka_damaged_batches", store.counters.damaged_batches),
        Sample("kafka_wal_read_only", int(store.state is not LogState.WRITABLE)),
    ]
    samples += [
        Sample("kafka_requests", count, (api.name.lower(),))
        for api in ApiKey
        if (count := counters.requests[api])
    ]
    return samples + lags


def _lags(endpoint: KafkaEndpoint, key: Key) -> Iterator[Sample]:
    for group in endpoint.coordinator.groups(key.organisation):
        by_topic: dict[str, int] = {}
        for topic, _, _, lag in offsets_of(endpoint, key.organisation, group.name):
            by_topic[topic] = by_topic.get(topic, 0) + lag
        for topic, lag in by_topic.items():
            if may_see(key, topic):
                yield Sample("kafka_group_lag", lag, (group.name, topic))
