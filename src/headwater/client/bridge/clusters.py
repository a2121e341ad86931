"""The two ends of a bridge, through librdkafka. The only module that imports it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final, TypeVar

from headwater.client.bridge.settings import Cluster, Settings
from headwater.client.bridge.statement import BridgeStoppedError, Watermarks
from headwater.core.clock import SystemClock
from headwater.core.errors import InvalidRequestError, RequestError, UnavailableError
from headwater.core.units import US_PER_S

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicCollection,
    )
    from confluent_kafka import TopicPartition as Spot
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._listoffsets import OffsetSpec
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:
    raise RequestError(
        "headwater bridge needs a Kafka client: pip install 'headwater[kafka]'"
    ) from error

ANSWER_S: Final = 30.0
"""How long an end may take to answer before it counts as away."""
FLUSH_STEP_S: Final = 0.5
POLL_S: Final = 0.1
"""How long one poll waits: a consumer waits for as many records as were requested."""
_SILENT: Final = logging.Logger("librdkafka")
"""It prints what kills a producer, which the bridge reports itself."""
_SILENT.addHandler(logging.NullHandler())
_CALLING_AGAIN: Final[Settings] = {"reconnect.backoff.max.ms": 2_000}
"""A cluster that was away is noticed soon when it is back."""
_READING: Final[Settings] = {
    "group.id": "headwater-bridge",  # never joined, and required all the same
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
    # What waits while the destination is away: bounded, with room for the largest record.
    "queue.buffering.max.kbytes": 131_072,
    "linger.ms": 10,
}
_FOR_EVER: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_MINE: Final = frozenset((*_READING, *_WRITING)) - {
    "linger.ms",
    "message.max.bytes",
    "queue.buffering.max.kbytes",
}
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
_GONE: Final = frozenset((KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART))
_OVERTAKEN: Final = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE))
_REASONS: Final = frozenset(
    (
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._RESOLVE,
        KafkaError._TRANSPORT,
    )
)
_FORBIDDEN: Final = frozenset(
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
)
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that a cluster from before there were ids of topics gives."""
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
Delivered = Callable[[Any, Any], None]
Client = TypeVar("Client")


class AwayError(UnavailableError):
    """A cluster does not answer."""


