"""The engine as connections and handlers have it: not there until recovery is done.

This is the only way from what belongs to connections to what belongs to the engine. Whoever needs
the engine for a request takes it from here, at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.errors import RequestError
from headwater.engine.async_database import AsyncDatabase
from headwater.engine.engine import Engine
from headwater.engine.topics.protocols import TopicSpace
from headwater.server.access.keys import ORGANISATION_DEFAULT, ApiKey
from headwater.server.topic_spaces import Spaces, refuse_while_away
from headwater.wire.http_errors import HttpError

if TYPE_CHECKING:
    from headwater.engine.kafka.partition_space import PartitionSpace
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
        self._spaces = Spaces()

    def serve_from(
        self,
        database: AsyncDatabase,
        kafka_store: KafkaStore | None,
        kafka_unavailable: UnavailableKafka | None,
    ) -> None:
        """Recovery is done: answer everything."""
        self.kafka_store, self._kafka_unavailable = kafka_store, kafka_unavailable
        self.database, self._engine = database, database.engine

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

    def space(self, name: str, key: ApiKey | None) -> TopicSpace:
        return self.kafkas(name, key) or self.engine

    def kafkas(self, name: str, key: ApiKey | None) -> PartitionSpace | None:
        """The partitions of the key's organisation, where the name is about Kafka's topics."""
        organisation = ORGANISATION_DEFAULT if key is None else key.organisation
        if self._kafka_unavailable is not None:
            refuse_while_away(self.engine, self._kafka_unavailable, name, organisation)
        return self._spaces.of(self.engine, self.kafka_store, name, organisation)

    def refuse_kafkas(
        self, name: str, key: ApiKey | None, refused: type[RequestError], instead: str
    ) -> None:
        """For what only topics of the engine's own can do."""
        kafkas = self.kafkas(name, key)
        if kafkas is not None and self.engine.find(name) is None:
            kafkas.topic(name)  # or there is none, which says more
            raise refused(f"{name!r} is a partition of a Kafka topic; {instead}")
