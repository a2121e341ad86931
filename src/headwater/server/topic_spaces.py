"""Whose topics a name is about: the engine's own, or partitions of an organisation's Kafka topics.

The only module that decides this by name. Protocols ask here and then do the same for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.errors import InvalidRequestError, RequestError
from headwater.core.limits import PARTITION_PREFIX
from headwater.engine.engine import Engine

if TYPE_CHECKING:
    from headwater.engine.kafka.kafka_partitions import KafkaPartitions
    from headwater.engine.kafka.store import KafkaStore
    from headwater.engine.kafka.unavailable import UnavailableKafka
    from headwater.server.access.keys import ApiKey
    from headwater.server.app import App


def kafka_partitions(
    engine: Engine, store: KafkaStore | None, name: str, organisation: int
) -> KafkaPartitions | None:
    """None for a name of the engine's own topics, and for every name without a store.

    Where the engine has no topic of a name and Kafka's clients have, it is about theirs: they
    would never see a topic that was made under it.
    """
    if store is None:
        return None
    if not name.startswith(PARTITION_PREFIX) and (
        engine.find(name) is not None or not store.is_taken(organisation, name)
    ):
        return None
    # Late: a server without Kafka topics does not load what reads them.
    from headwater.engine.kafka.kafka_partitions import KafkaPartitions

    return KafkaPartitions(store, engine, organisation)


def refuse_while_away(
    engine: Engine, unavailable: UnavailableKafka, name: str, organisation: int
) -> None:
    """Raise for a name of Kafka's topics, as far as they are known: it is not free."""
    is_theirs = engine.find(name) is None and unavailable.is_taken(organisation, name)
    if name.startswith(PARTITION_PREFIX) or is_theirs:
        raise unavailable.error()


def refuse_kafkas(
    app: App, name: str, key: ApiKey | None, refused: type[RequestError], instead: str
) -> None:
    """For what only topics of the engine's own can do."""
    kafkas = app.kafkas(name, key)
    if kafkas is not None and app.engine.find(name) is None:
        kafkas.topic(name)  # or there is none, which says more
        raise refused(f"{name!r} is a partition of a Kafka topic; {instead}")


def refuse_partitions(name: str, doing: str) -> None:
    if name.startswith(PARTITION_PREFIX):
        raise InvalidRequestError(f"{name!r} is a partition of a Kafka topic; {doing}")
