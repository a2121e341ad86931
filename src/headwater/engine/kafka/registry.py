"""Which topics there are: by name, by id and by the key in index entries."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.engine.kafka.partition import KafkaPartition, KafkaTopic
from headwater.recovery.history.kafka import KafkaTable


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
