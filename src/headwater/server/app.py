"""The server's heart: connections in, routes, keys, answers. Lives on one event loop."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError, HeadwaterError, InvariantError
from headwater.engine.asynchronous import AsyncDatabase
from headwater.engine.engine import Engine
from headwater.server.connection import HttpConnection
from headwater.server.delivery import Delivery
from headwater.server.exchange import Exchange
from headwater.server.keys import ApiKey, KeyRing, Scope
from headwater.server.quotas import Quotas
from headwater.server.routing import Route, RouteTable
from headwater.server.sessions import WatchSessions
from headwater.wire.http_errors import HttpError

US: Final = 1_000_000


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
        self.quotas = Quotas(settings.limits)
        self.log = structlog.get_logger("headwater.server")
        self.database: AsyncDatabase | None = None
        self.recovery_progress = 0.0
        self.draining = False
        self.started_us = clock.monotonic_us()
        self.connections: set[HttpConnection] = set()
        self.sessions = WatchSessions(self)
        self.delivery = Delivery(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._request_prefix = secrets.token_hex(4)
        self._request_numbers = itertools.count(1)
        deadlines = settings.deadlines
        self.header_deadline_us = int(deadlines.headers_s * US)
        self.body_deadline_us = int(deadlines.body_s * US)
        self.idle_deadline_us = int(deadlines.idle_s * US)

    def now_us(self) -> int:
        return self.clock.monotonic_us()

    @property
    def engine(self) -> Engine:
        return self.ready_database.engine

    @property
    def ready_database(self) -> AsyncDatabase:
        if self.database is None:
            raise HttpError(
                "not_ready",
                "recovering; try again soon",
                detail={"replay_progress": round(self.recovery_progress, 3)},
                headers={"retry-after": "1"},
            )
        return self.database

    def serve_from(self, database: AsyncDatabase) -> None:
        """Recovery is done: answer everything."""
        self.database = database
        database.engine.core.on_news = self.delivery.on_news

    # -- connections

    def add_connection(self, connection: HttpConnection) -> bool:
        if self.draining or len(self.connections) >= self.settings.limits.connections:
            return False
        self.connections.add(connection)
        return True

    def remove_connection(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)

    def check_deadlines(self) -> None:
        now = self.now_us()
        for connection in list(self.connections):
            connection.check_deadline(now)
        self.sessions.expire(now)
        self.delivery.heartbeat(now)

    # -- requests

    def handle(self, exchange: Exchange) -> None:
        """Route a request, check its key, let its handler begin. Never raises."""
        try:
            route, exchange.parameters = self.routes.find(exchange.method, exchange.path)
            exchange.request_id = f"{self._request_prefix}-{next(self._request_numbers):x}"
            self._admit(exchange, route)
            work = route.handler(self, exchange)
            if work is not None:
                self.spawn(exchange, work)
        except HeadwaterError as error:
            exchange.fail(error)
        except Exception as error:
            self._broken(exchange, error)

    def _admit(self, exchange: Exchange, route: Route) -> None:
        if route.is_open:
            return
        exchange.key = key = self.keys.find(exchange.headers.get(b"authorization"))
        if route.scope is not Scope.NONE:
            key.require(route.scope)
        if route.names_topic:
            key.require_name(exchange.parameters[0])
        if self.draining:
            raise ClosedError("shutting down; nothing was done")

    def spawn(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Run what cannot be answered at once. Not used by the write path."""

        async def run() -> None:
            try:
                await work
            except HeadwaterError as error:
                exchange.fail(error)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._broken(exchange, error)

        task = self.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _broken(self, exchange: Exchange, error: Exception) -> None:
        self.log.error(
            "request failed",
            request_id=exchange.request_id,
            method=exchange.method.decode("latin-1"),
            error=repr(error),
            exc_info=error,
        )
        if exchange.take() is None:
            exchange.fail(InvariantError("something went wrong here; the log has more"))

    def upgrade(self, exchange: Exchange, rest: bytes) -> None:
        from headwater.server.websocket import upgrade

        try:
            route, exchange.parameters = self.routes.find(exchange.method, exchange.path)
            if route.path != "/v0/ws":
                raise HttpError("not_found", "this path does not speak WebSocket")
            self._admit(exchange, route)
            upgrade(self, exchange, rest)
        except HeadwaterError as error:
            exchange.keep_alive = False
            exchange.fail(error)

    def key_of(self, exchange: Exchange) -> ApiKey:
        assert exchange.key is not None
        return exchange.key

    # -- streams

    def stream_paused(self, connection: HttpConnection) -> None:
        self.delivery.paused(connection)

    def stream_resumed(self, connection: HttpConnection) -> None:
        self.delivery.resumed(connection)

    # -- the end

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        self.draining = True
        self.delivery.close_all()
        for connection in list(self.connections):
            connection.drain()
        until = self.now_us() + int(self.settings.deadlines.drain_s * US)
        while self.connections and self.now_us() < until:
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.transport.abort()
        for task in list(self._tasks):
            task.cancel()
