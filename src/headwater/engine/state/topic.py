"""Topics as the engine holds them, all of them by name, and the routers between them. For the owner
only.

A topic is its rules (`TopicLog`), its newest frames (`Tail`), its files, its queue and its routes:
topics and routers point to each other. A name is interned to an id once and the id is never reused.

Everything not yet in a segment must be in the tail, as the frames that went into the log; what is
in a segment stays as long as the cache has room. A chunk is the bytes of submissions, a long one's
or of several short ones, so holding it costs next to nothing per record.

A copy that a router made is in its destination's memory, and nowhere else, until a checkpoint puts
it into a segment. Such copies are *unflushed*: a crash takes them, and they are made again from
the source. So whatever is written to the log about the destination, a record or a delete, is
preceded in its group by the unflushed copies and a mark that counts them. The log has then all
seqs of the destination in their order, and what was said of a copy holds for the copy that comes
back.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from headwater.config.topic import TopicSettings, check_topic_name
from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import HeadwaterError, InvariantError, StorageError, TopicNotFoundError
from headwater.core.results import TopicState
from headwater.core.units import KIB
from headwater.engine.owner import Change
from headwater.engine.partition import ReadPlan, Wakeup
from headwater.format.control_frames import RouterMark, RouterMeta
from headwater.format.snapshot import TopicMeta
from headwater.model.idempotency import IdempotencyWindow
from headwater.model.match import TagMatcher
from headwater.model.queue import ClaimWindow, Grant, LeaseHistory, QueueLeases
from headwater.model.router import CursorMark, Guarantee, RouterCursor, RouterSettings
from headwater.model.topic import TopicLog
from headwater.recovery.history.topics import TopicTable
from headwater.recovery.topics.stored_topic import StoredTopic
from headwater.store.pair import RecordDamage
from headwater.store.segment import Segment
from headwater.store.topic_files import TopicFiles


@dataclass(slots=True, eq=False)
class ClaimRequest:
    """A worker that wants jobs, and what a pass gave."""

    node: str
    wanted: int
    lease_us: int = 0
    connection: int | None = None
    served: bool = False
    grant: Grant | None = None
    """None when there was nothing to give."""
    left: bool = False
    """The worker is gone: a pass that is under way gives it nothing."""


class TopicQueue(msgspec.Struct):
    leases: QueueLeases = msgspec.field(default_factory=QueueLeases)
    window: ClaimWindow[ClaimRequest] = msgspec.field(default_factory=ClaimWindow)
    """Claims that are to be served together."""
    settings: TopicSettings | None = None
    """The settings that the leases follow; a change replaces this object."""
    blocked_reason: str | None = None
    """Why jobs that were delivered too often could not be put away at the last try."""
    passing: bool = False
    """A pass is under way that reads keys from files; the next one waits for it."""


CHUNK_BYTES_MIN: Final = 4 * KIB
"""From here on a write is a chunk of its own: copying it costs more than one chunk more."""


class TailChunk(NamedTuple):
    first_seq: int
    buffer: bytes
    offsets: Sequence[int] | NDArray[numpy.int64]
    """Where the Append frame of each record begins; consecutive seqs."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.offsets) - 1


