"""All topics that Kafka clients see: those of the Kafka store, and log topics of the engine.

Has the surface of the store. Log topics are shown to organisation 1; where both have a topic of one
name, the Kafka topic is meant. What only one kind can do is refused for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from headwater.config.topic import TopicType
from headwater.core.driver import LATER, Finished, advance
from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError
from headwater.engine.engine import Engine
from headwater.engine.kafka.batch_appender import Produced
from headwater.engine.kafka.errors import (
    OffsetRangeError,
    TopicExistsError,
    TopicNameError,
    TopicPolicyError,
)
from headwater.engine.kafka.fetch_plan import FetchPlan
from headwater.engine.kafka.native_fetch import NativeFetch, NativeLookup, first_at, newest
from headwater.engine.kafka.native_produce import produce_operation
from headwater.engine.kafka.native_topics import (
    ORGANISATION,
    KafkaNames,
    NativePartition,
    NativeTopic,
    is_shown,
    native_id,
)
from headwater.engine.kafka.partition import KafkaTopic, Partition
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.kafka.timestamps import TimestampPlan
from headwater.engine.kafka.unavailable import UnavailableKafka
from headwater.engine.operation import Answered, InFiles, Operation, Step, do_as_owner
from headwater.engine.pending import Pending
from headwater.engine.topics.operations import delete_operation
from headwater.engine.topics.topic import Topic
from headwater.format.kafka.batch import BatchHeader

Lookup = TimestampPlan | NativeLookup
T = TypeVar("T")


class JoinedStore:
    """For the owner, as the store."""

    def __init__(
        self, store: KafkaStore | UnavailableKafka, engine: Engine, readers: Executor
    ) -> None:
        self._store = store
        self._engine = engine
        self._readers = readers
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

    def listed(self, org: int) -> Iterable[KafkaTopic]:
        """All topics by name, also of an unavailable log: for Metadata, which has no offsets."""
        if self.unavailable is not None:
            yield from self.unavailable.known(org)
        yield from self.topics(org)

    def topics(self, org: int) -> Iterable[KafkaTopic]:
        """Those there are now, as a copy: a caller may take its time over them."""
        yield from list(self._store.topics(org))
        if org == ORGANISATION:
            yield from self._shown()

    def _shown(self) -> Iterator[KafkaTopic]:
        for topic in list(self._engine.core.registry):
            name = self._names.of(topic.name)
            if name is not None:
                shown = self.topic(ORGANISATION, name)
                if isinstance(shown, NativeTopic) and shown.is_of(topic):
                    yield shown

    def topic(self, org: int, name: str) -> KafkaTopic | None:
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

    def kafka_partition(self, org: int, name: str, index: int) -> Partition | None:
        """One of the Kafka store's own."""
        topic = self._store.topic(org, name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def topic_by_id(self, org: int, topic_id: bytes) -> KafkaTopic | None:
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
            known = self._natives[topic.topic_id] = NativeTopic(topic, name)
        return known

    # -- changing them

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

    def delete_topic(self, topic: KafkaTopic) -> Pending[bool]:
        _refuse_native(topic)
        return self._store.delete_topic(topic)

    def add_partitions(self, topic: KafkaTopic, total: int) -> Pending[bool]:
        _refuse_native(topic)
        return self._store.add_partitions(topic, total)

    def alter_configs(self, topic: KafkaTopic, configs: Mapping[str, str]) -> Pending[bool]:
        _refuse_native(topic)
        return self._store.alter_configs(topic, configs)

    # -- records

    def append(
        self,
        partition: Partition,
        batch: bytes | memoryview,
        durability: Durability,
        header: BatchHeader | None = None,
    ) -> Pending[Produced]:
        if not isinstance(partition, NativePartition):
            return self._store.append(partition, batch, durability, header)
        return self._begin(produce_operation(self._engine, partition, bytes(batch), durability))

    def refused(self, partition: Partition, header: BatchHeader) -> None:
        """A batch was refused before it got here, for now."""
        if isinstance(partition, NativePartition):
            partition.refused(header)
        else:
            self._store.refused(partition, header)

    def plan_fetch(self, partition: Partition, offset: int, max_bytes: int) -> FetchPlan:
        if not isinstance(partition, NativePartition):
            return self._store.plan_fetch(partition, offset, max_bytes)
        return NativeFetch(self._engine, partition, offset, max_bytes)

    def find_timestamp(self, partition: Partition, timestamp_ms: int) -> Lookup:
        if not isinstance(partition, NativePartition):
            return self._store.find_timestamp(partition, timestamp_ms)
        return NativeLookup(self._engine, partition.native, first_at(timestamp_ms))

    def find_newest(self, partition: Partition) -> Lookup:
        if not isinstance(partition, NativePartition):
            return self._store.find_newest(partition)
        return NativeLookup(self._engine, partition.native, newest)

    def delete_records(self, partition: Partition, before_offset: int) -> Pending[int]:
        if not isinstance(partition, NativePartition):
            return self._store.delete_records(partition, before_offset)
        if not 0 <= before_offset <= partition.high_watermark:
            raise OffsetRangeError(f"there are {partition.high_watermark} records")
        return self._begin(_delete_operation(self._engine, partition, before_offset))

    # -- operations of the engine, which take steps

    def _begin(self, operation: Operation[T]) -> Pending[T]:
        response: Pending[T] = Pending()
        self._run(operation, response)
        return response

    def _run(
        self,
        operation: Operation[T],
        response: Pending[T],
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """As the owner: as far as it goes. What it waits for carries it on."""
        try:
            outcome = advance(operation, partial(self._do, operation, response), result, error)
        except HeadwaterError as refused:
            response.fail(refused)
        else:
            if isinstance(outcome, Finished):
                response.succeed(outcome.value)

    def _do(self, operation: Operation[T], response: Pending[T], step: Step) -> Any:
        if isinstance(step, InFiles):
            future = self._readers.submit(step.work)
            future.add_done_callback(partial(self._read, operation, response))
        elif isinstance(step, Answered):
            pending = step.start()
            if pending.done:
                return pending.answer()
            pending.on_done = partial(self._on_complete, operation, response)
        else:
            return do_as_owner(step)
        return LATER

    def _on_complete(
        self, operation: Operation[T], response: Pending[T], pending: Pending[Any]
    ) -> None:
        self._run(operation, response, pending.result, pending.error)

    def _read(self, operation: Operation[T], response: Pending[T], future: Future[Any]) -> None:
        error = future.exception()
        result = future.result() if error is None else None
        self._engine.core.owner.post(lambda: self._run(operation, response, result, error))


def _delete_operation(
    engine: Engine, partition: NativePartition, before_offset: int
) -> Operation[int]:
    yield from delete_operation(engine, partition.native.name, before_offset + 1, None)
    return partition.log_start_offset


def _refuse_native(topic: KafkaTopic) -> None:
    if isinstance(topic, NativeTopic):
        raise TopicPolicyError(
            f"{topic.name!r} is a topic of Headwater's own; change it over HTTP or headwater topic",
        )
