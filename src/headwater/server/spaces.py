"""Whose topics a name is about: the engine's own, or partitions of an organisation's Kafka topics.

The one place that looks at names for it. Doors ask here and then do the same for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headwater.core.errors import InvalidRequestError
from headwater.core.limits import PARTITION_PREFIX
from headwater.engine.engine import Engine
from headwater.engine.sides import TopicSpace
from headwater.engine.topic import Topic

if TYPE_CHECKING:
    from headwater.engine.kafka.partition_topics import PartitionTopic
    from headwater.engine.kafka.spaces import PartitionSpace
    from headwater.engine.kafka.store import KafkaStore


class Spaces:
    def __init__(self) -> None:
        self._by_organisation: dict[int, PartitionSpace] = {}

    def of(
        self, engine: Engine, store: KafkaStore | None, name: str, organisation: int
    ) -> TopicSpace:
        """Without a store nobody finds a partition."""
        if store is None or not name.startswith(PARTITION_PREFIX):
            return engine
        space = self._by_organisation.get(organisation)
        if space is None:
            # Late: a server without Kafka topics does not load what reads them.
            from headwater.engine.kafka.spaces import PartitionSpace

            space = PartitionSpace(store, engine, organisation)
            self._by_organisation[organisation] = space
        return space


def space_of(engine: Engine, topic: Topic) -> TopicSpace:
    """Where a topic that was found belongs."""
    return cast("PartitionTopic", topic).space if topic.is_partition else engine


def refuse_partitions(name: str, doing: str) -> None:
    if name.startswith(PARTITION_PREFIX):
        raise InvalidRequestError(f"{name!r} is a partition of a Kafka topic; {doing}")