class Tail:
    """Chunks in seq order without gaps. Appended at the end, dropped from the front.

    Short runs of frames become a chunk together, once somebody looks or they are long enough: most
    topics get a record at a time, and a chunk of each would cost more than its bytes.
    """

    __slots__ = ("_chunks", "_dropped", "_end_seq", "_fresh", "_fresh_bytes")

    def __init__(self) -> None:
        self._chunks: list[TailChunk] = []
        self._dropped = 0
        """Entries at the front that are gone but not yet cut off the list."""
        self._end_seq = 0
        """The seq behind the newest; only read while there are any."""
        self._fresh: list[tuple[bytes, Sequence[int]]] = []
        """Runs at the end that are in no chunk yet."""
        self._fresh_bytes = 0

    def __len__(self) -> int:
        self._join()
        return len(self._chunks) - self._dropped

    @property
    def first_seq(self) -> int | None:
        """The oldest seq that is here."""
        if len(self._chunks) == self._dropped:
            self._join()
        return self.first_chunk.first_seq if len(self._chunks) > self._dropped else None

    @property
    def first_chunk(self) -> TailChunk:
        self._join()
        return self._chunks[self._dropped]

    @property
    def last_seq(self) -> int | None:
        return self._end_seq - 1 if len(self) else None

    def append(self, chunk: TailChunk) -> None:
        self._join()
        self._continue(chunk.first_seq, len(chunk.offsets))
        self._chunks.append(chunk)

    def add(self, first_seq: int, buffer: bytes, offsets: Sequence[int]) -> None:
        """Frames of records that may share a chunk with those before and behind them."""
        if len(buffer) >= CHUNK_BYTES_MIN:
            self.append(TailChunk(first_seq, buffer, offsets))
            return
        self._continue(first_seq, len(offsets))
        self._fresh.append((buffer, offsets))
        self._fresh_bytes += len(buffer)
        if self._fresh_bytes >= CHUNK_BYTES_MIN:
            self._join()

    def _continue(self, first_seq: int, count: int) -> None:
        if first_seq != self._end_seq and (self._fresh or len(self._chunks) > self._dropped):
            raise InvariantError(f"tail ends at seq {self._end_seq - 1}, got seq {first_seq}")
        self._end_seq = first_seq + count

    def _join(self) -> None:
        """Make a chunk of what is in none."""
        fresh = self._fresh
        if not fresh:
            return
        offsets: list[int] = []
        at = 0
        for buffer, own in fresh:
            offsets += [at + offset for offset in own]
            at += len(buffer)
        joined = b"".join([buffer for buffer, _ in fresh])
        self._chunks.append(TailChunk(self._end_seq - len(offsets), joined, offsets))
        self._fresh = []
        self._fresh_bytes = 0

    def chunks(self, first_seq: int, last_seq: int) -> Iterator[TailChunk]:
        """The chunks that hold any seq of this range, in order."""
        self._join()
        chunks = self._chunks
        index = max(bisect_right(chunks, first_seq, key=_first_seq) - 1, self._dropped)
        while index < len(chunks) and chunks[index].first_seq <= last_seq:
            yield chunks[index]
            index += 1

    def drop_first(self) -> TailChunk:
        chunk = self.first_chunk
        self._dropped += 1
        if self._dropped * 2 > len(self._chunks):
            del self._chunks[: self._dropped]
            self._dropped = 0
        return chunk

    def clear(self) -> None:
        self._chunks.clear()
        self._fresh.clear()
        self._dropped = self._fresh_bytes = 0


_first_seq: Final = attrgetter("first_seq")


