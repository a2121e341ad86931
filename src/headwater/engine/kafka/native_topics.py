"""A log topic as Kafka clients see it: one partition, whose offset is the seq less one.

Nothing is kept of its records: numbers come from the topic, a batch that is written becomes an
append of the engine (`native_produce`), and records that are read become a batch (`native_fetch`).
Gaps that deletes left are gaps between offsets, as after a compaction.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from headwater.config.topic import TopicType
from headwater.core.durability import Durability
from headwater.engine.drivers import OwnerDriver
from headwater.engine.engine import Engine
from headwater.engine.kafka.errors import OffsetRangeError, TopicPolicyError
from headwater.engine.kafka.native_fetch import NativeFetch, NativeLookup, first_at, newest
from headwater.engine.kafka.native_produce import NativeAppender
from headwater.engine.kafka.topics import TOPIC_NAME
from headwater.engine.operation import Operation
from headwater.engine.owner import Pending
from headwater.engine.partition import Batch, Produced, Wakeup
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import delete_operation
from headwater.format.kafka.batch import BatchHeader

ORGANISATION: Final = 1
"""Topics of the engine belong to the first organisation; others see only their own."""
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


class NativeTopic:
    __slots__ = ("name", "native", "partitions", "topic_id")
    org = ORGANISATION
    altered = None

    def __init__(self, native: Topic, name: str, engine: Engine, driver: OwnerDriver) -> None:
        self.native = native
        self.name = name
        self.topic_id = _ID_PREFIX + native.topic_id.to_bytes(8, "big")
        self.partitions = [NativePartition(self, engine, driver)]

    @property
    def configs(self) -> dict[str, str]:
        """As its settings are by now."""
        settings = self.native.log.settings
        return {
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(settings.ttl_ms or -1),
            "retention.bytes": str(settings.cap_bytes or -1),
        }

    @property
    def epoch(self) -> int:
        return self.native.epoch

    @property
    def dropped(self) -> bool:
        return self.native.dropped

    def _refuse(self, *_: Any) -> NoReturn:
        raise TopicPolicyError(
            f"{self.name!r} is a topic of Headwater's own; change it over HTTP or headwater topic",
        )

    drop = grow = alter = _refuse


class NativePartition:
    __slots__ = ("_appender", "_driver", "_engine", "_native", "topic")

    def __init__(self, topic: NativeTopic, engine: Engine, driver: OwnerDriver) -> None:
        self.topic = topic
        self._native = topic.native
        self._engine = engine
        self._driver = driver
        self._appender = NativeAppender(engine, topic.native)

    @property
    def high_watermark(self) -> int:
        return self._native.visible_seq

    @property
    def log_start_offset(self) -> int:
        return self._native.earliest_seq - 1

    @property
    def bytes(self) -> int:
        return self._native.live_bytes

    @property
    def waiters(self) -> set[Wakeup]:
        return self._native.waiters

    def append(
        self, batch: Batch, durability: Durability, _header: BatchHeader | None = None
    ) -> Pending[Produced]:
        operation = self._appender.produce_operation(memoryview(batch).tobytes(), durability)
        return self._driver.begin(operation)

    def refused(self, header: BatchHeader) -> None:
        self._appender.refused(header)

    def plan_fetch(self, offset: int, max_bytes: int) -> NativeFetch:
        return NativeFetch(self._engine.core, self._native, offset, max_bytes)

    def find_timestamp(self, timestamp_ms: int) -> NativeLookup:
        return NativeLookup(self._engine.core.owner, self._native, first_at(timestamp_ms))

    def find_newest(self) -> NativeLookup:
        return NativeLookup(self._engine.core.owner, self._native, newest)

    def delete_records(self, before_offset: int) -> Pending[int]:
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetRangeError(f"there are {self.high_watermark} records")
        return self._driver.begin(self._delete_operation(before_offset))

    def _delete_operation(self, before_offset: int) -> Operation[int]:
        yield from delete_operation(self._engine, self._native.name, before_offset + 1, None)
        return self.log_start_offset


def native_id(topic_id: bytes) -> int | None:
    """The engine's number of a topic that clients know by these sixteen bytes."""
    if not topic_id.startswith(_ID_PREFIX):
        return None
    return int.from_bytes(topic_id[len(_ID_PREFIX) :], "big")
