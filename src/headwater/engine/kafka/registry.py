"""Which topics there are: by name, by id and by the key in index entries."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.engine.kafka.partition import KafkaTopic, Partition


class TopicRegistry:
    """The owner's. Organisations never see each other's topics: a lookup by name has the org."""

    def __init__(self) -> None:
        self._by_name: dict[int, dict[str, KafkaTopic]] = {}
        self._by_id: dict[bytes, KafkaTopic] = {}
        self._by_key: dict[bytes, Partition] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def partitions(self) -> int:
        """Of all topics."""
        return len(self._by_key)

    def all(self) -> Iterable[KafkaTopic]:
        return self._by_id.values()

    def of(self, org: int) -> Iterable[KafkaTopic]:
        return self._by_name.get(org, {}).values()

    def find(self, org: int, name: str) -> KafkaTopic | None:
        names = self._by_name.get(org)
        return None if names is None else names.get(name)

    def by_id(self, topic_id: bytes) -> KafkaTopic | None:
        return self._by_id.get(topic_id)

    def by_key(self, key: bytes) -> Partition | None:
        return self._by_key.get(key)

    def add(self, topic: KafkaTopic) -> None:
        self._by_name.setdefault(topic.org, {})[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.add_partitions(topic.partitions)

    def add_partitions(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._by_key[partition.entry_key] = partition

    def remove(self, topic: KafkaTopic) -> None:
        topic.dropped = True
        del self._by_id[topic.topic_id]
        names = self._by_name[topic.org]
        if names.get(topic.name) is topic:
            del names[topic.name]
        for partition in topic.partitions:
            if self._by_key.get(partition.entry_key) is partition:
                del self._by_key[partition.entry_key]
