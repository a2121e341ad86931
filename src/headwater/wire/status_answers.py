"""What the server reports about itself, about the last runs of jobs and about the topics and groups
of Kafka, as structs."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.wire.answers import Answer, Spent


class SyncLatency(Answer):
    """How long fdatasync took since the start, estimated within its histogram's steps."""

    count: int
    mean_ms: float
    last_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


class SyncBucket(Answer):
    """Syncs that took at most so long, and longer than the bucket before; the last has no end."""

    upto_ms: float | None
    count: int


class ShardSeen(Answer):
    """One writer of a log. The topics' log has several; the others have one, which is listed once
    it is open."""

    log: str
    """topics, machines or kafka."""
    shard: int
    state: str
    """writable, full or poisoned."""
    frames: int
    groups: int
    bytes_written: int
    rotations: int
    queue_depth: int
    queue_depth_peak: int
    submit_full: int
    fsync: SyncLatency
    fsync_buckets: list[SyncBucket]


class RungSeen(Answer):
    """One rung of the ladder; the lowest comes first."""

    rung: str
    in_force: bool
    entered: int
    meaning: str


class PressureSeen(Answer):
    pressure: float
    signals: dict[str, float]
    """What each would have made of it alone, 0 to 1."""
    rungs: list[RungSeen]
    writes_refused: int
    ready_topics: int
    scheduling_latency_ms: float


class HoldSeen(Answer):
    """A reader that needs old log: nothing from its position on is deleted."""

    owner: str
    """transitions_topic, webhook or watch."""
    name: str
    log: str
    """machines."""
    position: str | None
    """An offset; null while it is not known, and then everything is held."""
    behind_bytes: int | None
    """Of log from there to the end."""
    held_bytes: int
    """Of files that could be deleted without it."""
    age_ms: int
    """Since it was taken, or restored by a start."""
    still_ms: int
    """Since its position last moved."""
    durable: bool
    """It outlives the process."""
    gives_way: bool
    """It is too far behind to hold anything: what is deleted now it gets as a gap."""


class GapSeen(Answer):
    """A consumer that got gaps in place of what could not be read any more; and the last gap."""

    owner: str
    name: str
    gaps: int
    first_offset: str
    last_offset: str
    reason: str
    """compacted or damaged."""


class Totals(Answer):
    """Sums over all topics. With very many topics they may lag a little."""

    topics: int
    routers: int
    queues: int
    records: int
    bytes: int
    jobs_ready: int
    jobs_in_flight: int
    jobs_delayed: int
    jobs_dead_lettered: int
    jobs_blocked: int


class PartAway(Answer):
    """A part of the data directory that could not be opened; everything else is served."""

    part: str
    """machines or kafka."""
    what: str
    file: str | None
    offset: int | None
    advice: str | None


class PartMended(Answer):
    """Something a start found in a part, and goes on in spite of."""

    part: str
    path: str
    offset: int | None
    what: str
    action: str
    why: str


class PlaceSeen(Answer):
    """Records that cannot be read, and where their bytes are."""

    topic: str
    file: str
    """The whole path for an admin, its name for others."""
    offset: int
    first_seq: int
    last_seq: int
    reason: str


class DamageSeen(Answer):
    """What readers met since the start. `headwater verify` checks everything."""

    records: int
    """In topics that the key may name."""
    places: list[PlaceSeen]
    """The first of them."""
    more: int
    """Damaged places that are not listed."""


class GatewaySeen(Answer):
    """A process that has connections of clients; see `serve --workers`."""

    gateway: int
    pid: int
    """0 while it is started again."""
    connections: int
    http_connections: int
    requests: int
    """That it passed on one by one since it was started; plain writes go together."""
    starts: int
    cpu_ms: int


class StatusAnswer(Answer):
    version: str
    python: str
    state: str
    """Of the worst of all logs: ok; full when the disk is; poisoned when a sync failed; degraded
    when they are well and a part is away."""
    own_part: bool
    """True for a key with prefixes: the totals are of its own topics and routers, and what is only
    known of the whole server is 0 or empty."""
    now_ms: int
    uptime_ms: int
    connections: int
    sse_connections: int
    watch_sessions: int
    gateways: list[GatewaySeen]
    """None where one process does everything."""
    tail_bytes: int
    totals: Totals
    counters: dict[str, int]
    pressure: PressureSeen
    shards: list[ShardSeen]
    retention_holds: list[HoldSeen]
    """The one that is furthest behind first."""
    gaps: list[GapSeen]
    """Since the start."""
    unavailable: list[PartAway]
    mended: list[PartMended]
    """What the last start skipped, cut or moved to quarantine."""
    damage: DamageSeen
    performance: Spent


class WaitSeen(Answer):
    """Something that writes waited for, and that took long."""

    number: int
    """Counts up over all causes: what came since is asked for by the last one seen."""
    cause: str
    at_ms: int
    """When it began."""
    duration_us: int
    detail: str
    beside: list[str]
    """The background work that ran during it."""


class WaitsCounted(Answer):
    """The long waits of one cause since the start."""

    cause: str
    meaning: str
    count: int
    total_us: int


class TraceAnswer(Answer):
    now_ms: int
    wait_us_min: int
    """Shorter waits are not in here; 0 when none are kept."""
    causes: list[WaitsCounted]
    waits: list[WaitSeen]
    """The newest of each cause."""
    performance: Spent


class RunSeen(Answer):
    """The last run of one job, `verify` or `doctor` on this data directory."""

    job: str
    """verify, doctor, or `pipeline` with the name of the job."""
    at_ms: int
    ok: bool
    report: dict[str, Any]


class JobsAnswer(Answer):
    runs: list[RunSeen]
    """The newest first."""
    unreadable: list[str]
    """Names of reports that cannot be read."""
    performance: Spent


class RequeueAnswer(Answer):
    requeued: int
    skipped: list[int]
    performance: Spent


class KafkaPartitionSeen(Answer):
    partition: int
    start_offset: int
    high_watermark: int
    bytes: int


class KafkaTopicSeen(Answer):
    topic: str
    topic_id: str
    config: dict[str, str]
    partitions: list[KafkaPartitionSeen]


class KafkaTopicList(Answer):
    topics: list[KafkaTopicSeen]
    performance: Spent
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET


class KafkaOffsetSeen(Answer):
    topic: str
    partition: int
    offset: int
    lag: int
    """Records between what the group has committed and the end."""


class KafkaGroupSeen(Answer):
    group: str
    state: str
    members: int
    lag: int
    offsets: list[KafkaOffsetSeen]


class KafkaGroupList(Answer):
    groups: list[KafkaGroupSeen]
    performance: Spent
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET
