"""The partitions of one organisation by name, for every protocol but Kafka's.

What names of Kafka's topics cannot be used for is refused here, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.core.errors import (
    InvalidRequestError,
    NotAQueueError,
    TopicExistsIncompatibleError,
    TopicNotFoundError,
)
from headwater.core.limits import PARTITION_PREFIX
from headwater.core.results import Deleted
from headwater.engine.engine import Engine
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.partition_writes import append_records, delete_before
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.operation import Answered, AsOwner, Operation
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.topics.publisher import PendingAppend
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.format.kafka.partition_names import parse_partition_name, partition_name
from headwater.model.match import TagMatcher


class KafkaPartitions:
    """For the owner only, as an engine."""

    def __init__(self, store: KafkaStore, engine: Engine, organisation: int) -> None:
        self._store = store
        self._engine = engine
        self._organisation = organisation

    @property
    def core(self) -> EngineCore:
        return self._engine.core

    # -- which there are

    def find(self, name: str) -> KafkaPartition | None:
        spot = parse_partition_name(name)
        topic = None if spot is None else self._store.topic(self._organisation, spot[0])
        if topic is None or spot is None or spot[1] >= len(topic.partitions):
            return None
        return topic.partitions[spot[1]]

    def topic(self, name: str) -> KafkaPartition:
        partition = self.find(name)
        if partition is None:
            raise TopicNotFoundError(self._why_absent(name))
        return partition

    def listed(self, prefix: str, after: str | None) -> Iterator[KafkaPartition]:
        """For listings with the prefix `kafka:`."""
        names = sorted(
            name
            for topic in self._store.topics(self._organisation)
            for name in (each.name for each in topic.partitions)
            if name.startswith(prefix) and (after is None or name > after)
        )
        return (partition for name in names if (partition := self.find(name)) is not None)

    def _why_absent(self, name: str) -> str:
        if name.startswith(PARTITION_PREFIX):
            return f"there is no partition {name!r}; make its topic with a Kafka client"
        return f"there is no topic {name!r}; {self._kafkas_own(name)}, use that name"

    def refuse_new(self, name: str) -> None:
        """A topic of the engine's own shall be made, or changed."""
        if self.find(name) is not None:
            raise InvalidRequestError(
                f"{name!r} is a partition of a Kafka topic; Kafka clients change its settings"
            )
        self.refuse_taken(name)

    def refuse_taken(self, name: str) -> None:
        """One name is one topic: Kafka clients would never see another one of theirs."""
        if not name.startswith(PARTITION_PREFIX):
            raise TopicExistsIncompatibleError(
                f"no topic {name!r} can be made: {self._kafkas_own(name)}; "
                "use that, or take another name",
                detail={"reason": "kafka_topic", "topic": name},
            )

    def _kafkas_own(self, name: str) -> str:
        topic = self._store.topic(self._organisation, name)
        last = 0 if topic is None else len(topic.partitions) - 1
        ends = (partition_name(name, index) for index in sorted({0, last}))
        return f"Kafka clients made {' to '.join(ends)}"

    # -- changing them

    def append(
        self,
        name: str,
        records: EncodedRecords,
        *,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> PendingAppend:
        if create is not False:
            self.refuse_taken(name)
        partition = self.topic(name)
        if settings is not None:
            raise InvalidRequestError("the settings of a Kafka topic are changed by Kafka clients")
        if records.deliver_at is not None:
            raise NotAQueueError(f"{name!r} is a log; deliver_at needs a queue")
        if self.core.refusing and not disable_backpressure:
            raise self._engine.pressure_control.refuse()
        now_ms = self.core.clock.wall_ms()
        return append_records(partition, records, now_ms, idempotency_key, expect_head_seq)

    def deletion(
        self, name: str, before_seq: int | None, matcher: TagMatcher | None
    ) -> Operation[Deleted]:
        partition: KafkaPartition = yield AsOwner(lambda: self.topic(name))
        if matcher is not None or before_seq is None:
            raise InvalidRequestError(
                "records of a Kafka partition are deleted from the front only, with before_seq"
            )
        deleted: Deleted = yield Answered(lambda: delete_before(partition, before_seq))
        return deleted
