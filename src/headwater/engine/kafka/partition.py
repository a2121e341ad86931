"""Virtual topics and their partitions: which of the shared log's records belong to which.

A partition is a bitmap of global ids. A record's offset is its rank in it, plus the number of
records that went with deleted segments. Idle partitions are many, so what most of them never need
is made when it is first used.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from headwater.config.topic import DEFAULT_TOPIC_SETTINGS
from headwater.core.durability import Durability
from headwater.core.results import TopicState
from headwater.engine.kafka.producers import Producers
from headwater.engine.owner import Pending
from headwater.engine.partition import Batch, BatchPlan, OffsetLookup, Produced, ReadPlan, Wakeup
from headwater.format.kafka.batch import BatchHeader
from headwater.format.kafka.checkpoint import KafkaTopicMeta, PartitionMeta
from headwater.format.kafka.entry import PREFIX_BYTES, entry_key, key_text, split_key, topic_hash
from headwater.format.kafka.names import partition_name
from headwater.model.idempotency import IdempotencyWindow
from headwater.recovery.history.kafka import KafkaTable

ALL_RECORDS: Final = sys.maxsize
"""For a fetch that ends at its bytes only."""
_INDEX_BITS: Final = 32
_TRIM_TAIL: Final = 64
"""Dropped batches that may stand at the front of a tail before its lists are cut."""


class PartitionTail:
    """Newest batches of a partition in memory, with the offsets they have. Front to back.

    They are kept as plain bytes, with the prefix they have in the log: a view of each would be one
    more object to visit in every garbage collection.
    """

    __slots__ = ("bases", "batches", "closed_sizes", "first")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.batches: list[bytes] = []
        self.first = 0
        """Those before this position are dropped."""
        self.closed_sizes: deque[int] | None = None
        """Set once it is dropped: not read any more, but still in the queue of what makes room."""

    def add(self, base_offset: int, body: bytes) -> None:
        self.bases.append(base_offset)
        self.batches.append(body)

    def close(self) -> None:
        self.closed_sizes = deque(map(len, self.batches[self.first :]))
        self.bases, self.batches = [], []

    def drop_first(self) -> int:
        """Let go of the oldest batch; its bytes."""
        if self.closed_sizes is not None:
            return self.closed_sizes.popleft()
        size = len(self.batches[self.first])
        self.batches[self.first] = b""
        self.first += 1
        if self.first == len(self.bases):
            self.bases.clear()
            self.batches.clear()
            self.first = 0
        elif self.first >= _TRIM_TAIL and self.first * 2 >= len(self.bases):
            del self.bases[: self.first]
            del self.batches[: self.first]
            self.first = 0
        return size

    def read(
        self, offset: int, max_bytes: int, records_max: int
    ) -> list[bytes | memoryview] | None:
        """Whole batches from the one with this offset on, at least one, and no more than these
        many records need; None if it is not here."""
        at = bisect_right(self.bases, offset, self.first) - 1
        if at < self.first:
            return None
        batches: list[bytes | memoryview] = []
        size = 0
        # Offsets have no gaps: a batch that begins behind the last record is not needed.
        end = bisect_left(self.bases, offset + records_max, at + 1)
        for index in range(at, end):
            body = self.batches[index]
            size += len(body) - PREFIX_BYTES
            if batches and size > max_bytes:
                break
            batches.append(memoryview(body)[PREFIX_BYTES:])
        return batches


@dataclass(frozen=True, slots=True)
class PartitionCalls:
    """Which parts of the store do what a partition or its topic is asked."""

    append: Callable[[KafkaPartition, Batch, Durability, BatchHeader | None], Pending[Produced]]
    refused: Callable[[KafkaPartition, BatchHeader], None]
    plan: Callable[[KafkaPartition, int, int, int], ReadPlan]
    plan_fetch: Callable[[KafkaPartition, int, int, int], BatchPlan]
    find_timestamp: Callable[[KafkaPartition, int], OffsetLookup]
    find_newest: Callable[[KafkaPartition], OffsetLookup]
    delete_records: Callable[[KafkaPartition, int], Pending[int]]
    drop: Callable[[KafkaTopic], Pending[bool]]
    grow: Callable[[KafkaTopic, int], Pending[bool]]
    alter: Callable[[KafkaTopic, Mapping[str, str]], Pending[bool]]


class KafkaPartition:
    """One partition. The owner is the only one who touches it."""

    __slots__ = (
        "_waiters",
        "bytes",
        "entry_key",
        "high_watermark",
        "ids",
        "in_flight",
        "index",
        "keys",
        "last_read_ts",
        "log_start_offset",
        "next_offset",
        "producers",
        "removed",
        "sized_from",
        "tail",
        "topic",
        "waiting",
    )
    leader_epoch = 0
    is_announced = False
    loaded = True
    settings = DEFAULT_TOPIC_SETTINGS

    def __init__(self, topic: KafkaTopic, index: int) -> None:
        self.topic = topic
        self.index = index
        self.entry_key = entry_key(topic.org, topic.hashed, index)
        self.ids: BitMap64 | None = None
        self.removed = 0
        """Records that went with deleted segments: the offset of the first id that is left."""
        self.log_start_offset = 0
        self.high_watermark = 0
        self.next_offset = 0
        """The next batch's base offset; ahead of the high watermark while writes are under way."""
        self.in_flight = 0
        self.waiting = 0
        """Of these, writes whose ack waits for a sync: no other ack may overtake them."""
        self.bytes = 0
        """Bytes of batches from the log start on."""
        self.sized_from = 0
        """`bytes` counts from this log start on; maintenance moves it after the real one."""
        self.producers: Producers | None = None
        self.tail: PartitionTail | None = None
        self.keys: IdempotencyWindow | None = None
        """Of writes that came over other protocols than Kafka's, while the server runs."""
        self.last_read_ts = 0
        self._waiters: set[Wakeup] | None = None

    @property
    def key_text(self) -> str:
        """`{org}-{hash in decimal}-{partition}`"""
        return key_text(*split_key(self.entry_key))

    @property
    def waiters(self) -> set[Wakeup]:
        """Called once each when there is something new, and then forgotten."""
        if self._waiters is None:
            self._waiters = set()
        return self._waiters

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for wakeup in waiters or ():
            wakeup()

    # -- for every protocol: seqs are offsets plus one

    @property
    def topic_id(self) -> int:
        """Negative, since ids of topics of the engine are not."""
        return -(self.topic.made_id << _INDEX_BITS | self.index) - 1

    @property
    def name(self) -> str:
        return partition_name(self.topic.name, self.index)

    @property
    def address(self) -> str:
        return f"{self.topic.org}/{self.name}"

    @property
    def epoch(self) -> int:
        return self.topic.made_id + 1

    @property
    def dropped(self) -> bool:
        return self.topic.dropped

    @property
    def visible_seq(self) -> int:
        return self.high_watermark

    @property
    def earliest_seq(self) -> int:
        return self.log_start_offset + 1

    def touch(self, now_ms: int) -> None:
        self.last_read_ts = now_ms

    def read_index(self) -> Callable[[], None]:
        return _nothing

    def plan(self, from_seq: int, limit: int, bytes_max: int) -> ReadPlan:
        return self.topic.calls.plan(self, from_seq, limit, bytes_max)

    def state(self) -> TopicState:
        earliest, head = self.earliest_seq, self.high_watermark
        return TopicState(
            topic=self.name,
            type=self.settings.type.value,
            head_seq=head,
            earliest_seq=earliest,
            next_seq=head + 1,
            count=head + 1 - earliest,
            bytes=self.bytes,
            evict_floor=earliest,
            epoch=self.epoch,
            last_write_ts=None,
            last_read_ts=self.last_read_ts or None,
            config=dict(self.topic.configs),
        )

    # -- for Kafka's protocol

    def append(
        self, batch: Batch, durability: Durability, header: BatchHeader | None = None
    ) -> Pending[Produced]:
        return self.topic.calls.append(self, batch, durability, header)

    def refused(self, header: BatchHeader) -> None:
        self.topic.calls.refused(self, header)

    def plan_fetch(self, offset: int, max_bytes: int, records_max: int = ALL_RECORDS) -> BatchPlan:
        """Kafka's protocol has no limit of records; others have."""
        return self.topic.calls.plan_fetch(self, offset, max_bytes, records_max)

    def find_timestamp(self, timestamp_ms: int) -> OffsetLookup:
        return self.topic.calls.find_timestamp(self, timestamp_ms)

    def find_newest(self) -> OffsetLookup:
        return self.topic.calls.find_newest(self)

    def delete_records(self, before_offset: int) -> Pending[int]:
        return self.topic.calls.delete_records(self, before_offset)

    # -- for the store

    def own(self, first_id: int, end_id: int) -> None:
        """These global ids are the partition's newest records."""
        if self.ids is None:
            self.ids = BitMap64()
        self.ids.add_range(first_id, end_id)
        self.high_watermark += end_id - first_id

    def id_at(self, offset: int) -> int:
        """The global id of the record with this offset: the id selected at its rank."""
        assert self.ids is not None
        return int(self.ids[offset - self.removed])

    def meta(self) -> PartitionMeta:
        producers = () if self.producers is None else self.producers.meta()
        return PartitionMeta(self.removed, self.log_start_offset, producers)


