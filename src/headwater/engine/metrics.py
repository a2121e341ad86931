"""How an open database is, read as the owner: its metrics, to which a server adds those of its
connections, and in what state its logs are. A database is as healthy as the worst of them.

Names, labels and meanings are in `observe.metrics`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.config.topic import TopicType
from headwater.core.durability import Durability
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.engine.engine import Engine
from headwater.engine.machines import operations as machine_operations
from headwater.engine.operation import AsOwner, Operation
from headwater.engine.pressure import PressureControl
from headwater.engine.queues.claims import Queues
from headwater.engine.state.damage import Part
from headwater.engine.state.topic import Topic
from headwater.model.pressure import Rung
from headwater.observe.metrics import Sample, metrics_as_json
from headwater.observe.waits import WAIT_BOUNDS_US, Waits
from headwater.wal.committer import LogState
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US
from headwater.wal.shard import Shard

if TYPE_CHECKING:
    from headwater.engine.machines.answers import WalStats
    from headwater.engine.machines.operations import MachineCounts
    from headwater.engine.machines.store import MachineStore

TOPICS_MAX: Final = 1_000
"""Per-topic gauges are given for so many topics."""
TOPICS_AT_ONCE: Final = 2_000
"""Sums over topics let others have a turn after so many."""
COUNTERS: Final = (
    "appends",
    "records_appended",
    "reads",
    "records_read",
    "records_evicted",
    "records_deleted",
    "records_forwarded",
    "tombstones",
    "bad_frames",
    "checkpoints",
    "snapshots",
)
STATE_NAMES: Final = {
    LogState.WRITABLE: "ok",
    LogState.FULL: "full",
    LogState.POISONED: "poisoned",
}
DEGRADED: Final = "degraded"
"""All logs that are open are healthy, and a part of the directory could not be opened."""
_WORST_FIRST: Final = (LogState.POISONED, LogState.FULL)


def metrics_operation(engine: Engine) -> Operation[dict[str, Any]]:
    """All of them, by name."""
    topics: list[Topic] = yield AsOwner(lambda: list(engine.core.registry))
    sums: Counter[str] = Counter()
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        yield AsOwner(partial(_add_topics, engine, topics[at : at + TOPICS_AT_ONCE], sums))
    metrics: dict[str, Any] = yield AsOwner(lambda: metrics_as_json(_samples(engine, sums)))
    return metrics


def _samples(engine: Engine, sums: Counter[str]) -> list[Sample]:
    core = engine.core
    uptime_us = core.clock.monotonic_us() - core.opened_us
    samples = [
        Sample("ready", 1),
        Sample("uptime_ms", uptime_us // US_PER_MS),
        Sample("topics", len(core.registry)),
        Sample("routers", len(core.routers)),
        Sample("queue_topics", sums["queues"]),
        Sample("queue_leases_in_flight", sums["jobs_in_flight"]),
        Sample("records_live", sums["records"]),
        Sample("bytes_live", sums["bytes"]),
        Sample("housekeeping_failing", int(engine.last_error is not None)),
        Sample("damaged_records", sum(core.damage.records.values())),
        *class_samples(lambda durability: sums[class_sum(durability)]),
        *topic_samples(engine, lambda _: True),
        *engine_samples(engine),
    ]
    return samples + machine_samples(engine.machines.store)


# -- topics


def _add_topics(engine: Engine, topics: Iterable[Topic], sums: Counter[str]) -> None:
    for topic in topics:
        if not topic.dropped:
            add_topic(engine, topic, sums)


def add_topic(engine: Engine, topic: Topic, sums: Counter[str]) -> None:
    """One more topic for sums over many."""
    known = topic.log if topic.loaded or topic.meta is None else topic.meta
    sums["topics"] += 1
    sums[class_sum(topic.log.settings.durability)] += 1
    sums["records"] += known.count
    sums["bytes"] += known.bytes
    if topic.log.settings.type is TopicType.QUEUE:
        stats = Queues(engine).glance(topic)
        sums["queues"] += 1
        sums["jobs_ready"] += stats.ready
        sums["jobs_in_flight"] += stats.in_flight
        sums["jobs_delayed"] += stats.delayed
        sums["jobs_dead_lettered"] += stats.dead_lettered
        sums["jobs_blocked"] += stats.blocked


def class_sum(durability: Durability) -> str:
    return f"topics of class {durability.value}"


def class_samples(count: Callable[[Durability], int]) -> list[Sample]:
    return [Sample("topics_by_class", count(each), (each.value,)) for each in Durability]


def topic_samples(engine: Engine, sees: Callable[[str], bool]) -> list[Sample]:
    """Of topics and routers whose names the caller may see, so many of each."""
    core = engine.core
    samples = [
        Sample("part_unavailable", int(part in core.parts.away), (part.value,)) for part in Part
    ]
    named = (topic for topic in core.registry if sees(topic.name))
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
    routers = (router for router in core.routers if sees(router.name))
    for router in itertools.islice(routers, TOPICS_MAX):
        samples += [
            Sample("router_lag", router.lag, (router.name,)),
            Sample("router_held", int(router.cursor.held), (router.name,)),
        ]
    return samples


# -- the whole


def engine_samples(engine: Engine) -> list[Sample]:
    core = engine.core
    samples = [Sample("tail_bytes", core.tail_bytes), *pressure_samples(engine.pressure_control)]
    samples += [Sample(name, getattr(core.counters, name)) for name in COUNTERS]
    return samples + _shard_samples(engine) + _wait_samples(core.waits)


def _wait_samples(waits: Waits) -> list[Sample]:
    samples = []
    for cause, sums in waits.sums.items():
        samples += [
            Sample("long_waits", sums.count, (cause.value,)),
            Sample(
                "long_wait_seconds",
                _histogram(WAIT_BOUNDS_US, sums.buckets, sums.total_us),
                (cause.value,),
            ),
        ]
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
        value = _histogram(SYNC_LATENCY_BOUNDS_US, counters.sync_us_buckets, counters.sync_us_total)
        samples.append(Sample("wal_fsync_latency_seconds", value, label))
    return samples


def _histogram(
    bounds_us: Sequence[int], buckets: Sequence[int], total_us: int
) -> tuple[list[tuple[str, int]], float]:
    """In seconds, each bucket with all below it."""
    bounds = [*(str(bound / US_PER_S) for bound in bounds_us), "+Inf"]
    return list(zip(bounds, itertools.accumulate(buckets), strict=True)), total_us / US_PER_S


def pressure_samples(pressure_control: PressureControl) -> list[Sample]:
    governor = pressure_control.governor
    samples = [
        Sample("pressure", round(governor.pressure, 3)),
        Sample("ready_topics", pressure_control.ready_topics),
        Sample("scheduling_latency_seconds", round(governor.latency_us / US_PER_S, 6)),
        Sample("writes_refused", pressure_control.writes_refused),
    ]
    samples += [
        Sample("pressure_signal", round(part, 3), (name,)) for name, part in governor.parts.items()
    ]
    samples += [
        Sample("pressure_rung", int(rung in governor.rungs), (rung.value,)) for rung in Rung
    ]
    samples += [
        Sample(
            "pressure_transitions",
            pressure_control.transitions[rung, entered],
            (rung.value, change),
        )
        for rung in Rung
        for entered, change in ((True, "entered"), (False, "left"))
    ]
    return samples


class _MachineNumbers(NamedTuple):
    store: MachineStore
    held: MachineCounts
    wal: WalStats


_MACHINE_METRICS: Final[dict[str, Callable[[_MachineNumbers], int]]] = {
    "machines": lambda seen: seen.held.machines,
    "machine_instances": lambda seen: seen.held.instances,
    "machine_watchers": lambda seen: seen.store.watcher_count,
    "machine_wal_entries": lambda seen: seen.store.book.committed_sequence - 1,
    "machine_wal_fsyncs": lambda seen: seen.wal.fsyncs,
    "machine_wal_bytes_written": lambda seen: seen.wal.bytes_written,
    "machine_wal_bytes": lambda seen: seen.wal.total_size_bytes,
    "machine_wal_segments": lambda seen: seen.wal.segment_count,
    "machine_wal_read_only": lambda seen: int(seen.store.log_state is not LogState.WRITABLE),
    "machine_wal_damaged_entries": lambda seen: seen.wal.damaged_entries,
    "machine_compactions": lambda seen: seen.store.compactor.count,
    "machine_idempotency_keys": lambda seen: len(seen.store.tables.keys),
    "machine_idempotency_bytes": lambda seen: seen.store.tables.keys_bytes,
    "machine_idempotency_keys_forgotten": lambda seen: seen.store.tables.keys_forgotten,
}


def machine_samples(store: MachineStore | None) -> list[Sample]:
    """Zeros until machines are used."""
    if store is None:
        return [Sample(name, 0) for name in _MACHINE_METRICS]
    seen = _MachineNumbers(store, machine_operations.counts(store), store.wal_stats())
    return [Sample(name, value(seen)) for name, value in _MACHINE_METRICS.items()]


def engine_shards(engine: Engine) -> Iterator[tuple[str, int, Shard]]:
    """Whose log it is, the number of the shard, the shard. Only logs that are open."""
    assert engine.core.wal is not None
    for number, shard in enumerate(engine.core.wal.shards):
        yield "topics", number, shard
    if engine.machines.store is not None:
        yield "machines", 0, engine.machines.store.shard


def state_name(engine: Engine, shards: Iterable[Shard]) -> str:
    states = {shard.state for shard in shards}
    worst = next((state for state in _WORST_FIRST if state in states), LogState.WRITABLE)
    if worst is LogState.WRITABLE and engine.core.parts.away:
        return DEGRADED
    return STATE_NAMES[worst]


def readiness_of(engine: Engine) -> str:
    """As the owner. The error of a log that takes no more writes is raised."""
    shards = [shard for _, _, shard in engine_shards(engine)]
    poison = next((shard.poison for shard in shards if shard.poison is not None), None)
    if poison is not None:
        raise poison
    return state_name(engine, shards)
