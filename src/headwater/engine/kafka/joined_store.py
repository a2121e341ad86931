"""All topics that Kafka clients see: those of the Kafka store, and log topics of the engine.

Log topics are shown to organisation 1; where both have a topic of one name, the Kafka topic is
meant. What is done with a topic or a partition, it does itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor

from headwater.config.topic import TopicType
from headwater.engine.drivers import OwnerDriver
from headwater.engine.engine import Engine
from headwater.engine.kafka.errors import TopicExistsError, TopicNameError
from headwater.engine.kafka.native_topics import (
    ORGANISATION,
    KafkaNames,
    NativeTopic,
    is_shown,
    native_id,
)
from headwater.engine.kafka.partition import KafkaTopic
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.kafka.unavailable import UnavailableKafka
from headwater.engine.owner import Pending
from headwater.engine.partition import BatchPartition, BatchTopic
from headwater.engine.state.topic import Topic


class JoinedStore:
    """For the owner, as the store."""

    def __init__(
        self, store: KafkaStore | UnavailableKafka, engine: Engine, readers: Executor
    ) -> None:
        self._store = store
        self._engine = engine
        self._driver = OwnerDriver(engine.core.owner, readers)
        self._natives: dict[int, NativeTopic] = {}
        self._names = KafkaNames(engine.core.settings.machines.transitions_topic)
        self.new_producer_id = store.new_producer_id

    # -- which there are

    @property
    def unavailable(self) -> UnavailableKafka | None:
        """The Kafka store, where it could not be opened. Topics of the engine are served."""
        return self._store if isinstance(self._store, UnavailableKafka) else None

    def may_exist(self, org: int, name: str) -> bool:
        """A topic that was not found: it may be in a log that is unavailable."""
        return self.unavailable is not None and self.topic(org, name) is None

    def listed(self, org: int) -> Iterable[BatchTopic]:
        """All topics by name, also of an unavailable log: for Metadata, which has no offsets."""
        if self.unavailable is not None:
            yield from self.unavailable.known(org)
        # A copy: a caller may take its time over them.
        yield from list(self._store.topics(org))
        if org == ORGANISATION:
            yield from self._shown()

    def _shown(self) -> Iterator[NativeTopic]:
        for topic in list(self._engine.core.registry):
            name = self._names.of(topic.name)
            if name is not None:
                shown = self.topic(ORGANISATION, name)
                if isinstance(shown, NativeTopic) and shown.native is topic:
                    yield shown

    def topic(self, org: int, name: str) -> BatchTopic | None:
        kafka_topic = self._store.topic(org, name)
        if kafka_topic is not None or org != ORGANISATION:
            return kafka_topic
        if self.unavailable is not None and self.unavailable.is_taken(org, name):
            return None  # a topic of the engine may have the same name, and is not meant
        for own in (name, self._names.own(name)):
            if own is not None and self._names.of(own) == name:
                topic = self._engine.find(own)
                if topic is not None and is_shown(topic):
                    return self._native(topic, name)
        return None

    def partition(self, org: int, name: str, index: int) -> BatchPartition | None:
        topic = self.topic(org, name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def topic_by_id(self, org: int, topic_id: bytes) -> BatchTopic | None:
        number = native_id(topic_id)
        if number is None or org != ORGANISATION:
            return self._store.topic_by_id(org, topic_id)
        known = self._natives.get(number)
        return None if known is None or known.dropped else known

    def _native(self, topic: Topic, name: str) -> NativeTopic:
        known = self._natives.get(topic.topic_id)
        if known is None:
            if len(self._natives) > 2 * len(self._engine.core.registry):
                self._natives = {n: each for n, each in self._natives.items() if not each.dropped}
            known = NativeTopic(topic, name, self._engine, self._driver)
            self._natives[topic.topic_id] = known
        return known

    # -- making one

    def check_new_topic(
        self, org: int, name: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        self._refuse_native_name(org, name)
        self._store.check_new_topic(org, name, partitions, configs)

    def create_topic(
        self, org: int, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> Pending[KafkaTopic]:
        self._refuse_native_name(org, name)
        return self._store.create_topic(org, name, partitions, configs)

    def _refuse_native_name(self, org: int, name: str) -> None:
        """Those of topics that are not shown too: one name is one topic."""
        if org != ORGANISATION or self._store.topic(org, name) is not None:
            return
        own = self._engine.find(name)
        if own is not None and own.log.settings.type is TopicType.QUEUE:
            # No client goes on after this one, as it would after a topic that is there.
            raise TopicNameError(
                f"{name!r} is a queue of Headwater's own and not for Kafka clients; "
                "write its jobs over HTTP",
            )
        if own is not None or self._names.own(name) is not None:
            raise TopicExistsError(f"topic {name!r} exists")
