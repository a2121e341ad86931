"""Which Kafka topics there are: what a checkpoint says of them, and the events since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.format.kafka import events
from headwater.format.kafka.checkpoint import KafkaCheckpoint
from headwater.format.kafka.entry import split_key
from headwater.format.kafka.topic_hash import topic_hash


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


class SeenTopics:
    """Which topics there are, and where their logs start."""

    def __init__(self, checkpoint: KafkaCheckpoint) -> None:
        self._by_id: dict[bytes, SeenTopic] = {}
        self._by_name: dict[tuple[int, str], SeenTopic] = {}
        self._by_hash: dict[tuple[int, bytes], list[SeenTopic]] = {}
        self._not_hashed: list[SeenTopic] = []
        self._owned: set[bytes] = set()
        for meta in checkpoint.topics:
            partitions = [SeenPartition(each.dropped, each.log_start) for each in meta.partitions]
            self._add(SeenTopic(meta.org, meta.name, meta.topic_id, meta.made_id, partitions))

    def __iter__(self) -> Iterator[SeenTopic]:
        return iter(self._by_id.values())

    def find(self, org: int, name: str) -> SeenTopic | None:
        return self._by_name.get((org, name))

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

    def take_in(self, event: events.AnyEvent, event_id: int) -> None:
        """What an event says about topics. One whose effect is known changes nothing."""
        if isinstance(event, events.TopicMade):
            if event.topic_id not in self._by_id:
                partitions = [SeenPartition() for _ in range(event.partitions)]
                self._add(SeenTopic(event.org, event.name, event.topic_id, event_id, partitions))
            return
        if not isinstance(
            event, events.TopicDropped | events.PartitionsAdded | events.LogStartMoved
        ):
            return
        topic = self._by_id.get(event.topic_id)
        if topic is None:
            return
        if isinstance(event, events.TopicDropped):
            del self._by_id[topic.topic_id]
            self._by_name.pop((topic.org, topic.name), None)
        elif isinstance(event, events.PartitionsAdded):
            missing = event.total - len(topic.partitions)
            topic.partitions += [SeenPartition() for _ in range(missing)]
        elif event.partition < len(topic.partitions):
            partition = topic.partitions[event.partition]
            partition.log_start = max(partition.log_start, event.offset)

    def _add(self, topic: SeenTopic) -> None:
        self._by_id[topic.topic_id] = topic
        self._by_name[topic.org, topic.name] = topic
        self._not_hashed.append(topic)