class TailCache:
    """How much of what is already in segments may stay in memory, over all topics.

    First in, first out: a reader near the head finds its records, a reader far behind does not
    push other topics' records out.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: deque[tuple[Tail, TailChunk]] = deque()
        self.bytes = 0

    def keep(self, tail: Tail, chunks: Sequence[TailChunk]) -> None:
        """These chunks are in a segment now; they may be dropped when room is needed."""
        self._kept.extend([(tail, chunk) for chunk in chunks])
        self.bytes += sum([len(chunk.buffer) for chunk in chunks])
        while self.bytes > self._bytes_max:
            old_tail, old = self._kept.popleft()
            self.bytes -= len(old.buffer)
            while old_tail.first_seq is not None and old_tail.first_seq <= old.first_seq:
                old_tail.drop_first()


class TopicStore(Protocol):
    """The engine, as far as its topics need it."""

    def plan(self, topic: Topic, from_seq: int, limit: int, bytes_max: int) -> ReadPlan: ...

    def read_index(self, topic: Topic) -> Callable[[], None]: ...

    def state(self, topic: Topic) -> TopicState: ...

    def note_damage(self, topic: Topic, findings: Sequence[RecordDamage]) -> None:
        """Bad frames were met, and the plan that met them is not out of date."""


@dataclass(slots=True, eq=False)
class Topic:
    is_announced: ClassVar[bool] = True
    topic_id: int
    name: str
    log: TopicLog
    store: TopicStore
    make_files: Callable[[], TopicFiles]
    """Makes its files when a call first needs them: most topics are idle."""
    _files: TopicFiles | None = None
    keys: IdempotencyWindow = field(default_factory=IdempotencyWindow)
    tail: Tail = field(default_factory=Tail)
    segments: list[Segment] = field(default_factory=list)
    """In seq order; the last one may still be open for appending."""
    checkpointed_seq: int = 0
    """Everything up to here is in segments, and the log knows it."""
    tail_bytes: int = 0
    """Frames that are in the log but not yet in segments."""
    logged_upto: int | None = None
    """While the class is ephemeral: the last seq that is in the log, from before it was so."""
    last_ts: int = 0
    shard: int = 0
    """Which shard of the log it lives in during this run."""
    in_flight: int = 0
    """Submissions that are not yet answered."""
    waiting: int = 0
    """Those of them whose acks wait for a sync."""
    unflagged: list[NDArray[numpy.int64]] = field(default_factory=list)
    """Seqs deleted in memory whose files do not know it yet."""
    durable_earliest: int = 1
    """The earliest live seq, as far as the disk knows: below it, segments may go."""
    stored: StoredTopic = field(default_factory=StoredTopic)
    """What the disk was last known to hold; used to read it back."""
    tags_complete: bool = True
    """False until the tags of records in segments were read."""
    untagged_upto: int = 0
    """The last seq whose tag may have to be read from a segment."""
    loaded: bool = True
    """False until the index files were read; the numbers are known all the same."""
    loading: Any = None
    """What was read from the files, until it is installed."""
    broken: StorageError | None = None
    """Its files could not be read at the start: every use is refused until they are restored."""
    dropped: bool = False
    creation: bytes | None = None
    """The frame that makes the topic, until it is known to be safe in the log."""
    configuring: bool = False
    """A change of its settings is on its way; the next one begins with what comes of it."""
    meta: TopicMeta | None = None
    """What the last snapshot said, as long as nothing changed since."""
    queue: TopicQueue | None = None
    """Its leases, once a call needs them."""
    lease_history: LeaseHistory | None = None
    """What the log says of its leases, until then."""
    inbound: InboundRoutes | None = None
    """The routers into this topic, if there are any."""
    outbound: Sequence[Router] = ()
    """Routers that copy from this topic."""
    waiters: set[Wakeup] = field(default_factory=set)
    unsynced_writes: int = 0
    """Writes that are visible and not yet known to be on stable storage."""
    last_synced_seq: int = 0
    """Up to here they are; only read while there are any."""

    @property
    def address(self) -> str:
        return self.name

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    @property
    def last_read_ts(self) -> int:
        return self.log.last_read_ts

    @property
    def epoch(self) -> int:
        """Counts the topics that had this name."""
        return self.log.epoch

    @property
    def visible_seq(self) -> int:
        """The last seq readers may see."""
        return self.log.visible_seq

    @property
    def earliest_seq(self) -> int:
        """The first live seq, also while the index files are not read."""
        known = None if self.loaded else self.meta
        return self.log.earliest_seq if known is None else known.earliest_seq

    @property
    def live_bytes(self) -> int:
        """Of the payloads, as `earliest_seq`."""
        known = None if self.loaded else self.meta
        return self.log.bytes if known is None else known.bytes

    @property
    def synced_seq(self) -> int:
        """The last visible record that a power loss cannot take."""
        return self.last_synced_seq if self.unsynced_writes else self.log.visible_seq

    @property
    def is_logged(self) -> bool:
        """Any of its records is, or was, in the log: what happens to them must be there too."""
        return self.logged_upto != 0

    def logs(self, seq: int) -> bool:
        """True when the record with this seq is in the log."""
        return self.logged_upto is None or seq <= self.logged_upto

    @property
    def files(self) -> TopicFiles:
        if self._files is None:
            self._files = self.make_files()
        return self._files

    @property
    def has_holes(self) -> bool:
        """Some records between the live ones are dead."""
        return self.log.count < len(self.log.index)

    @property
    def active_segment(self) -> Segment | None:
        """The segment that is still appended to, if there is one."""
        if self.segments and not self.segments[-1].sealed:
            return self.segments[-1]
        return None

    def segment_position(self, seq: int) -> int:
        """Position of the segment that holds `seq`, or of the next one behind it."""
        at = bisect_right(self.segments, seq, key=lambda segment: segment.first_seq) - 1
        return at if at >= 0 and self.segments[at].end_seq >= seq else at + 1

    def schedule(self, scheduled: Mapping[int, int]) -> None:
        """New jobs that may not be delivered before their times."""
        if self.queue is None:
            if self.lease_history is None:
                self.lease_history = LeaseHistory()
            self.lease_history.schedule(scheduled)
            return
        for seq, deliver_at_ms in scheduled.items():
            self.queue.leases.schedule(seq, deliver_at_ms)

    def touch(self, now_ms: int) -> None:
        self.log.last_read_ts = now_ms

    def read_index(self) -> Callable[[], None]:
        return self.store.read_index(self)

    def plan(self, from_seq: int, limit: int, bytes_max: int) -> ReadPlan:
        return self.store.plan(self, from_seq, limit, bytes_max)

    def state(self) -> TopicState:
        return self.store.state(self)

    def wake(self) -> None:
        """Wake all that wait for something new. A wake-up is used once."""
        if self.waiters:
            waiters, self.waiters = self.waiters, set()
            for wakeup in waiters:
                wakeup()


class RouterDefinition(Change):
    """A router on its way to the log. A second request for the same gets its answer."""

    def __init__(
        self, take_effect: Callable[[], tuple[Any, bool]], give_up: Callable[[], None]
    ) -> None:
        super().__init__(take_effect, give_up)
        self._followers: list[Change] = []

    def follow(self) -> Change:
        follower = Change(lambda: True)
        self._followers.append(follower)
        return follower

    def succeed(self, result: tuple[Any, bool]) -> None:
        super().succeed(result)
        for follower in self._followers:
            follower.succeed((result[0], False))

    def fail(self, error: HeadwaterError) -> None:
        super().fail(error)
        for follower in self._followers:
            follower.fail(error)


@dataclass(slots=True, eq=False)
class Router:
    router_id: int
    name: str
    settings: RouterSettings
    source: Topic
    dest: Topic
    cursor: RouterCursor
    number: int = 0
    """Of its newest mark."""
    matcher: TagMatcher | None = None
    made: bool = False
    """The log has its definition."""
    definition: RouterDefinition | None = None
    """Until then: what is on its way there."""
    stopped: bool = True
    """Nothing is copied: it is not made yet, or on its way out."""
    busy: bool = False
    """A batch of copies is on its way through the log."""
    in_circle: bool = False
    unmarked: bool = False
    """Its source went back in a crash; that must be durable before anything is copied."""

    def __post_init__(self) -> None:
        self.matcher = self.settings.matcher

    @property
    def exactly_once(self) -> bool:
        return self.settings.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def lag(self) -> int:
        """Records of the source it has not come to."""
        return max(self.source.log.visible_seq - self.cursor.source_seq, 0)

    def next_mark(self) -> RouterMark:
        """The mark of this moment, with everything in its destination flushed."""
        self.number += 1
        cursor = self.cursor
        return RouterMark(
            self.router_id,
            self.number,
            cursor.source_seq,
            self.dest.log.visible_seq,
            cursor.forwarded_total,
        )

    def marked(self, mark: RouterMark) -> None:
        """It is durable. Marks may become so in another order than they were made in."""
        if mark.source_seq >= self.cursor.mark.source_seq:
            self.cursor.marked(CursorMark(mark.source_seq, mark.dest_seq))

    def meta(self) -> RouterMeta:
        """What a snapshot says of it: the newest mark that what is durable allows."""
        mark = self.cursor.mark
        dest = self.dest
        if dest.inbound is not None and dest.inbound.unflushed_from is None:
            # Copies that went through the log unsynced are not in the way: they never do.
            mark = CursorMark(self.cursor.source_seq, dest.log.visible_seq)
        self.number += 1
        return RouterMeta(
            self.router_id,
            self.name,
            self.source.topic_id,
            dest.topic_id,
            self.settings.to_stored(),
            self.number,
            mark.source_seq,
            mark.dest_seq,
            self.cursor.forwarded_total,
        )


class InboundRoutes(msgspec.Struct):
    """What the routers into a topic have done to it."""

    routers: list[Router] = msgspec.field(default_factory=list)
    unflushed_from: int | None = None
    """The first seq of a copy that is in memory only."""
    last_copy: int = 0

    @property
    def is_exact(self) -> bool:
        """Each source seq has one seq here, so no other write may take any."""
        return any(router.exactly_once for router in self.routers)

    @property
    def is_held(self) -> bool:
        """A router waits for room here. All of them have the same source."""
        return any(router.cursor.held for router in self.routers)

    def note_copies(self, first_seq: int, last_seq: int) -> None:
        if self.unflushed_from is None:
            self.unflushed_from = first_seq
        self.last_copy = last_seq

    def marked(self, marks: Iterable[RouterMark]) -> None:
        """These marks are durable."""
        by_id = {mark.router_id: mark for mark in marks}
        for router in self.routers:
            if router.router_id in by_id:
                router.marked(by_id[router.router_id])

    def flushed(self, upto_seq: int) -> None:
        """Everything up to here is in segments or in the log, synced."""
        if self.unflushed_from is not None and upto_seq >= self.unflushed_from:
            self.unflushed_from = upto_seq + 1 if self.last_copy > upto_seq else None


class Registry(TopicTable[Topic]):
    """The table of topics, with their names in order."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._sorted = True

    def get(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFoundError(f"there is no topic {name!r}", detail={"topic": name})
        return topic

    def take_id(self) -> int:
        topic_id = self.next_topic_id
        self.next_topic_id += 1
        return topic_id

    def add(self, topic: Topic) -> None:
        super().add(topic)
        self._names.append(topic.name)
        self._sorted = False

    def remove(self, topic: Topic) -> None:
        super().remove(topic)
        self._names = list(self._by_name)
        self._sorted = False

    def names(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Names in order that begin with `prefix` and come after `after`."""
        if not self._sorted:
            self._names.sort()  # nearly in order already, so nearly free
            self._sorted = True
        at = bisect_left(self._names, max(prefix, after or ""))
        for name in itertools.islice(self._names, at, None):
            if not name.startswith(prefix):
                return
            if after is None or name > after:
                yield name
