"""What a running server shares: connections, routes, keys, the engine. Lives on the loop."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError, HeadwaterError
from headwater.engine.async_database import AsyncDatabase
from headwater.engine.engine import Engine
from headwater.engine.topics.protocols import PartitionSpace
from headwater.observe.logs import Logger
from headwater.server.access.keys import ORGANISATION_DEFAULT, ApiKey, KeyRing, Scope
from headwater.server.access.quotas import Quotas
from headwater.server.access.sites import Sites
from headwater.server.connection import Connections, Room
from headwater.server.failures import unforeseen
from headwater.server.health.damage import DamageWatch
from headwater.server.health.log_states import LogWatch
from headwater.server.health.pressure import PressureWatch
from headwater.server.health.status import TopicTotals
from headwater.server.http.exchange import Exchange
from headwater.server.http.request_head import Head, KnownHeads
from headwater.server.http.route_table import Handler, Route, RouteTable
from headwater.server.http.write_batcher import WriteBatcher, has_plain_head
from headwater.server.intake import Intake
from headwater.server.machines.transition_follower import FollowerQueue, TransitionCache
from headwater.server.machines.webhooks import Webhooks
from headwater.server.streams.delivery import Delivery
from headwater.server.streams.job_pusher import JobPusher
from headwater.server.streams.watch_sessions import WatchSessions
from headwater.server.topic_spaces import kafka_partitions, refuse_while_away
from headwater.wire.http_errors import HttpError

if TYPE_CHECKING:
    from headwater.engine.kafka.kafka_partitions import KafkaPartitions
    from headwater.server.kafka.listener import KafkaListener
    from headwater.server.rcpx.listener import RcpxListener


class App:
    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        routes: tuple[Route, ...],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.loop = loop
        self.routes = RouteTable(routes)
        self.keys = KeyRing(settings.api_keys)
        self.sites = Sites(settings)
        self.quotas = Quotas(settings.limits, len(self.keys), len(settings.kafka_users))
        self.log = Logger("headwater.server")
        self.database: AsyncDatabase | None = None
        self._engine: Engine | None = None
        self.recovery_progress = 0.0
        self.draining = False
        self.now_us = clock.monotonic_us
        self.started_us = self.now_us()
        self.kafka: KafkaListener | None = None
        """The listener for Kafka clients, once it is open, with the store behind it."""
        self.transition_cache = TransitionCache()
        self.follower_queue = FollowerQueue(loop)
        self.webhooks = Webhooks(self)
        self.rcpx: RcpxListener | None = None
        self.sessions = WatchSessions(self)
        self.delivery = Delivery(self)
        self.pressure = PressureWatch(self)
        self.job_pusher = JobPusher(self)
        self.write_batcher = WriteBatcher(self)
        self.known_heads = KnownHeads()
        self.intake = Intake(loop, self.write_batcher.flush)
        self.room = Room(settings.limits.connections)
        """Less when the operating system allows fewer open files."""
        self.connections = Connections(
            self.room, self.quotas.connections, self.intake, clock, settings.deadlines, self.log
        )
        self._topic_totals: dict[bytes, TopicTotals] = {}
        self.sse_connections = 0
        self._logged_error: str | None = None
        self.log_watch = LogWatch(self)
        self.damage_watch = DamageWatch(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self.request_prefix = secrets.token_hex(4).encode()
        self._request_numbers = itertools.count(1)

    @property
    def engine(self) -> Engine:
        return self._engine or self.ready_database.engine

    def space(self, name: str, key: ApiKey | None) -> PartitionSpace:
        """Whose topics this name is about."""
        return self.kafkas(name, key) or self.engine

    def kafkas(self, name: str, key: ApiKey | None) -> KafkaPartitions | None:
        """The partitions of the key's organisation, where the name is about Kafka's topics."""
        organisation = ORGANISATION_DEFAULT if key is None else key.organisation
        if self.kafka is not None and self.kafka.unavailable is not None:
            refuse_while_away(self.engine, self.kafka.unavailable, name, organisation)
        store = None if self.kafka is None else self.kafka.store
        return kafka_partitions(self.engine, store, name, organisation)

    @property
    def maintenance_error(self) -> Exception | None:
        """Why the last round of maintenance is not whole; the next round tries it again."""
        store = None if self.kafka is None else self.kafka.store
        return self.engine.last_error or (None if store is None else store.last_error)

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

    def serve_from(self, database: AsyncDatabase) -> None:
        """Recovery is done: answer everything."""
        self.database = database
        self._engine = self.write_batcher.engine = database.engine
        self.pressure.begin(database.engine.pressure_control)
        database.engine.core.on_update = self.delivery.on_news
        database.engine.core.on_synced = self.delivery.on_synced

    def topic_totals(self, key: ApiKey) -> TopicTotals:
        """Sums over the topics that a key may name."""
        totals = self._topic_totals.get(key.digest)
        if totals is None:
            totals = self._topic_totals[key.digest] = TopicTotals(key)
        return totals

    # -- time

    def check_deadlines(self) -> None:
        now = self.now_us()
        self.connections.check_deadlines()
        self.sessions.expire(now)
        self.delivery.heartbeat(now)
        if self._engine is not None:
            self._log_maintenance_error(self.maintenance_error)
            self.log_watch.check()
            self.damage_watch.check()

    def _log_maintenance_error(self, error: Exception | None) -> None:
        """No caller waits for maintenance, so the server logs its failures here, each kind once."""
        failure = None if error is None else str(error) or repr(error)
        if failure != self._logged_error:
            self._logged_error = failure
            if failure is None:
                self.log.info("maintenance succeeds again")
            else:
                self.log.warning("maintenance failed; it is tried again", error=failure)

    # -- requests

    def handle(self, exchange: Exchange) -> None:
        """Route a request, check its key, let its handler begin. Never raises."""
        exchange.number = next(self._request_numbers)
        if exchange.head.is_plain_write and not self.draining and self.write_batcher.add(exchange):
            return
        try:
            route = exchange.head.route or self._admit(exchange.head)
            if self.draining and not route.is_open:
                raise ClosedError("shutting down; nothing was done")
        except HeadwaterError as error:
            exchange.fail(error)
        except Exception as error:
            self.broken(exchange, error)
        else:
            self.attempt(exchange, route.handler)

    def attempt(self, exchange: Exchange, handler: Handler) -> None:
        """Let a handler begin. What goes wrong is its answer."""
        try:
            work = handler(self, exchange)
            if work is not None:
                self.spawn(exchange, work)
        except HeadwaterError as error:
            exchange.fail(error)
        except Exception as error:
            self.broken(exchange, error)

    def _admit(self, head: Head) -> Route:
        """Find the route of a head and check its key. An admission stays: keys do not change while
        the server runs."""
        route, head.parameters = self.routes.find(head.method, head.path)
        if not route.is_open:
            authorization = head.headers.get(b"authorization")
            if authorization is None and route.takes_token:
                authorization = token_of(head.query_bytes)
            head.key = key = self.keys.find(authorization)
            head.usage = self.quotas.of(key)
            if not len(self.keys):
                self.sites.check(head.headers, takes_proof=route.changes_by_get)
            if route.scope is not Scope.NONE:
                key.require(route.scope)
            if route.names_topic:
                key.require_name(head.parameters[0])
        head.route = route
        head.is_plain_write = route.goes_beside and has_plain_head(head)
        return route

    def goes_beside(self, head: Head) -> bool:
        """Whether it need not wait for those before it on its connection."""
        try:
            route = head.route or self.routes.find(head.method, head.path)[0]
        except HeadwaterError:
            return False
        return route.goes_beside

    def spawn(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Run what cannot be answered at once. Not used by the write path."""
        exchange.is_slow = True

        async def run() -> None:
            try:
                await work
            except HeadwaterError as error:
                exchange.fail(error)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.broken(exchange, error)

        task = self.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if exchange.on_gone is None:
            exchange.on_gone = partial(_cancel, task)  # the client is gone

    def broken(self, exchange: Exchange, error: Exception) -> None:
        failure = unforeseen(
            self.log,
            "request failed",
            error,
            request_id=exchange.request_id,
            method=exchange.head.method.decode("latin-1"),
        )
        if exchange.is_answered:
            exchange.connection.close()  # a stream cannot be repaired half-way
        else:
            exchange.fail(failure)

    def upgrade(self, exchange: Exchange, rest: bytes) -> None:
        from headwater.server.streams.websocket import upgrade

        try:
            if self._admit(exchange.head).path != "/v0/ws":
                raise HttpError("not_found", "this path does not speak WebSocket")
            if self.draining:
                raise ClosedError("shutting down; nothing was done")
            upgrade(self, exchange, rest)
        except HeadwaterError as error:
            exchange.keep_alive = False
            exchange.fail(error)
        except Exception as error:
            exchange.keep_alive = False
            self.broken(exchange, error)

    def key_of(self, exchange: Exchange) -> ApiKey:
        assert exchange.head.key is not None
        return exchange.head.key

    # -- the end

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        self.draining = True
        self.delivery.close_all()
        if self.database is not None:
            for topic in self.database.engine.core.registry:
                topic.wake()  # who waits for something new is answered now
        await self.connections.drain()
        for task in list(self._tasks):
            task.cancel()
        self.intake.close()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def token_of(query: bytes) -> bytes | None:
    """The key of a request whose headers a browser does not let a page set."""
    token = dict(parse_qsl(query)).get(b"token")
    return None if token is None else b"Bearer " + token
