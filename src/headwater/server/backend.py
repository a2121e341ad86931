"""The engine as connections and handlers have it: not there until recovery is done.

This is the only way from what belongs to connections to what belongs to the engine. Whoever needs
the engine for a request takes it from here, at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.errors import InvalidRequestError, RequestError
from headwater.core.limits import PARTITION_PREFIX
from headwater.engine.async_database import AsyncDatabase
from headwater.engine.engine import Engine
from headwater.engine.kafka import kafka_partitions
from headwater.engine.topics.protocols import PartitionSpace
from headwater.server.access.keys import ORGANISATION_DEFAULT, ApiKey
from headwater.wire.http_errors import HttpError

if TYPE_CHECKING:
    from headwater.engine.kafka.kafka_partitions import KafkaPartitions
    from headwater.engine.kafka.store import KafkaStore
    from headwater.engine.kafka.unavailable import UnavailableKafka


class Backend:
    def __init__(self) -> None:
        self.database: AsyncDatabase | None = None
        self._engine: Engine | None = None
        self.recovery_progress = 0.0
        self.draining = False
        """The server stops: requests that are not open to all are refused."""
        self.kafka_store: KafkaStore | None = None
        self._kafka_unavailable: UnavailableKafka | None = None
        """Instead of the store, when it could not be opened."""

    def serve_from(self, database: AsyncDatabase) -> None:
        """Recovery is done: answer everything."""
        self.database, self._engine = database, database.engine

    def serve_kafka(self, store: KafkaStore | None, unavailable: UnavailableKafka | None) -> None:
        """Before that where there are Kafka topics, else when the first client of Kafka comes."""
        self.kafka_store, self._kafka_unavailable = store, unavailable

    @property
    def engine(self) -> Engine:
        return self._engine or self.ready_database.engine

    @property
    def ready_database(self) -> AsyncDatabase:
        if self.database is None:
            raise HttpError(
                "not_ready",
                "recovering; try again soon",
                detail={
                    "replay_progress": round(self.recovery_progress, 3),
                    "wal_replay_complete": False,
                },
                headers={"retry-after": "1"},
            )
        return self.database

    @property
    def maintenance_error(self) -> Exception | None:
        """Why the last round of maintenance is not whole; the next round tries it again."""
        store = self.kafka_store
        return self.engine.last_error or (None if store is None else store.last_error)

    # -- whose topics a name is about

    def space(self, name: str, key: ApiKey | None) -> PartitionSpace:
        return self.kafkas(name, key) or self.engine

    def kafkas(self, name: str, key: ApiKey | None) -> KafkaPartitions | None:
        """The partitions of the key's organisation, where the name is about Kafka's topics.

        So it is where the engine has no topic of a name and Kafka's clients have: they would never
        see a topic that was made under it. Also while their log is unavailable, as far as its
        topics are known: the name is not free.
        """
        store, engine = self.kafka_store or self._kafka_unavailable, self.engine
        if store is None:
            return None
        organisation = ORGANISATION_DEFAULT if key is None else key.organisation
        if not name.startswith(PARTITION_PREFIX) and (
            engine.find(name) is not None or not store.is_taken(organisation, name)
        ):
            return None
        if self.kafka_store is None:
            assert self._kafka_unavailable is not None
            raise self._kafka_unavailable.error()
        return kafka_partitions.KafkaPartitions(self.kafka_store, engine, organisation)

    def refuse_kafkas(
        self, name: str, key: ApiKey | None, refused: type[RequestError], instead: str
    ) -> None:
        """For what only topics of the engine's own can do."""
        kafkas = self.kafkas(name, key)
        if kafkas is not None and self.engine.find(name) is None:
            kafkas.topic(name)  # or there is none, which says more
            raise refused(f"{name!r} is a partition of a Kafka topic; {instead}")


def refuse_partitions(name: str, doing: str) -> None:
    if name.startswith(PARTITION_PREFIX):
        raise InvalidRequestError(f"{name!r} is a partition of a Kafka topic; {doing}")
