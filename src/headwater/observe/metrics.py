"""Every metric, declared once: its name, kind and meaning. Only module that imports the library,
and only when metrics are requested: it brings an HTTP server of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX: Final = "headwater_"


class MetricKind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: Final[dict[str, MetricDefinition]] = {
    "topics": MetricDefinition(MetricKind.GAUGE, "topics"),
    "topics_by_class": MetricDefinition(
        MetricKind.GAUGE, "topics of a durability class", ("durability",)
    ),
    "routers": MetricDefinition(MetricKind.GAUGE, "routers"),
    "records_live": MetricDefinition(MetricKind.GAUGE, "records that can be read"),
    "bytes_live": MetricDefinition(MetricKind.GAUGE, "payload bytes of those records"),
    "queue_topics": MetricDefinition(MetricKind.GAUGE, "topics that are queues"),
    "queue_leases_in_flight": MetricDefinition(MetricKind.GAUGE, "jobs that are leased"),
    "sse_connections": MetricDefinition(MetricKind.GAUGE, "open streams"),
    "watch_sessions": MetricDefinition(MetricKind.GAUGE, "watch sessions"),
    "connections": MetricDefinition(MetricKind.GAUGE, "open connections"),
    "ready": MetricDefinition(MetricKind.GAUGE, "1 when requests are served"),
    "part_unavailable": MetricDefinition(
        MetricKind.GAUGE, "1 while a part of the data directory could not be opened", ("part",)
    ),
    "recovery_progress": MetricDefinition(MetricKind.GAUGE, "0 to 1 while recovering"),
    "uptime_ms": MetricDefinition(MetricKind.GAUGE, "milliseconds since the start"),
    "pressure": MetricDefinition(MetricKind.GAUGE, "0 to 1, how hard the server is pressed"),
    "pressure_signal": MetricDefinition(
        MetricKind.GAUGE, "what one signal alone makes of it", ("signal",)
    ),
    "pressure_rung": MetricDefinition(MetricKind.GAUGE, "1 while this rung is in force", ("rung",)),
    "pressure_transitions": MetricDefinition(
        MetricKind.COUNTER, "times a rung was entered or left", ("rung", "change")
    ),
    "ready_topics": MetricDefinition(MetricKind.GAUGE, "topics with something to deliver"),
    "scheduling_latency_seconds": MetricDefinition(
        MetricKind.GAUGE, "how late turns come, smoothed"
    ),
    "writes_refused": MetricDefinition(MetricKind.COUNTER, "writes refused for pressure"),
    "tail_bytes": MetricDefinition(
        MetricKind.GAUGE, "bytes that are in the log but not yet in segments"
    ),
    "topic_head_seq": MetricDefinition(MetricKind.GAUGE, "last seq of a topic", ("topic",)),
    "topic_earliest_seq": MetricDefinition(
        MetricKind.GAUGE, "first live seq of a topic", ("topic",)
    ),
    "topic_records_live": MetricDefinition(MetricKind.GAUGE, "live records of a topic", ("topic",)),
    "topic_bytes_live": MetricDefinition(
        MetricKind.GAUGE, "live payload bytes of a topic", ("topic",)
    ),
    "topic_queue_ready": MetricDefinition(MetricKind.GAUGE, "jobs that can be claimed", ("topic",)),
    "topic_queue_in_flight": MetricDefinition(MetricKind.GAUGE, "jobs that are leased", ("topic",)),
    "topic_queue_delayed": MetricDefinition(
        MetricKind.GAUGE, "jobs that wait for their time", ("topic",)
    ),
    "topic_queue_dead_lettered": MetricDefinition(
        MetricKind.GAUGE, "jobs that were moved to the dead letter topic", ("topic",)
    ),
    "topic_damaged_records": MetricDefinition(
        MetricKind.GAUGE, "records of a topic that were met and cannot be read", ("topic",)
    ),
    "topic_queue_blocked": MetricDefinition(
        MetricKind.GAUGE, "jobs out of deliveries whose dead letter topic refuses them", ("topic",)
    ),
    "wal_frames": MetricDefinition(MetricKind.COUNTER, "frames written to the log", ("shard",)),
    "wal_batches": MetricDefinition(MetricKind.COUNTER, "groups written to the log", ("shard",)),
    "wal_fsyncs": MetricDefinition(MetricKind.COUNTER, "syncs of the log", ("shard",)),
    "wal_bytes_written": MetricDefinition(
        MetricKind.COUNTER, "bytes written to the log", ("shard",)
    ),
    "wal_rotations": MetricDefinition(MetricKind.COUNTER, "log files that were filled", ("shard",)),
    "wal_submit_full": MetricDefinition(
        MetricKind.COUNTER, "writes refused for a full queue", ("shard",)
    ),
    "wal_queue_depth": MetricDefinition(MetricKind.GAUGE, "writes waiting for the log", ("shard",)),
    "wal_queue_depth_peak": MetricDefinition(
        MetricKind.GAUGE, "most writes that ever waited", ("shard",)
    ),
    "wal_read_only": MetricDefinition(MetricKind.GAUGE, "1 while full or poisoned", ("shard",)),
    "wal_fsync_latency_seconds": MetricDefinition(
        MetricKind.HISTOGRAM, "time of one sync", ("shard",)
    ),
    "long_waits": MetricDefinition(
        MetricKind.COUNTER, "times that writes waited long, by what for", ("cause",)
    ),
    "long_wait_seconds": MetricDefinition(
        MetricKind.HISTOGRAM, "how long they did; shorter waits are not in here", ("cause",)
    ),
    "kafka_connections": MetricDefinition(MetricKind.GAUGE, "open connections of Kafka clients"),
    "kafka_requests": MetricDefinition(MetricKind.COUNTER, "requests of Kafka clients", ("api",)),
    "kafka_bytes_in": MetricDefinition(MetricKind.COUNTER, "bytes from Kafka clients"),
    "kafka_bytes_out": MetricDefinition(MetricKind.COUNTER, "bytes to Kafka clients"),
    "kafka_batches_produced": MetricDefinition(
        MetricKind.COUNTER, "record batches that were produced and stored"
    ),
    "kafka_records_produced": MetricDefinition(MetricKind.COUNTER, "records in them"),
    "kafka_records_fetched": MetricDefinition(MetricKind.COUNTER, "records that were fetched"),
    "kafka_hang_ups": MetricDefinition(
        MetricKind.COUNTER, "Kafka connections that the server closed"
    ),
    "kafka_produces_dropped": MetricDefinition(
        MetricKind.COUNTER, "produces with acks=0 of which something was not stored"
    ),
    "kafka_sign_ins_refused": MetricDefinition(MetricKind.COUNTER, "wrong names or passwords"),
    "kafka_group_members": MetricDefinition(MetricKind.GAUGE, "members of consumer groups"),
    "kafka_group_lag": MetricDefinition(
        MetricKind.GAUGE, "records a group has not committed", ("group", "topic")
    ),
    "kafka_topics": MetricDefinition(MetricKind.GAUGE, "Kafka topics"),
    "kafka_damaged_batches": MetricDefinition(MetricKind.COUNTER, "damaged batches met by readers"),
    "kafka_wal_read_only": MetricDefinition(
        MetricKind.GAUGE, "1 while Kafka's log is full or poisoned"
    ),
    "machines": MetricDefinition(MetricKind.GAUGE, "state machines"),
    "machine_instances": MetricDefinition(MetricKind.GAUGE, "instances of state machines"),
    "machine_watchers": MetricDefinition(MetricKind.GAUGE, "watchers of their transitions"),
    "machine_wal_entries": MetricDefinition(MetricKind.COUNTER, "entries of the machines' log"),
    "machine_wal_fsyncs": MetricDefinition(MetricKind.COUNTER, "syncs of the machines' log"),
    "machine_wal_bytes_written": MetricDefinition(
        MetricKind.COUNTER, "bytes written to the machines' log"
    ),
    "machine_wal_bytes": MetricDefinition(MetricKind.GAUGE, "length of the machines' log"),
    "machine_wal_segments": MetricDefinition(MetricKind.GAUGE, "files of the machines' log"),
    "machine_wal_read_only": MetricDefinition(
        MetricKind.GAUGE, "1 while that log is full or poisoned"
    ),
    "machine_wal_damaged_entries": MetricDefinition(
        MetricKind.GAUGE, "entries passed over at the start"
    ),
    "machine_compactions": MetricDefinition(MetricKind.COUNTER, "compactions of the machines' log"),
    "machine_idempotency_keys": MetricDefinition(
        MetricKind.GAUGE, "keys of requests that are remembered"
    ),
    "machine_idempotency_bytes": MetricDefinition(MetricKind.GAUGE, "memory they take"),
    "machine_idempotency_keys_forgotten": MetricDefinition(
        MetricKind.COUNTER, "forgotten before their time, to stay within the bound"
    ),
    "gateway_connections": MetricDefinition(
        MetricKind.GAUGE, "open connections of a gateway, of all protocols", ("gateway",)
    ),
    "gateway_requests": MetricDefinition(
        MetricKind.COUNTER, "requests that a gateway passed on one by one", ("gateway",)
    ),
    "gateway_cpu_seconds": MetricDefinition(
        MetricKind.COUNTER, "CPU time of a gateway's process", ("gateway",)
    ),
    "gateway_starts": MetricDefinition(
        MetricKind.COUNTER, "how often a gateway was started", ("gateway",)
    ),
    "rcpx_connections": MetricDefinition(MetricKind.GAUGE, "open RCPX connections"),
    "machine_transition_gaps": MetricDefinition(
        MetricKind.COUNTER,
        "gaps written to the topic of transitions: the log could not be read there",
    ),
    "webhook_gaps": MetricDefinition(MetricKind.COUNTER, "gaps sent to webhooks"),
    "retention_holds": MetricDefinition(MetricKind.GAUGE, "readers that hold old log", ("owner",)),
    "retention_held_bytes": MetricDefinition(
        MetricKind.GAUGE, "bytes of log that are kept only for the one furthest behind", ("owner",)
    ),
    "retention_hold_age_seconds": MetricDefinition(
        MetricKind.GAUGE, "how long the log has been kept for it without its moving on", ("owner",)
    ),
    "webhook_deliveries": MetricDefinition(
        MetricKind.COUNTER, "transitions that webhooks accepted"
    ),
    "webhook_failures": MetricDefinition(MetricKind.COUNTER, "posts that webhooks did not accept"),
    "appends": MetricDefinition(MetricKind.COUNTER, "writes"),
    "records_appended": MetricDefinition(MetricKind.COUNTER, "records written"),
    "reads": MetricDefinition(MetricKind.COUNTER, "reads"),
    "records_read": MetricDefinition(MetricKind.COUNTER, "records read"),
    "records_evicted": MetricDefinition(MetricKind.COUNTER, "records lost to caps and ages"),
    "records_deleted": MetricDefinition(MetricKind.COUNTER, "records deleted"),
    "records_forwarded": MetricDefinition(MetricKind.COUNTER, "copies made by routers"),
    "router_lag": MetricDefinition(
        MetricKind.GAUGE, "records a router has not copied yet", ("router",)
    ),
    "router_held": MetricDefinition(
        MetricKind.GAUGE, "1 while a router waits for room", ("router",)
    ),
    "tombstones": MetricDefinition(MetricKind.COUNTER, "answers that reported a loss"),
    "bad_frames": MetricDefinition(MetricKind.COUNTER, "damaged frames met in segments"),
    "damaged_records": MetricDefinition(
        MetricKind.GAUGE, "records met since the start that cannot be read, Kafka's included"
    ),
    "damaged_places": MetricDefinition(
        MetricKind.COUNTER, "damaged places in files met since the start"
    ),
    "checkpoints": MetricDefinition(MetricKind.COUNTER, "checkpoints"),
    "housekeeping_failing": MetricDefinition(
        MetricKind.GAUGE, "1 while checkpoints, snapshots or giving space back fail"
    ),
    "snapshots": MetricDefinition(MetricKind.COUNTER, "snapshots"),
}


BRIDGE_METRICS: Final[dict[str, MetricDefinition]] = {
    "bridge_lag": MetricDefinition(
        MetricKind.GAUGE, "records of the source that are not copied yet", ("topic", "partition")
    ),
    "bridge_records_copied": MetricDefinition(
        MetricKind.COUNTER, "records a bridge has copied since its start"
    ),
}
"""Of `headwater bridge`, which is a process of its own."""
_DECLARED: Final = {**METRICS, **BRIDGE_METRICS}


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a declared metric. A histogram's is ([(bound, count so far)], sum)."""

    name: str
    value: Any
    labels: tuple[str, ...] = ()


