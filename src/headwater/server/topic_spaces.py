"""Whose topics a name is about: the engine's own, or partitions of an organisation's Kafka topics.

The only module that decides this by name. Protocols ask here and then do the same for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headwater.core.errors import InvalidRequestError
from headwater.core.limits import PARTITION_PREFIX
from headwater.engine.engine import Engine
from headwater.engine.state.topic import Topic
from headwater.engine.topics.protocols import TopicSpace

if TYPE_CHECKING:
    from headwater.engine.kafka.partition_space import PartitionSpace
    from headwater.engine.kafka.partition_topics import PartitionTopic
    from headwater.engine.kafka.store import KafkaStore
    from headwater.engine.kafka.unavailable import UnavailableKafka


class Spaces:
    def __init__(self) -> None:
        self._by_organisation: dict[int, PartitionSpace] = {}

    def of(
        self, engine: Engine, store: KafkaStore | None, name: str, organisation: int
    ) -> PartitionSpace | None:
        """None for a name of the engine's own topics, and for every name without a store.

        Where the engine has no topic of a name and Kafka's clients have, it is about theirs: they
        would never see a topic that was made under it.
        """
        if store is None:
            return None
        if name.startswith(PARTITION_PREFIX):
            return self._of(engine, store, organisation)
        if engine.find(name) is None and store.is_taken(organisation, name):
            return self._of(engine, store, organisation)
        return None

    def _of(self, engine: Engine, store: KafkaStore, organisation: int) -> PartitionSpace:
        space = self._by_organisation.get(organisation)
        if space is None:
            # Late: a server without Kafka topics does not load what reads them.
            from headwater.engine.kafka.partition_space import PartitionSpace

            space = PartitionSpace(store, engine, organisation)
            self._by_organisation[organisation] = space
        return space


def refuse_while_away(
    engine: Engine, unavailable: UnavailableKafka, name: str, organisation: int
) -> None:
    """Raise for a name of Kafka's topics, as far as they are known: it is not free."""
    is_theirs = engine.find(name) is None and unavailable.is_taken(organisation, name)
    if name.startswith(PARTITION_PREFIX) or is_theirs:
        raise unavailable.error()


def space_of(engine: Engine, topic: Topic) -> TopicSpace:
    """Where a topic that was found belongs."""
    return cast("PartitionTopic", topic).space if topic.is_partition else engine


def refuse_partitions(name: str, doing: str) -> None:
    if name.startswith(PARTITION_PREFIX):
        raise InvalidRequestError(f"{name!r} is a partition of a Kafka topic; {doing}")