def _nothing() -> None:
    """The index of every partition is in memory."""


class KafkaTopic:
    """A name, a number of partitions and configs."""

    epoch = 0
    """These topics have events in the log to distinguish those of one name."""
    __slots__ = (
        "altered",
        "calls",
        "configs",
        "dropped",
        "hashed",
        "made_id",
        "name",
        "org",
        "partitions",
        "saved",
        "topic_id",
    )

    def __init__(
        self,
        calls: PartitionCalls,
        org: int,
        name: str,
        topic_id: bytes,
        made_id: int,
        partitions: int,
        configs: dict[str, str],
    ) -> None:
        self.calls = calls
        self.org = org
        self.name = name
        self.topic_id = topic_id
        self.made_id = made_id
        """Entries with its hash and an earlier id are of another topic that had the name."""
        self.configs = configs
        self.altered: dict[str, str] | None = None
        """Configs that are on their way to the log: the next change begins with them."""
        self.hashed = topic_hash(org, name)
        self.partitions = [KafkaPartition(self, index) for index in range(partitions)]
        self.dropped = False
        self.saved: KafkaTopicMeta | None = None
        """Its entry in the last checkpoint, as long as nothing changed since."""

    def drop(self) -> Pending[bool]:
        return self.calls.drop(self)

    def grow(self, partitions: int) -> Pending[bool]:
        return self.calls.grow(self, partitions)

    def alter(self, configs: Mapping[str, str]) -> Pending[bool]:
        return self.calls.alter(self, configs)

    def add_partitions(self, total: int) -> list[KafkaPartition]:
        added = [KafkaPartition(self, index) for index in range(len(self.partitions), total)]
        self.partitions += added
        return added

    def meta(self) -> KafkaTopicMeta:
        if self.saved is None:
            self.saved = KafkaTopicMeta(
                self.org,
                self.name,
                self.topic_id,
                self.made_id,
                self.configs,
                tuple(partition.meta() for partition in self.partitions),
            )
        return self.saved


class TopicRegistry(KafkaTable[KafkaTopic]):
    """The owner's."""

    def __init__(self) -> None:
        super().__init__()
        self._by_key: dict[bytes, KafkaPartition] = {}

    @property
    def partitions(self) -> int:
        """Of all topics."""
        return len(self._by_key)

    def by_key(self, key: bytes) -> KafkaPartition | None:
        return self._by_key.get(key)

    def add(self, topic: KafkaTopic) -> None:
        super().add(topic)
        self.add_partitions(topic.partitions)

    def add_partitions(self, partitions: Iterable[KafkaPartition]) -> None:
        for partition in partitions:
            self._by_key[partition.entry_key] = partition

    def remove(self, topic: KafkaTopic) -> None:
        topic.dropped = True
        super().remove(topic)
        for partition in topic.partitions:
            if self._by_key.get(partition.entry_key) is partition:
                del self._by_key[partition.entry_key]
