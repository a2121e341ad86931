"""What all parts of the engine share, the table of its routers too. Plain data; only the owner
reads or changes it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

import msgspec

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError
from headwater.core.limits import ROUTERS_MAX
from headwater.disk import Disk
from headwater.engine.owner import Owner
from headwater.engine.partition import Wakeup
from headwater.engine.state.damage import DamageLedger, Parts
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.engine.state.topic import (
    InboundRoutes,
    Registry,
    Router,
    TailCache,
    TailChunk,
    Topic,
    TopicStore,
)
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import topic_directory_name
from headwater.format.snapshot import ShardMeta
from headwater.model.retention import RetentionClock
from headwater.model.router import RouterGraph
from headwater.model.topic import TopicLog
from headwater.observe.waits import Waits
from headwater.store.maps import SegmentMaps
from headwater.store.pair import RecordDamage
from headwater.store.segment_stores import ColdTier, SegmentStore
from headwater.store.topic_files import TopicFiles
from headwater.wal.ceilings import SeqCeilings
from headwater.wal.sharded import ShardedWal, shard_of
from headwater.wal.ticket import Ticket

LEASES_AHEAD = 65_536
"""Claims that are numbered ahead of their use, with one frame."""


class RouterTable:
    """Every router: by name, by destination and by source."""

    def __init__(self, limit: int = ROUTERS_MAX) -> None:
        self.graph = RouterGraph(limit)
        self._by_name: dict[str, Router] = {}
        self._circles_allowed = 0
        """Routers that may close a circle; while there are none, there is none to look for."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Router]:
        """In the order of their names."""
        for name in self.graph:
            router = self._by_name.get(name)
            if router is not None:
                yield router

    def find(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def attach(self, router: Router) -> None:
        self.graph.restore(router.name, router.settings)
        self._by_name[router.name] = router
        router.source.outbound = [*router.source.outbound, router]
        if router.dest.inbound is None:
            router.dest.inbound = InboundRoutes()
        router.dest.inbound.routers.append(router)
        self._circles_allowed += router.settings.allow_cycle
        self._find_circles()

    def detach(self, router: Router) -> None:
        """It is gone. What is unflushed in its destination stays so, to be logged later."""
        if self._by_name.get(router.name) is not router:
            return  # gone before, and there may be another of its name
        router.stopped = True
        self.graph.remove(router.name)
        del self._by_name[router.name]
        router.source.outbound = [each for each in router.source.outbound if each is not router]
        inbound = router.dest.inbound
        if inbound is not None and router in inbound.routers:
            inbound.routers.remove(router)
            if not inbound.routers and inbound.unflushed_from is None:
                router.dest.inbound = None
        self._find_circles()
        self._circles_allowed -= router.settings.allow_cycle

    def take_out(self, topic: Topic) -> list[Router]:
        """The topic goes: so do the routers from it and into it. That needs no frames: their
        frames name the id of a topic that is gone."""
        into = [] if topic.inbound is None else topic.inbound.routers
        routers = sorted({*topic.outbound, *into}, key=lambda router: router.name)
        for router in routers:
            self.detach(router)
        return routers

    def put_back(self, routers: list[Router]) -> None:
        """The topic stays after all."""
        for router in routers:
            self.attach(router)
            router.stopped = False

    def _find_circles(self) -> None:
        if self._circles_allowed:
            for router in self._by_name.values():
                router.in_circle = self.graph.is_in_circle(router.name)


class EngineCounters(msgspec.Struct):
    appends: int = 0
    records_appended: int = 0
    reads: int = 0
    records_read: int = 0
    tombstones: int = 0
    records_evicted: int = 0
    records_deleted: int = 0
    records_forwarded: int = 0
    """Copies made by routers."""
    checkpoints: int = 0
    snapshots: int = 0
    bad_frames: int = 0
    """Damaged frames met in segments; never served."""

    @property
    def requests(self) -> int:
        """Counts up with everything that clients do to topics."""
        return self.appends + self.reads


class ShardProgress(msgspec.Struct):
    """How far one shard's tickets are answered, in order."""

    pending: deque[Ticket] = msgspec.field(default_factory=deque)
    published_frame: int = 0
    """Every frame up to this number has taken effect."""
    unsynced: deque[tuple[int, Topic, int]] = msgspec.field(default_factory=deque)
    """Visible writes whose sync is still to come: last frame, topic, last seq."""

    def advance(self) -> None:
        # Answered is not enough: an answer may be on its way to the owner, and a checkpoint that
        # counted it as done would never read its frames again.
        while self.pending and self.pending[0].taken:
            self.published_frame = max(self.published_frame, self.pending.popleft().last_frame)


@dataclass(slots=True)
class EngineCore:
    disk: Disk
    directory: PurePath
    settings: EngineSettings
    clock: Clock
    owner: Owner
    waits: Waits
    """What writes waited for, where that was long."""
    retention: RetentionClock
    ceilings: SeqCeilings
    cache: TailCache
    cold: ColdTier | None
    maps: SegmentMaps = field(default_factory=SegmentMaps)
    wal: ShardedWal | None = None
    registry: Registry = field(default_factory=Registry)
    topic_store: TopicStore = field(init=False)
    """What topics ask: the engine, or a view of its files."""
    routers: RouterTable = field(init=False)
    holds: RetentionHolds = field(init=False)
    """The consumers that need old log: nothing is deleted while they need it."""
    shards: list[ShardProgress] = field(default_factory=list)
    counters: EngineCounters = field(default_factory=EngineCounters)
    live_bytes: int = 0
    """Payloads of all topics, as far as known: counted when a limit asks for it, every round."""
    tail_bytes: int = 0
    """Frames of all topics that are in the log but not yet in segments."""
    dirty: dict[int, Topic] = field(default_factory=dict)
    """Topics with records or deletes that are in the log but not in segments, by id."""
    moved: dict[int, Topic] = field(default_factory=dict)
    """Topics whose floors changed since they were last written to the log, by id."""
    reclaim: dict[int, Topic] = field(default_factory=dict)
    """Topics whose segments may have space to give back, by id."""
    expiring: dict[int, Topic] = field(default_factory=dict)
    """Topics with an age limit, by id."""
    keyed: dict[int, Topic] = field(default_factory=dict)
    """Topics that remember keys of writes, by id."""
    broken: dict[int, Topic] = field(default_factory=dict)
    """Topics whose files could not be read, by id. The log keeps all their frames."""
    dropped: list[int] = field(default_factory=list)
    """Ids of topics that are gone from the log and whose files can go."""
    changed: bool = False
    """Anything happened since the last snapshot."""
    snapshot_number: int = 0
    retired: dict[str, ShardMeta] = field(default_factory=dict)
    """Log directories of an earlier layout, with their last frame, until they are removed."""
    load_lock: threading.Lock = field(default_factory=threading.Lock)
    damage: DamageLedger = field(default_factory=DamageLedger)
    lease_ceilings: SeqCeilings = field(default_factory=lambda: SeqCeilings(LEASES_AHEAD))
    """Numbers of claims that may be used without a frame in the log."""
    parts: Parts = field(default_factory=Parts)
    """What lies beside the topics and may be away while they are served."""
    opened_us: int = field(init=False)
    opened_ms: int = field(init=False)
    """When this life began, by both clocks: leases of the life before run on from there."""
    closing: bool = False
    read_only: bool = False
    """Another process may own the directory: nothing in it is changed, repaired or removed."""
    refusing: bool = False
    """The governor takes no more writes for now."""
    before_append: Callable[[], None] = lambda: None
    """Has what came before this write, and was not read yet, take its seqs first."""
    send_begun: Callable[[], None] = lambda: None
    """Hands over the writes of this turn that have seqs: nothing may overtake them in the log."""
    wake_maintenance: Callable[[], None] = lambda: None
    wake_forwarder: Callable[[], None] = lambda: None
    to_route: dict[int, Topic] = field(default_factory=dict)
    """Topics that routers may have something to copy from, by id."""
    waiters: set[Wakeup] = field(default_factory=set)
    """Of those that wait for topics that may not be there yet: called once, at the next update of
    any topic."""
    on_update: Callable[[Topic], None] | None = None
    """Called for every topic that has something new, or is gone: for delivery to streams."""
    on_published: Callable[[], None] | None = None
    """Called once for all that one answer of the log made visible: answers are sent together."""
    on_synced: Callable[[Topic], None] | None = None
    """Called for a topic whose visible records were synced only now: for streams that wait for
    it."""

    def __post_init__(self) -> None:
        self.routers = RouterTable(self.settings.routers_max)
        self.holds = RetentionHolds(self.clock)
        self.opened_us = self.clock.monotonic_us()
        self.opened_ms = self.clock.wall_ms()

    def wake(self) -> None:
        """Any topic has something new."""
        waiters, self.waiters = self.waiters, set()
        for wakeup in waiters:
            wakeup()

    def retention_ms(self) -> int:
        """The time by which records expire."""
        return self.retention.now_ms(self.clock.wall_ms(), self.clock.monotonic_us())

    def new_topic(self, topic_id: int, name: str, log: TopicLog) -> Topic:
        topic = Topic(topic_id, name, log, self.topic_store, partial(self.files_of, topic_id))
        topic.shard = shard_of(topic_id, self.settings.wal.shards)
        topic.logged_upto = None if log.settings.durability.is_logged else 0
        self.note_expiry(topic)
        return topic

    def note_expiry(self, topic: Topic) -> None:
        """Remember, or forget, that this topic has an age limit."""
        if topic.log.settings.ttl_ms:
            self.expiring[topic.topic_id] = topic
        else:
            self.expiring.pop(topic.topic_id, None)

    def files_of(self, topic_id: int) -> TopicFiles:
        directory = self.directory / TOPICS_DIRECTORY / topic_directory_name(topic_id)
        return TopicFiles(
            self.disk,
            directory,
            self.settings.segments,
            maps=self.maps,
            cold=self.cold_store_of(topic_id),
            report=partial(self._note_in_files, topic_id),
            read_only=self.read_only,
        )

    def cold_store_of(self, topic_id: int) -> SegmentStore | None:
        return None if self.cold is None else self.cold.topic(topic_id)

    # -- frames in memory

    def keep_in_tail(self, topic: Topic, chunk: TailChunk, *, logged: bool = True) -> None:
        """Hold frames until a checkpoint has them, and for readers near the head."""
        topic.tail.append(chunk)
        topic.meta = None
        if logged:
            if topic.logged_upto is not None:
                topic.logged_upto = chunk.last_seq  # it was on its way when the class changed
            self.count_tail(topic, len(chunk.buffer))

    def add_to_tail(
        self, topic: Topic, first_seq: int, buffer: bytes, offsets: Sequence[int]
    ) -> None:
        """The same for frames that are in the log, as all records of their topic are."""
        topic.tail.add(first_seq, buffer, offsets)
        topic.meta = None
        self.count_tail(topic, len(buffer))

    def count_tail(self, topic: Topic, size: int) -> None:
        """So many bytes of the tail are some that a checkpoint has to put into segments."""
        topic.tail_bytes += size
        self.tail_bytes += size
        self.dirty[topic.topic_id] = topic

    def shed(self, topic: Topic) -> None:
        """Drop frames from memory that no reader can ask for any more."""
        log, tail = topic.log, topic.tail
        while len(tail) and tail.first_chunk.last_seq < log.earliest_seq:
            chunk = tail.drop_first()
            if topic.logs(chunk.first_seq) and chunk.first_seq > topic.checkpointed_seq:
                topic.tail_bytes -= len(chunk.buffer)
                self.tail_bytes -= len(chunk.buffer)

    # -- what has changed

    def route(self, source: Topic) -> None:
        """There may be something to copy from here, or room for it."""
        if source.topic_id not in self.to_route:
            self.to_route[source.topic_id] = source
            self.wake_forwarder()

    def _note_in_files(self, topic_id: int, finding: RecordDamage) -> None:
        topic = self.registry.by_id(topic_id)
        self.note(f"topic {topic_id}" if topic is None else topic.name, finding)

    def note(self, topic: str, finding: RecordDamage) -> None:
        """Damage in segment files: each damaged range is counted once."""
        if self.damage.note(topic, finding):
            self.counters.bad_frames += 1

    def note_damage(self, topic: Topic, findings: Sequence[RecordDamage]) -> None:
        """As the owner: records that cannot be read. From now on reads report them as damaged."""
        for finding in findings:
            topic.log.note_damaged(finding.seq, finding.end_seq)
            self.note(topic.name, finding)

    def submit_to(self, shard: int, ticket: Ticket) -> None:
        """Hand a ticket to a shard and remember its position in the order."""
        assert self.wal is not None, "the log is not open yet"
        self.send_begun()
        if self.closing and not ticket.essential:
            raise ClosedError("closing; nothing was written")
        self.wal.shards[shard].submit(ticket)
        self.shards[shard].pending.append(ticket)
