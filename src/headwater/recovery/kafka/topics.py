"""Which topics a reader of Kafka's log sees: what a checkpoint says of them, and the batches since.

`SeenTopics` takes in the log batch by batch, for a survey, a reader beside an owner, `verify` and a
repair alike: what a batch of the tail is, and whether it can be anyone's, is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.kafka import events
from headwater.format.kafka.checkpoint import KafkaCheckpoint
from headwater.format.kafka.entry import split_key, topic_hash
from headwater.format.kafka.events import INTERNAL_KEY, PREDECESSOR_MISSING, AnyEvent, decode_event
from headwater.recovery.history.kafka import KafkaFold, KafkaSink, KafkaTable

STRANGER: Final = "the entries are of a topic that does not exist"


@dataclass(slots=True)
class SeenPartition:
    dropped: int = 0
    """Records that went with deleted segments."""
    log_start: int = 0


@dataclass(slots=True)
class SeenTopic:
    org: int
    name: str
    topic_id: bytes
    made_id: int
    """Entries with its hash and an earlier id are of another topic that had the name."""
    partitions: list[SeenPartition]


class BatchVerdict(Enum):
    """What a sound batch of the tail is."""

    OURS = "a batch of a topic, or an event"
    STRANGER = STRANGER
    NEWER = "an event of a newer version"
    UNFOLLOWED = PREDECESSOR_MISSING


class TakenBatch(NamedTuple):
    verdict: BatchVerdict
    event: AnyEvent | None = None
    problem: str = ""
    """Why it does not count; empty when it does."""


class SeenTopics(KafkaTable[SeenTopic], KafkaSink[SeenTopic]):
    """Which topics there are, and where their logs start."""

    def __init__(self, checkpoint: KafkaCheckpoint) -> None:
        super().__init__()
        self._fold = KafkaFold(self, self)
        self._by_hash: dict[tuple[int, bytes], list[SeenTopic]] = {}
        self._not_hashed: list[SeenTopic] = []
        self._owned: set[bytes] = set()
        for meta in checkpoint.topics:
            partitions = [SeenPartition(each.dropped, each.log_start) for each in meta.partitions]
            self.add(SeenTopic(meta.org, meta.name, meta.topic_id, meta.made_id, partitions))

    def add(self, topic: SeenTopic) -> None:
        super().add(topic)
        self._not_hashed.append(topic)

    def take_in(self, event: AnyEvent, event_id: int) -> None:
        self._fold.take(event, event_id)

    def take_batch(self, first_id: int, key: bytes, batch: memoryview) -> TakenBatch:
        """The next sound batch of the log. One that does not count changes nothing."""
        if key == INTERNAL_KEY:
            return self.take_event(first_id, batch)
        if self.owns(key):
            return _OURS
        # Counted to no topic, its records would give those behind them the seqs before theirs.
        return _STRANGER

    def take_event(self, event_id: int, batch: memoryview) -> TakenBatch:
        try:
            event = decode_event(batch)
        except FormatError as error:
            return TakenBatch(BatchVerdict.NEWER, None, error.reason)
        if isinstance(event, events.SegmentBegun) and event.base_id != event_id:
            return TakenBatch(BatchVerdict.UNFOLLOWED, event, PREDECESSOR_MISSING)
        self._fold.take(event, event_id)
        return TakenBatch(BatchVerdict.OURS, event)

    def owns(self, key: bytes) -> bool:
        """Whether entries of this key can be anybody's: of a topic there is, or was until now."""
        if key in self._owned:
            return True
        for topic in self._not_hashed:
            hashed = topic.org, topic_hash(topic.org, topic.name)
            self._by_hash.setdefault(hashed, []).append(topic)
        self._not_hashed.clear()
        org, hashed_name, partition = split_key(key)
        same_hash = self._by_hash.get((org, hashed_name), ())
        owned = any(partition < len(topic.partitions) for topic in same_hash)
        if owned:
            self._owned.add(key)
        return owned

    # -- the fold's sink

    def make(self, event: events.TopicMadeEvent, event_id: int) -> SeenTopic:
        partitions = [SeenPartition() for _ in range(event.partitions)]
        return SeenTopic(event.org, event.name, event.topic_id, event_id, partitions)

    def add_partitions(self, topic: SeenTopic, total: int) -> None:
        topic.partitions += [SeenPartition() for _ in range(total - len(topic.partitions))]

    def move_log_start(self, topic: SeenTopic, partition: int, offset: int) -> None:
        seen = topic.partitions[partition]
        seen.log_start = max(seen.log_start, offset)


_OURS: Final = TakenBatch(BatchVerdict.OURS)
_STRANGER: Final = TakenBatch(BatchVerdict.STRANGER, None, STRANGER)
