"""What all parts of the Kafka store share. Plain data; the owner is the only one who touches it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from headwater.config.kafka import KafkaSettings
from headwater.core.arrays import numpy
from headwater.core.clock import Clock
from headwater.core.durability import Durability
from headwater.core.errors import ClosedError
from headwater.core.units import US_PER_S
from headwater.disk import Disk
from headwater.engine.kafka.configs import RETENTION_BYTES, RETENTION_MS, config_number
from headwater.engine.kafka.group_state import GroupOffsets, Memberships
from headwater.engine.kafka.partition import (
    KafkaPartition,
    KafkaTopic,
    PartitionCalls,
    PartitionTail,
    TopicRegistry,
)
from headwater.engine.kafka.producers import Producers
from headwater.engine.owner import Change, Owner
from headwater.engine.state.damage import DamageLedger
from headwater.format.kafka.checkpoint import SegmentMeta
from headwater.format.kafka.entry import PREFIX_BYTES
from headwater.format.kafka.events import INTERNAL_KEY, AnyEvent, encode_event
from headwater.observe.tracing import Spans
from headwater.store.kafka.files import KafkaSegmentFiles, SegmentTable
from headwater.wal.batch_log import BatchAddress
from headwater.wal.shard import Shard
from headwater.wal.ticket import Ticket

_LIMITS = (RETENTION_MS, RETENTION_BYTES)
_NO_END = 2**63
"""An id that no record will ever have."""


@dataclass(slots=True)
class KafkaCounters:
    batches_appended: int = 0
    records_appended: int = 0
    bytes_appended: int = 0
    fetches: int = 0
    fetches_from_files: int = 0
    duplicates: int = 0
    checkpoints: int = 0
    segments_deleted: int = 0
    segments_rewritten: int = 0
    damaged_batches: int = 0
    """Met by readers, and refused."""


class EventChange(Change):
    """An event on its way to the log."""

    batches: tuple[BatchAddress, ...] = ()
    event_id = 0
    """Its global id, once it is written."""


@dataclass(slots=True)
class KafkaCore:
    disk: Disk
    directory: PurePath
    settings: KafkaSettings
    clock: Clock
    owner: Owner
    files: KafkaSegmentFiles
    registry: TopicRegistry = field(default_factory=TopicRegistry)
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    memberships: Memberships = field(default_factory=Memberships)
    calls: PartitionCalls = field(init=False)
    shard: Shard | None = None
    sealed: list[SegmentMeta] = field(default_factory=list)
    """All indexes but the active one, in the order of global ids."""
    active_number: int = 0
    active_base_id: int = 0
    table: SegmentTable = field(init=False)
    pending: deque[Ticket] = field(default_factory=deque)
    """Tickets in the order of the log, until they have taken effect."""
    applied_id: int = 0
    """Everything before this global id has taken effect."""
    unsaved_bytes: int = 0
    """Written since the last checkpoint."""
    save_soon: bool = False
    next_producer_id: int = 0
    producer_ids_end: int = 0
    """Ids below this one are taken from the log already."""
    cached: deque[PartitionTail] = field(default_factory=deque)
    """Whose batch is the oldest that is kept, then the next: each as often as it has batches."""
    cached_bytes: int = 0
    counters: KafkaCounters = field(default_factory=KafkaCounters)
    damage: DamageLedger = field(default_factory=DamageLedger)
    """Batches that readers met and that cannot be read. Seqs are offsets plus one, as in HTTP."""
    spans: Spans = field(default_factory=Spans)
    limited: dict[bytes, KafkaTopic] = field(default_factory=dict)
    """Topics with a limit on age or bytes, by id."""
    moved: dict[KafkaPartition, None] = field(default_factory=dict)
    """Partitions whose log start moved: their bytes are to be counted again."""
    idempotent: dict[KafkaPartition, None] = field(default_factory=dict)
    """Partitions that remember producers."""
    running_before_s: int = 0
    """How long the log was open in earlier runs."""
    opened_us: int = field(init=False)
    removed_records: bool = False
    """There may be space to give back: records were removed, or a segment is full or found at the
    start, which may have nothing but events of the log's own."""
    closing: bool = False
    send_begun: Callable[[], None] = lambda: None
    """Hands over the batches of this turn that have offsets: nothing may overtake them."""
    wake_maintenance: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.opened_us = self.clock.monotonic_us()

    def running_s(self) -> int:
        """How long the log was open, in this run and before: by this clock producers are idle.

        Not by the wall clock, which may leap over the day in which a batch can come again, and not
        while the server was down and no client could send it.
        """
        return self.running_before_s + (self.clock.monotonic_us() - self.opened_us) // US_PER_S

    def producers_of(self, partition: KafkaPartition) -> Producers:
        """To remember one: what most partitions never need is made when it is first used."""
        producers = partition.producers
        if producers is None:
            producers = partition.producers = Producers(self.settings.producers_max)
            self.idempotent[partition] = None
        return producers

    def set_segments(self, sealed: list[SegmentMeta], number: int, base_id: int) -> None:
        """What a reader needs to find a global id; replaced as a whole."""
        self.sealed, self.active_number, self.active_base_id = sealed, number, base_id
        ends = [meta.base_id + meta.entries for meta in sealed]
        self.table = SegmentTable(
            (*(meta.number for meta in sealed), number),
            numpy.array([*(meta.base_id for meta in sealed), base_id], numpy.uint64),
            numpy.array([*ends, _NO_END], numpy.uint64),
        )

    def reclaim_soon(self) -> None:
        self.removed_records = True

    def submit(self, ticket: Ticket) -> None:
        """Hand a ticket to the log, and queue it in the same order."""
        assert self.shard is not None, "the log is not open yet"
        self.send_begun()
        if self.closing:
            raise ClosedError("closing; nothing was written")
        self.shard.submit(ticket)
        self.pending.append(ticket)

    def log_event(
        self,
        event: AnyEvent,
        take_effect: Callable[[EventChange], Any],
        give_up: Callable[[], None] | None = None,
        *,
        essential: bool = False,
    ) -> EventChange:
        """Log an event durably; then it takes effect. Raises when it cannot be sent."""
        batch = encode_event(event, self.clock.wall_ms())
        body = len(batch).to_bytes(PREFIX_BYTES, "little") + batch
        change = EventChange(lambda: take_effect(change), give_up)
        change.batches = (BatchAddress(INTERNAL_KEY, len(body), 1),)
        ticket = Ticket(body, 1, Durability.FSYNC, essential=essential, context=change)
        self.submit(ticket)
        return change

    def keep_in_memory(self, partition: KafkaPartition, base_offset: int, body: bytes) -> None:
        """For consumers that follow closely; the oldest batches of all partitions make room."""
        size = len(body)
        if size > self.settings.cache_bytes:
            # What is kept before it would leave a gap.
            self.drop_tail(partition)
            return
        tail = partition.tail
        if tail is None:
            tail = partition.tail = PartitionTail()
        tail.add(base_offset, body)
        self.cached.append(tail)
        self.cached_bytes += size
        while self.cached_bytes > self.settings.cache_bytes:
            self.cached_bytes -= self.cached.popleft().drop_first()

    def drop_tail(self, partition: KafkaPartition) -> None:
        """Let go of what is kept of a partition."""
        if partition.tail is not None:
            partition.tail.close()
            partition.tail = None

    def note_limits(self, topic: KafkaTopic) -> None:
        """Remember, or forget, that this topic has limits."""
        configs = topic.configs
        if configs and any(config_number(configs, name) >= 0 for name in _LIMITS):
            self.limited[topic.topic_id] = topic
        else:
            self.limited.pop(topic.topic_id, None)

    def changed(self, topic: KafkaTopic) -> None:
        """Its entry in the checkpoint has to be made anew."""
        topic.saved = None