class _Samples:
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> list[Metric]:
        families: dict[str, Any] = {}
        for sample in self._samples:
            declared = _DECLARED[sample.name]
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = _family(sample.name, declared)
            if declared.kind is MetricKind.HISTOGRAM:
                buckets, total = sample.value
                family.add_metric(sample.labels, buckets, total)
            else:
                family.add_metric(sample.labels, sample.value)
        return list(families.values())


def _family(name: str, declared: MetricDefinition) -> Any:
    from prometheus_client import core

    kinds = {
        MetricKind.GAUGE: core.GaugeMetricFamily,
        MetricKind.COUNTER: core.CounterMetricFamily,
        MetricKind.HISTOGRAM: core.HistogramMetricFamily,
    }
    return kinds[declared.kind](PREFIX + name, declared.meaning, labels=declared.labels)


def metrics_as_text(samples: Sequence[Sample]) -> bytes:
    """Prometheus text."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    return generate_latest(registry)


def metrics_as_json(samples: Sequence[Sample]) -> dict[str, Any]:
    """Name, or name{label} -> value."""
    values: dict[str, Any] = {}
    for sample in samples:
        labels = ",".join(
            f"{label}={value}"
            for label, value in zip(_DECLARED[sample.name].labels, sample.labels, strict=True)
        )
        values[PREFIX + sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return values
