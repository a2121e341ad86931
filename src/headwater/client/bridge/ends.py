"""The two ends of a bridge, through librdkafka. The only module that imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from headwater.client.bridge.addresses import Cluster, Settings
from headwater.client.bridge.statement import Watermarks
from headwater.core.errors import RequestError, UnavailableError

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
    from confluent_kafka import TopicPartition as Spot
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:
    raise RequestError(
        "headwater bridge needs a Kafka client: pip install 'headwater[kafka]'"
    ) from error

ANSWER_S: Final = 30.0
"""How long an end may take to answer before it counts as away."""
LOOK_S: Final = 0.1
"""How long records are gathered: a consumer waits for as many as it was asked for."""
TIMESTAMP_OF_PRODUCER: Final = 1
_READING: Final[Settings] = {
    "group.id": "headwater-bridge",  # never joined, and asked for all the same
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "check.crcs": True,
}
_WRITING: Final[Settings] = {
    "enable.idempotence": True,
    "acks": "all",
    # A copy that is given up while later ones arrive would be a hole: never give up, or stop.
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
    "message.max.bytes": 100_000_000,
    "linger.ms": 10,
}
_FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_MINE: Final = frozenset((*_READING, *_WRITING)) - {"linger.ms", "message.max.bytes"}
_SOON: Final = frozenset(
    (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    )
)
"""What a cluster says about a partition that it is still making."""
Delivered = Callable[[Any, Any], None]


class AwayError(UnavailableError):
    """A cluster does not answer."""


def _settings(cluster: Cluster, wanted: Settings) -> Any:
    refused = sorted(_MINE & set(cluster.settings))
    if refused:
        raise RequestError(f"{refused[0]} is set by the bridge and cannot be chosen")
    return {**wanted, **cluster.settings, "log_level": 2}


def _away(cluster: Cluster, error: KafkaException) -> UnavailableError:
    return AwayError(f"{cluster} does not answer: {error.args[0].str()}")


class Reading:
    """A cluster that is read: assigned partitions, no group."""

    def __init__(self, cluster: Cluster, more: Settings | None = None) -> None:
        self._cluster = cluster
        self._consumer = Consumer(_settings(cluster, {**_READING, **(more or {})}))

    def partitions(self, timeout_s: float = ANSWER_S) -> dict[str, list[int]]:
        """Every topic. Asking for one by name would make it where that is allowed."""
        try:
            topics = self._consumer.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise _away(self._cluster, error) from error
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def watermarks(self, topic: str, partition: int) -> Watermarks:
        """Waits for a partition that was made just now: not every broker knows it at once."""
        spot = Spot(topic, partition)
        for left in reversed(range(int(ANSWER_S / LOOK_S))):
            try:
                return Watermarks(*self._consumer.get_watermark_offsets(spot, timeout=ANSWER_S))
            except KafkaException as error:
                if not left or error.args[0].code() not in _SOON:
                    raise _away(self._cluster, error) from error
            self._consumer.list_topics(topic, timeout=ANSWER_S)
            self._consumer.poll(LOOK_S)
        raise AwayError(f"{self._cluster} does not tell where {topic}/{partition} ends")

    def known_end(self, topic: str, partition: int) -> int:
        """As the last answer told it; -1 before there was one."""
        found = self._consumer.get_watermark_offsets(Spot(topic, partition), cached=True)
        return max(found[1], -1)

    def begin(self, spots: Iterable[tuple[str, int, int]]) -> None:
        self._consumer.assign([Spot(topic, partition, at) for topic, partition, at in spots])

    def take(self, most: int, timeout_s: float) -> list[Message]:
        return self._consumer.consume(most, timeout_s)

    def close(self) -> None:
        self._consumer.close()


def is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def read_range(
    cluster: Cluster, topic: str, partition: int, first: int, end: int
) -> Iterator[Message]:
    """Records of a partition from an offset on, as far as they are there."""
    reading = Reading(cluster)
    try:
        reading.begin([(topic, partition, first)])
        patience = int(ANSWER_S / LOOK_S)
        while first < end:
            found = reading.take(min(1_000, end - first), LOOK_S)
            patience = int(ANSWER_S / LOOK_S) if found else patience - 1
            if not patience:
                raise AwayError(f"{cluster} gives nothing of {topic}/{partition} from {first} on")
            for message in found:
                if is_end(message):
                    return
                if (error := message.error()) is not None:
                    raise AwayError(f"{cluster}, {topic}/{partition}: {error.str()}")
                first = (message.offset() or 0) + 1
                if first <= end:
                    yield message
    finally:
        reading.close()


def read_each(
    cluster: Cluster, places: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], Message]:
    """One record of each partition: the one at this offset, where it is still there."""
    found: dict[tuple[str, int], Message] = {}
    if not places:
        return found
    waiting = dict(places)
    reading = Reading(cluster, {"queued.min.messages": 1})
    try:
        reading.begin((*spot, offset) for spot, offset in places.items())
        patience = int(ANSWER_S / LOOK_S)
        while waiting:
            messages = reading.take(len(waiting), LOOK_S)
            patience = int(ANSWER_S / LOOK_S) if messages else patience - 1
            if not patience:
                raise AwayError(f"{cluster} gives nothing of {waiting} any more")
            for message in messages:
                spot = (message.topic() or "", message.partition() or 0)
                if (error := message.error()) is not None and not is_end(message):
                    raise AwayError(f"{cluster}, {spot[0]}/{spot[1]}: {error.str()}")
                if waiting.pop(spot, None) == message.offset() and not is_end(message):
                    found[spot] = message
    finally:
        reading.close()
    return found


class Writing:
    """A cluster that is written to, by one idempotent producer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = Producer(_settings(cluster, _WRITING))
        self._admin = AdminClient(_settings(cluster, {}))

    def make_topic(self, topic: str, partitions: int, *, for_ever: bool = False) -> None:
        """`for_ever`: with nothing that would make its records go by themselves."""
        new = NewTopic(topic, partitions, config=_FOR_EVER if for_ever else {})
        made = self._admin.create_topics([new], request_timeout=ANSWER_S)
        try:
            made[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RequestError(
                    f"{self._cluster} does not make topic {topic!r}: {error.args[0].str()}"
                ) from error

    def forget_before(self, topic: str, partition: int, offset: int) -> None:
        """Nobody needs these any more. Not all clusters let everybody delete: then they stay."""
        self._admin.delete_records([Spot(topic, partition, offset)])

    def copy(self, message: Message, topic: str, delivered: Delivered) -> None:
        """The same record to the same partition. Waits while there is no room."""
        timestamp = message.timestamp()[1]
        self.send(
            topic,
            message.partition() or 0,
            message.key(),
            message.value(),
            delivered,
            message.headers() or [],
            max(timestamp, 0),
        )

    def send(
        self,
        topic: str,
        partition: int,
        key: Any,
        value: Any,
        delivered: Delivered,
        headers: Any = (),
        timestamp: int = 0,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=list(headers),
                )
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise RequestError(
                    f"{self._cluster} does not take a copy: {error.args[0].str()}"
                ) from error

    def look(self, timeout_s: float = 0.0) -> None:
        """Hear what the cluster said."""
        self._producer.poll(timeout_s)

    def finish(self, timeout_s: float) -> int:
        """Wait until everything is answered; gives how much is not."""
        return self._producer.flush(timeout_s)


def same_record(one: Message, other: Message) -> bool:
    """Whether one is a copy of the other. A destination may set times of its own."""
    one_kind, one_time = one.timestamp()
    other_kind, other_time = other.timestamp()
    return (
        one.key() == other.key()
        and one.value() == other.value()
        and (one.headers() or []) == (other.headers() or [])
        and (
            TIMESTAMP_OF_PRODUCER not in (one_kind, other_kind)
            or one_kind != other_kind
            or one_time == other_time
        )
    )
