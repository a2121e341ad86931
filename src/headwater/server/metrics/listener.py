"""Metrics on a port of their own, so that a scraper needs no way to the data.

Also answers health and readiness. The same keys as everywhere, and the same rule about listening
publicly without any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import AccessError
from headwater.server.app import App
from headwater.server.http.connection import HttpConnection
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import Route
from headwater.server.http.routes import ROUTES
from headwater.server.server import Server, tls_context, why_not
from headwater.wire.http_errors import HttpError

PATHS: Final = frozenset(
    ("/metrics", "/v0/metrics", "/healthz", "/v0/health", "/readyz", "/v0/ready")
)
TICK_S: Final = 0.5


class MetricsListener:
    """`start` it beside a server; it shows that server's numbers."""

    def __init__(self, server: Server, port: int, *, clock: Clock | None = None) -> None:
        self._server = server
        self._port = port
        self._clock = clock or SystemClock()
        self._listening: asyncio.Server | None = None
        self._app: App | None = None
        self._ticker: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        routes = tuple(
            replace(route, handler=self._shown(route)) for route in ROUTES if route.path in PATHS
        )
        settings = self._server.settings
        app = self._app = App(settings, self._clock, loop, routes)
        try:
            self._listening = await loop.create_server(
                lambda: HttpConnection(app),
                settings.host,
                self._port,
                ssl=tls_context(settings),
                reuse_address=True,
            )
        except OSError as error:
            raise AccessError(
                f"cannot listen on {settings.host}:{self._port} for metrics ({why_not(error)})",
                advice="choose another --metrics-port, or 0 for a free one",
            ) from error
        self._ticker = loop.create_task(self._tick(app))

    def _shown(self, route: Route) -> Callable[[App, Exchange], None]:
        """The route's own handler, looking at the real server."""

        def handle(_app: App, exchange: Exchange) -> None:
            if self._server.app is None:
                raise HttpError("not_ready", "starting; try again soon")
            route.handler(self._server.app, exchange)

        return handle

    async def _tick(self, app: App) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            app.check_deadlines()

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        if self._listening is not None:
            self._listening.close()
        if self._app is not None:
            self._app.connections.abort()
            self._app.intake.close()
