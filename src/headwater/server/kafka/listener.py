"""The Kafka port: bound before anything is recovered, answered when everything is.

A port that is taken is an error at once and not after a long recovery. The store lies in the same
data directory under the same lock; its topics can be read also while the port is off.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.config.kafka import KafkaSettings
from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.core.late_names import load
from headwater.disk import Disk
from headwater.engine.async_database import AsyncDatabase
from headwater.engine.engine import Engine
from headwater.engine.kafka import coordinator, joined_store, unavailable
from headwater.engine.kafka import store as kafka_store
from headwater.engine.state.damage import CAUSES, Part
from headwater.format.kafka.names import KAFKA_DIRECTORY
from headwater.observe.logs import Logger
from headwater.server.arrivals import Arrivals, MakeConnection
from headwater.server.backend import Backend
from headwater.server.connection import Ports
from headwater.server.kafka import connection, endpoint, users
from headwater.server.ports import BACKLOG, cannot_listen

if TYPE_CHECKING:
    from headwater.engine.kafka.store import KafkaStore
    from headwater.engine.kafka.unavailable import UnavailableKafka
    from headwater.server.kafka.endpoint import KafkaEndpoint
    from headwater.server.kafka.users import Users

READER_THREADS: Final = 4


class KafkaListener:
    def __init__(
        self,
        settings: ServerSettings,
        kafka_settings: KafkaSettings,
        directory: PurePath,
        clock: Clock,
        disk: Disk,
    ) -> None:
        self._settings = settings
        self._kafka_settings = replace(
            kafka_settings, partitions_total_max=settings.limits.kafka_partitions
        )
        self._directory = directory / KAFKA_DIRECTORY
        self._clock = clock
        self._disk = disk
        self._users: Users | None = None
        if settings.kafka_users:  # a mistake is an error before anything is started
            self._users = users.Users(settings.kafka_users)
        self._arrivals: Arrivals | None = None
        self.on_open: Callable[[KafkaStore | None, UnavailableKafka | None], None] | None = None
        self._server: asyncio.Server | None = None
        self._gateways_port: int | None = None
        self._readers: ThreadPoolExecutor | None = None
        self.store: KafkaStore | None = None
        self.unavailable: UnavailableKafka | None = None
        """Instead of the store, when it could not be opened."""
        self.endpoint: KafkaEndpoint | None = None

    @property
    def port(self) -> int | None:
        """None when it does not listen."""
        if self._server is None:
            return self._gateways_port
        return int(self._server.sockets[0].getsockname()[1])

    async def bind(self, tls: ssl.SSLContext | None) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        if settings.kafka_port is None:
            return
        try:
            self._server = await loop.create_server(
                self._connect,
                settings.host,
                settings.kafka_port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else settings.deadlines.headers_s,
                backlog=BACKLOG,
                reuse_address=True,
                start_serving=False,
            )
        except OSError as error:
            raise cannot_listen("kafka", settings.host, settings.kafka_port, error) from error

    def serve_gateways(self, port: int) -> None:
        """Gateways listen there, and make connections here."""
        self._gateways_port = port

    def make_connection(self) -> asyncio.Protocol | None:
        """None before it is open."""
        return None if self._arrivals is None else self._arrivals.connect()

    def _connect(self) -> asyncio.Protocol:
        connection = self.make_connection()
        assert connection is not None, "connected before it was open"
        return connection

    async def open(self, database: AsyncDatabase, ports: Ports) -> None:
        """Recover the store, where there is one, and answer. Without one, nothing is loaded and
        created before the first client."""
        self._arrivals = Arrivals(partial(self._load, database, ports), Logger("headwater.kafka"))
        if self._disk.is_directory(self._directory):
            await self._arrivals.load()
        if self._server is not None:
            await self._server.start_serving()

    async def _load(self, database: AsyncDatabase, ports: Ports) -> MakeConnection:
        loop, engine = asyncio.get_running_loop(), database.engine
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="headwater-kafka")
        try:
            self.store = await loop.run_in_executor(self._readers, self._open_store, engine)
        except CAUSES as error:
            # Topics and machines do not wait for a repair of this log.
            parts = engine.core.parts
            parts.set_away(Part.KAFKA, error, self._directory)
            self.unavailable = unavailable.UnavailableKafka(self._disk, self._directory, parts)
        if self.store is not None and self.store.report.repaired:
            engine.core.parts.repaired[Part.KAFKA] = self.store.report.repaired
        store = self.store or self.unavailable
        assert store is not None
        self.endpoint = endpoint.KafkaEndpoint(
            self._settings,
            self._clock,
            loop,
            joined_store.JoinedStore(store, engine, self._readers),
            coordinator.Coordinator(store, self._clock),
            self._readers,
            engine.pressure_control,
            self._users or users.Users(()),
            ports,
        )
        if self.on_open is not None:
            self.on_open(self.store, self.unavailable)
        return partial(connection.KafkaConnection, self.endpoint)

    def _open_store(self, engine: Engine) -> KafkaStore:
        """In a thread, which loads Kafka's modules, too."""
        load(connection, coordinator, endpoint, joined_store, unavailable)
        return kafka_store.KafkaStore(
            self._disk,
            self._directory,
            self._kafka_settings,
            self._clock,
            engine.core.owner,
            _silent,
        )

    def tick(self) -> None:
        if self.endpoint is not None:
            self.endpoint.tick()

    # -- the end

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def drain(self) -> None:
        if self._arrivals is not None:
            await self._arrivals.close()
        if self.endpoint is not None:
            await self.endpoint.connections.drain()

    async def close(self) -> None:
        """After the last answer: the log is closed cleanly."""
        if self.store is not None:
            await asyncio.get_running_loop().run_in_executor(self._readers, self.store.close)
        if self._readers is not None:
            self._readers.shutdown(wait=False)


class KafkaListing(NamedTuple):
    """The Kafka side of a server that may have none, or cannot open it."""

    backend: Backend
    listener: KafkaListener


def _silent(_: float) -> None:
    """The engine's own recovery is what takes long."""
