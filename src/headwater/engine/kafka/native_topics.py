"""A log topic in the shape of a Kafka topic with one partition: the offset is the seq minus one.

The other way round than `partition_topics`: numbers come from the topic, and records that are read
become a record batch. Gaps that deletes left are gaps between offsets, as after a compaction.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.config.topic import TopicType
from headwater.engine.kafka.partition import KafkaTopic, Partition, Wakeup
from headwater.engine.kafka.producers import Producers
from headwater.engine.kafka.topics import TOPIC_NAME
from headwater.engine.owner import Owner
from headwater.engine.pending import Pending
from headwater.engine.state.topic import Topic
from headwater.format.kafka.batch import BatchHeader

ORGANISATION: Final = 1
"""Topics of the engine belong to the first organisation; others see only their own."""
PRODUCERS_MAX: Final = 10_000
_ID_PREFIX: Final = b"topic\x00\x00\x00"


def is_shown(topic: Topic) -> bool:
    """Queues are worked off and not read."""
    return topic.log.settings.type is TopicType.LOG and topic.broken is None


class KafkaNames:
    """What log topics are called among Kafka's, which may have no colon in their names: those that
    have one are not shown; but the transitions of the machines are, with a dot instead."""

    def __init__(self, transitions_topic: str | None) -> None:
        self._kept: dict[str, str] = {}
        """Kafka's name of a topic to its own."""
        if transitions_topic is not None and not _is_kafka_name(transitions_topic):
            self._kept[transitions_topic.replace(":", ".")] = transitions_topic

    def of(self, name: str) -> str | None:
        """Kafka's name for a log topic; None when it has none."""
        if _is_kafka_name(name):
            return name
        return next((kafka for kafka, own in self._kept.items() if own == name), None)

    def own(self, kafka_name: str) -> str | None:
        """The log topic this name is kept for, whether it is there or not."""
        return self._kept.get(kafka_name)


def _is_kafka_name(name: str) -> bool:
    return TOPIC_NAME.fullmatch(name) is not None


class Turns:
    """Hands batches to the log in the order they came, in whatever order they are decoded."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Pending[bool]] = deque()

    def take(self) -> Pending[bool]:
        """Answered when it is this one's turn."""
        turn: Pending[bool] = Pending()
        if self._is_taken:
            self._waiting.append(turn)
        else:
            self._is_taken = True
            turn.succeed(True)
        return turn

    def end(self, owner: Owner) -> None:
        if self._waiting:
            turn = self._waiting.popleft()
            owner.post(lambda: turn.succeed(True))
        else:
            self._is_taken = False


class NativePartition(Partition):
    """The numbers of a topic. What is set is forgotten: the topic knows them."""

    __slots__ = ("native", "turns")

    def __init__(self, topic: KafkaTopic, native: Topic) -> None:
        self.native = native
        self.turns = Turns()
        super().__init__(topic, 0)
        self.producers = Producers(PRODUCERS_MAX)
        """Of this run; keys in the log of the topic know what an earlier run took."""

    def refused(self, header: BatchHeader) -> None:
        """A batch was not taken, and will come again: what its producer sent behind it waits."""
        if header.producer_id >= 0 and self.producers is not None:
            self.producers.refuse(header)

    @property
    def high_watermark(self) -> int:
        return self.native.log.visible_seq

    @high_watermark.setter
    def high_watermark(self, _offset: int) -> None: ...

    @property
    def next_offset(self) -> int:
        return self.native.log.head_seq

    @next_offset.setter
    def next_offset(self, _offset: int) -> None: ...

    @property
    def log_start_offset(self) -> int:
        known = None if self.native.loaded else self.native.meta
        return (self.native.log.earliest_seq if known is None else known.earliest_seq) - 1

    @log_start_offset.setter
    def log_start_offset(self, _offset: int) -> None: ...

    @property
    def bytes(self) -> int:
        known = None if self.native.loaded else self.native.meta
        return self.native.log.bytes if known is None else known.bytes

    @bytes.setter  # noqa: A003
    def bytes(self, _bytes: int) -> None: ...

    @property
    def waiters(self) -> set[Wakeup]:
        return self.native.waiters


class NativeTopic(KafkaTopic):
    __slots__ = ("_native",)

    def __init__(self, native: Topic, name: str) -> None:
        self._native = native
        topic_id = _ID_PREFIX + native.topic_id.to_bytes(8, "big")
        super().__init__(ORGANISATION, name, topic_id, 0, 0, {})
        self.partitions = [NativePartition(self, native)]

    def is_of(self, topic: Topic) -> bool:
        return self._native is topic

    @property
    def configs(self) -> dict[str, str]:
        """As its settings are by now."""
        settings = self._native.log.settings
        return {
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(settings.ttl_ms or -1),
            "retention.bytes": str(settings.cap_bytes or -1),
        }

    @configs.setter
    def configs(self, _configs: dict[str, str]) -> None: ...

    @property
    def epoch(self) -> int:  # type: ignore[override]
        return self._native.log.epoch

    @property
    def dropped(self) -> bool:
        return self._native.dropped

    @dropped.setter
    def dropped(self, _dropped: bool) -> None: ...


def native_id(topic_id: bytes) -> int | None:
    """The engine's number of a topic that clients know by these sixteen bytes."""
    if not topic_id.startswith(_ID_PREFIX):
        return None
    return int.from_bytes(topic_id[len(_ID_PREFIX) :], "big")
