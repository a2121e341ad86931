"""Metrics on a port of their own, so that a scraper needs no way to the data.

Also answers health and readiness. The same keys as everywhere, and the same rule about listening
publicly without any.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headwater.core.clock import Clock, SystemClock
from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.backend import Backend
from headwater.server.connection import Ports, Room
from headwater.server.health.handlers import HEALTH_ROUTES
from headwater.server.http.connection import HttpConnection
from headwater.server.http.dispatcher import Dispatcher
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import Handler, Route, RouteTable
from headwater.server.intake import Intake
from headwater.server.metrics import METRICS_ROUTES
from headwater.server.ports import cannot_listen, tls_context
from headwater.server.server import Server
from headwater.wire.http_errors import HttpError

PATHS: Final = frozenset(
    ("/metrics", "/v0/metrics", "/healthz", "/v0/health", "/readyz", "/v0/ready")
)
TICK_S: Final = 0.5


class MetricsListener:
    """`start` it beside a server; it shows that server's numbers."""

    def __init__(
        self,
        server: Server,
        port: int,
        *,
        clock: Clock | None = None,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        """`sockets`: bound by another process, instead of a port."""
        self._server = server
        self._port = port
        self._sockets = sockets
        self._clock = clock or SystemClock()
        self._listening: list[asyncio.Server] = []
        self._ports: Ports | None = None
        self._endpoint: HttpEndpoint | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._listening[0].sockets[0].getsockname()[1])

    async def start(self) -> None:
        loop, settings = asyncio.get_running_loop(), self._server.settings
        access = Access(settings)
        self._ports = Ports(
            Room(settings.limits.connections),
            access.quotas.connections,
            Intake(loop),
            self._clock,
            settings.deadlines,
        )
        endpoint = HttpEndpoint(self._ports, settings.limits, Logger("headwater.server"))
        self._endpoint = endpoint
        routes = [
            _shown(route) for route in (*HEALTH_ROUTES, *METRICS_ROUTES) if route.path in PATHS
        ]
        table = RouteTable(routes, {Server: self._server})
        dispatcher = Dispatcher(endpoint, Backend(), access, table, _never, _refuse_upgrade)
        make, tls = partial(HttpConnection, dispatcher), tls_context(settings)
        for bound in self._sockets:
            self._listening.append(await loop.create_server(make, sock=bound, ssl=tls))
        if not self._sockets:
            try:
                listening = await loop.create_server(
                    make, settings.host, self._port, ssl=tls, reuse_address=True
                )
            except OSError as error:
                raise cannot_listen("metrics", settings.host, self._port, error) from error
            self._listening.append(listening)
        self._ticker = loop.create_task(self._tick(endpoint))

    async def _tick(self, endpoint: HttpEndpoint) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            endpoint.connections.check_deadlines()

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        for listening in self._listening:
            listening.close()
        if self._endpoint is not None and self._ports is not None:
            self._endpoint.connections.abort()
            self._ports.intake.close()


def _shown(route: Route) -> Route:
    """The same, about the server that is shown here."""
    return replace(route, handler=_handler(route), served_by=Server)


def _handler(route: Route) -> Handler:
    def handle(server: Server, exchange: Exchange) -> None:
        if server.app is None:
            raise HttpError("not_ready", "starting; try again soon")
        route.handler(server.app.services[route.served_by], exchange)

    return handle


def _never(_exchange: Exchange) -> bool:
    return False


def _refuse_upgrade(_exchange: Exchange, _rest: bytes) -> None:
    raise HttpError("not_found", "this path does not speak WebSocket")
