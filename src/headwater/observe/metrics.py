"""Every metric, declared once: its name, kind and meaning. Only module that imports the library,
and only when somebody asks for metrics: it brings an HTTP server of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX: Final = "headwater_"


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Declared:
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: Final[dict[str, Declared]] = {
    "topics": Declared(Kind.GAUGE, "topics"),
    "topics_by_class": Declared(Kind.GAUGE, "topics of a durability class", ("durability",)),
    "routers": Declared(Kind.GAUGE, "routers"),
    "records_live": Declared(Kind.GAUGE, "records that can be read"),
    "bytes_live": Declared(Kind.GAUGE, "payload bytes of those records"),
    "queue_topics": Declared(Kind.GAUGE, "topics that are queues"),
    "queue_leases_in_flight": Declared(Kind.GAUGE, "jobs that are leased"),
    "sse_connections": Declared(Kind.GAUGE, "open streams"),
    "watch_sessions": Declared(Kind.GAUGE, "watch sessions"),
    "connections": Declared(Kind.GAUGE, "open connections"),
    "ready": Declared(Kind.GAUGE, "1 when requests are served"),
    "part_unavailable": Declared(
        Kind.GAUGE, "1 while a part of the data directory could not be opened", ("part",)
    ),
    "recovery_progress": Declared(Kind.GAUGE, "0 to 1 while recovering"),
    "uptime_ms": Declared(Kind.GAUGE, "milliseconds since the start"),
    "pressure": Declared(Kind.GAUGE, "0 to 1, how hard the server is pressed"),
    "pressure_signal": Declared(Kind.GAUGE, "what one signal alone makes of it", ("signal",)),
    "pressure_rung": Declared(Kind.GAUGE, "1 while this is done about pressure", ("rung",)),
    "pressure_transitions": Declared(
        Kind.COUNTER, "times a rung was entered or left", ("rung", "change")
    ),
    "ready_topics": Declared(Kind.GAUGE, "topics with something to deliver"),
    "scheduling_latency_seconds": Declared(Kind.GAUGE, "how late turns come, smoothed"),
    "writes_refused": Declared(Kind.COUNTER, "writes refused for pressure"),
    "tail_bytes": Declared(Kind.GAUGE, "bytes that are in the log but not yet in segments"),
    "topic_head_seq": Declared(Kind.GAUGE, "last seq of a topic", ("topic",)),
    "topic_earliest_seq": Declared(Kind.GAUGE, "first live seq of a topic", ("topic",)),
    "topic_records_live": Declared(Kind.GAUGE, "live records of a topic", ("topic",)),
    "topic_bytes_live": Declared(Kind.GAUGE, "live payload bytes of a topic", ("topic",)),
    "topic_queue_ready": Declared(Kind.GAUGE, "jobs that can be claimed", ("topic",)),
    "topic_queue_in_flight": Declared(Kind.GAUGE, "jobs that are leased", ("topic",)),
    "topic_queue_delayed": Declared(Kind.GAUGE, "jobs that wait for their time", ("topic",)),
    "topic_queue_dead_lettered": Declared(
        Kind.GAUGE, "jobs that were put away as dead letters", ("topic",)
    ),
    "topic_damaged_records": Declared(
        Kind.GAUGE, "records of a topic that were met and cannot be read", ("topic",)
    ),
    "topic_queue_blocked": Declared(
        Kind.GAUGE, "jobs that nobody can be given and that could not be put away", ("topic",)
    ),
    "wal_frames": Declared(Kind.COUNTER, "frames written to the log", ("shard",)),
    "wal_batches": Declared(Kind.COUNTER, "groups written to the log", ("shard",)),
    "wal_fsyncs": Declared(Kind.COUNTER, "syncs of the log", ("shard",)),
    "wal_bytes_written": Declared(Kind.COUNTER, "bytes written to the log", ("shard",)),
    "wal_rotations": Declared(Kind.COUNTER, "log files that were filled", ("shard",)),
    "wal_submit_full": Declared(Kind.COUNTER, "writes refused for a full queue", ("shard",)),
    "wal_queue_depth": Declared(Kind.GAUGE, "writes waiting for the log", ("shard",)),
    "wal_queue_depth_peak": Declared(Kind.GAUGE, "most writes that ever waited", ("shard",)),
    "wal_read_only": Declared(Kind.GAUGE, "1 while full or poisoned", ("shard",)),
    "wal_fsync_latency_seconds": Declared(Kind.HISTOGRAM, "time of one sync", ("shard",)),
    "kafka_connections": Declared(Kind.GAUGE, "open connections of Kafka clients"),
    "kafka_requests": Declared(Kind.COUNTER, "requests of Kafka clients", ("api",)),
    "kafka_bytes_in": Declared(Kind.COUNTER, "bytes from Kafka clients"),
    "kafka_bytes_out": Declared(Kind.COUNTER, "bytes to Kafka clients"),
    "kafka_batches_produced": Declared(
        Kind.COUNTER, "record batches that were produced and stored"
    ),
    "kafka_records_produced": Declared(Kind.COUNTER, "records in them"),
    "kafka_records_fetched": Declared(Kind.COUNTER, "records that were fetched"),
    "kafka_hang_ups": Declared(Kind.COUNTER, "Kafka clients that were hung up on"),
    "kafka_produces_dropped": Declared(
        Kind.COUNTER, "produces with acks=0 of which something was not stored"
    ),
    "kafka_sign_ins_refused": Declared(Kind.COUNTER, "wrong names or passwords"),
    "kafka_group_members": Declared(Kind.GAUGE, "members of consumer groups"),
    "kafka_group_lag": Declared(
        Kind.GAUGE, "records a group has not committed", ("group", "topic")
    ),
    "kafka_topics": Declared(Kind.GAUGE, "Kafka topics"),
    "kafka_damaged_batches": Declared(Kind.COUNTER, "damaged batches met by readers"),
    "kafka_wal_read_only": Declared(Kind.GAUGE, "1 while Kafka's log is full or poisoned"),
    "machines": Declared(Kind.GAUGE, "state machines"),
    "machine_instances": Declared(Kind.GAUGE, "instances of state machines"),
    "machine_watchers": Declared(Kind.GAUGE, "who follows their transitions"),
    "machine_wal_entries": Declared(Kind.COUNTER, "entries of the machines' log"),
    "machine_wal_fsyncs": Declared(Kind.COUNTER, "syncs of the machines' log"),
    "machine_wal_bytes_written": Declared(Kind.COUNTER, "bytes written to the machines' log"),
    "machine_wal_bytes": Declared(Kind.GAUGE, "length of the machines' log"),
    "machine_wal_segments": Declared(Kind.GAUGE, "files of the machines' log"),
    "machine_wal_read_only": Declared(Kind.GAUGE, "1 while that log is full or poisoned"),
    "machine_wal_damaged_entries": Declared(Kind.GAUGE, "entries passed over at the start"),
    "machine_compactions": Declared(Kind.COUNTER, "compactions of the machines' log"),
    "machine_idempotency_keys": Declared(Kind.GAUGE, "keys of requests that are remembered"),
    "machine_idempotency_bytes": Declared(Kind.GAUGE, "memory they take"),
    "machine_idempotency_keys_forgotten": Declared(
        Kind.COUNTER, "forgotten before their time, to stay within the bound"
    ),
    "rcpx_connections": Declared(Kind.GAUGE, "open RCPX connections"),
    "machine_transition_gaps": Declared(
        Kind.COUNTER, "gaps written to the topic of transitions: the log could not be read there"
    ),
    "webhook_gaps": Declared(Kind.COUNTER, "gaps told to webhooks"),
    "retention_holds": Declared(Kind.GAUGE, "who needs old log", ("owner",)),
    "retention_held_bytes": Declared(
        Kind.GAUGE, "bytes of log that are kept only for the one furthest behind", ("owner",)
    ),
    "retention_hold_age_seconds": Declared(
        Kind.GAUGE, "how long the log has been kept for it without its moving on", ("owner",)
    ),
    "webhook_deliveries": Declared(Kind.COUNTER, "transitions taken by webhooks"),
    "webhook_failures": Declared(Kind.COUNTER, "tries that were not taken"),
    "appends": Declared(Kind.COUNTER, "writes"),
    "records_appended": Declared(Kind.COUNTER, "records written"),
    "reads": Declared(Kind.COUNTER, "reads"),
    "records_read": Declared(Kind.COUNTER, "records read"),
    "records_evicted": Declared(Kind.COUNTER, "records lost to caps and ages"),
    "records_deleted": Declared(Kind.COUNTER, "records deleted"),
    "records_forwarded": Declared(Kind.COUNTER, "copies made by routers"),
    "router_lag": Declared(Kind.GAUGE, "records a router has not come to", ("router",)),
    "router_held": Declared(Kind.GAUGE, "1 while a router waits for room", ("router",)),
    "tombstones": Declared(Kind.COUNTER, "answers that told of a loss"),
    "bad_frames": Declared(Kind.COUNTER, "damaged frames met in segments"),
    "damaged_records": Declared(
        Kind.GAUGE, "records met since the start that cannot be read, Kafka's included"
    ),
    "damaged_places": Declared(Kind.COUNTER, "damaged places in files met since the start"),
    "checkpoints": Declared(Kind.COUNTER, "checkpoints"),
    "housekeeping_failing": Declared(
        Kind.GAUGE, "1 while checkpoints, snapshots or giving space back fail"
    ),
    "snapshots": Declared(Kind.COUNTER, "snapshots"),
}


BRIDGE_METRICS: Final[dict[str, Declared]] = {
    "bridge_lag": Declared(
        Kind.GAUGE, "records of the source that are not copied yet", ("topic", "partition")
    ),
    "bridge_records_copied": Declared(Kind.COUNTER, "records a bridge has copied since its start"),
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
            if declared.kind is Kind.HISTOGRAM:
                buckets, total = sample.value
                family.add_metric(sample.labels, buckets, total)
            else:
                family.add_metric(sample.labels, sample.value)
        return list(families.values())


def _family(name: str, declared: Declared) -> Any:
    from prometheus_client import core

    kinds = {
        Kind.GAUGE: core.GaugeMetricFamily,
        Kind.COUNTER: core.CounterMetricFamily,
        Kind.HISTOGRAM: core.HistogramMetricFamily,
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
    found: dict[str, Any] = {}
    for sample in samples:
        labels = ",".join(
            f"{label}={value}"
            for label, value in zip(_DECLARED[sample.name].labels, sample.labels, strict=True)
        )
        found[PREFIX + sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found