class ClusterErrors:
    """The reason why a cluster does not answer: librdkafka reports it beside the answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last: KafkaError | None = None

    def on_error(self, error: KafkaError) -> None:
        if error.code() in _REASONS:
            self._last = error

    def forget(self) -> None:
        """It answered."""
        self._last = None

    @property
    def is_refused(self) -> bool:
        """Trying again does not help."""
        return self._last is not None and self._last.code() == KafkaError._AUTHENTICATION

    def error(self, error: KafkaException) -> RequestError | AwayError:
        if error.args[0].code() in _FORBIDDEN:
            return InvalidRequestError(f"{self._cluster} refuses: {error.args[0].str()}")
        why = self._last or error.args[0]
        if self.is_refused:
            return InvalidRequestError(f"{self._cluster} refuses: {why.str()}")
        hint = ""
        if why.code() == KafkaError._TRANSPORT and "state CONNECT" not in why.str():
            hint = "; it hangs up on us. Does it want a user and a password, or TLS (kafkas://)?"
        return AwayError(f"{self._cluster} does not answer: {why.str()}{hint}")


def _client(
    make: Callable[[Any], Client], cluster: Cluster, wanted: Settings, errors: ClusterErrors
) -> Client:
    refused = sorted(_MINE & set(cluster.settings))
    if refused:
        raise RequestError(f"{refused[0]} is set by the bridge and cannot be chosen")
    try:
        settings: dict[str, Any] = {**_CALLING_AGAIN, **wanted, **cluster.settings}
        if "debug" not in cluster.settings:
            settings["logger"] = _SILENT
        return make({**settings, "log_level": 2, "error_cb": errors.on_error})
    except KafkaException as error:
        said = " ".join(error.args[0].str().split())
        raise InvalidRequestError(f"settings of {cluster}: {said}") from error
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"settings of {cluster}: {error}") from error


class ClusterReader:
    """A cluster that is read: assigned partitions, no group."""

    def __init__(self, cluster: Cluster, more: Settings | None = None) -> None:
        self._cluster = cluster
        self._errors = ClusterErrors(cluster)
        self._consumer = _client(Consumer, cluster, {**_READING, **(more or {})}, self._errors)

    @cached_property
    def _admin(self) -> AdminClient:
        return _client(AdminClient, self._cluster, {}, self._errors)

    def partitions(self) -> dict[str, list[int]]:
        """Every topic, before anything is read. Asking for one by name might make it."""
        topics = self._metadata().topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def cluster_id(self) -> str | None:
        found: str | None = self._metadata().cluster_id
        return found

    def _metadata(self) -> Any:
        """Retries with growing timeouts; an error that waiting cannot help is raised at once."""
        clock = SystemClock()
        until_us = clock.monotonic_us() + int(ANSWER_S * US_PER_S)
        step_s = 1.0
        while True:
            try:
                found = self._consumer.list_topics(timeout=step_s)
                self._errors.forget()
                return found
            except KafkaException as error:
                self._consumer.poll(POLL_S)  # calls on_error with the reason
                if self._errors.is_refused or clock.monotonic_us() >= until_us:
                    raise self._errors.error(error) from error
                step_s = min(step_s * 2, ANSWER_S / 2)

    def topic_ids(
        self, topics: Iterable[str], timeout_s: float = ANSWER_S
    ) -> dict[str, str | None]:
        """Of those that are there. A topic that is made anew has the same name and another id."""
        found: dict[str, str | None] = {}
        requested = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=timeout_s
        )
        for topic, answer in requested.items():
            try:
                topic_id = str(answer.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() in _GONE:
                    continue
                raise self._errors.error(error) from error
            found[topic] = None if topic_id == _NO_ID else topic_id
        self._errors.forget()
        return found

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Of those the cluster describes: not every user may read them."""
        found: dict[str, dict[str, str]] = {}
        requested = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        for resource, answer in self._admin.describe_configs(
            requested, request_timeout=ANSWER_S
        ).items():
            try:
                rows = answer.result()
            except KafkaException:
                continue
            found[resource.name] = {name: str(row.value) for name, row in rows.items()}
        return found

    def watermarks(self, topic: str, partition: int) -> Watermarks:
        """Waits for a partition that was made just now: not every broker knows it at once."""
        spot = Spot(topic, partition)
        for left in reversed(range(int(ANSWER_S / POLL_S))):
            try:
                return Watermarks(*self._consumer.get_watermark_offsets(spot, timeout=ANSWER_S))
            except KafkaException as error:
                if not left or error.args[0].code() not in _SOON:
                    raise self._errors.error(error) from error
            self._consumer.list_topics(topic, timeout=ANSWER_S)
            self._consumer.poll(POLL_S)
        raise AwayError(f"{self._cluster} does not say where {topic}/{partition} ends")

    def ends(
        self, spots: Iterable[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        """Where partitions end just now; nothing about those that are not there."""
        requested = {Spot(*each): _LATEST for each in spots}
        found: dict[tuple[str, int], int] = {}
        for spot, answer in self._admin.list_offsets(requested, request_timeout=timeout_s).items():
            try:
                found[spot.topic, spot.partition] = answer.result().offset
            except KafkaException as error:
                if error.args[0].code() not in _SOON:
                    raise self._errors.error(error) from error
        self._errors.forget()
        return found

    def known_end(self, topic: str, partition: int) -> int:
        """As of the last answer; -1 before there was one."""
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


def is_overtaken(error: KafkaError) -> bool:
    """What was to be read next is not there any more."""
    return error.code() in _OVERTAKEN


def is_too_large(error: KafkaError) -> bool:
    return error.code() == KafkaError.MSG_SIZE_TOO_LARGE


class ClusterWriter:
    """A cluster that is written to, by one idempotent producer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        errors = ClusterErrors(cluster)
        self._producer = _client(Producer, cluster, _WRITING, errors)
        self._admin = _client(AdminClient, cluster, {}, errors)

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
        """Delete records that are not needed any more. They stay where the user may not delete."""
        self._admin.delete_records([Spot(topic, partition, offset)])

    def copy(self, message: Message, topic: str, delivered: Delivered) -> bool:
        """The same record to the same partition. False where there is no room for it now."""
        timestamp = message.timestamp()[1]
        return self.send(
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
    ) -> bool:
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
        except BufferError as error:
            if not len(self._producer):
                raise RequestError(
                    f"a record of {topic}/{partition} is larger than queue.buffering.max.kbytes; "
                    "raise that in --to-config"
                ) from error
            return False
        except KafkaException as error:
            raise self._refused(error) from error
        return True

    def poll(self, timeout_s: float = 0.0) -> None:
        """Let the producer call back for what the cluster answered."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            self._poll_rest()
            raise self._refused(error) from error

    def finish(self, patience_s: float) -> int:
        """Wait while answers come; gives how many did not."""
        left, quiet_s = len(self._producer), 0.0
        while left and quiet_s < patience_s:
            before = left
            try:
                left = self._producer.flush(FLUSH_STEP_S)
            except KafkaException as error:
                self._poll_rest()
                raise self._refused(error) from error
            quiet_s = quiet_s + FLUSH_STEP_S if left >= before else 0.0
        return left

    def _poll_rest(self) -> None:
        """A producer that gives up reports that first, and then the error of each record."""
        for _ in range(int(1 / POLL_S)):
            if not len(self._producer):
                return
            self._producer.poll(POLL_S)

    def _refused(self, error: KafkaException) -> BridgeStoppedError:
        return BridgeStoppedError(f"{self._cluster} does not take copies: {error.args[0].str()}")
