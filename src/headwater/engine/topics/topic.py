"""One topic as the engine holds it: the rules (`TopicLog`), its newest frames, its files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from headwater.core.errors import StorageError
from headwater.engine.queues.state import TopicQueue
from headwater.engine.routers.state import InboundRoutes, Router
from headwater.engine.topics.tail import Tail
from headwater.format.snapshot import TopicMeta
from headwater.model.idempotency import IdempotencyWindow
from headwater.model.queue import LeaseHistory
from headwater.model.topic import TopicLog
from headwater.recovery.topics.stored_topic import StoredTopic
from headwater.store.segment import Segment
from headwater.store.topic_files import TopicFiles

Wakeup = Callable[[], None]


@dataclass(slots=True, eq=False)
class Topic:
    is_partition: ClassVar[bool] = False
    """Of a Kafka topic: the numbers and records of a partition, in the shape of a topic."""
    topic_id: int
    name: str
    log: TopicLog
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
        """What identifies it among all that can be followed: its name is not enough for that
        where organisations have names of their own."""
        return self.name

    @property
    def epoch(self) -> int:
        """Counts the topics that had this name."""
        return self.log.epoch

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

    def wake(self) -> None:
        """Wake all that wait for something new. A wake-up is used once."""
        if self.waiters:
            waiters, self.waiters = self.waiters, set()
            for wakeup in waiters:
                wakeup()
