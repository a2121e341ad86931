"""Listening for RCPX, and what all its connections share: limits, deadlines, the end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import AccessError
from headwater.server.connection import NEVER_S, Awaits, Connections
from headwater.server.rcpx.connection import RcpxConnection

if TYPE_CHECKING:
    from headwater.server.app import App

BACKLOG: Final = 1024


class RcpxListener:
    def __init__(self, app: App) -> None:
        self.app = app
        self.connections = Connections(
            app.room,
            app.quotas.connections,
            app.intake,
            app.clock,
            app.settings.deadlines,
            app.log,
            {Awaits.REQUEST: NEVER_S},
        )
        self.transition_cache = app.transition_cache
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._time_ms = -1
        self._time = b""
        self._second = -1
        self._second_text = b""

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        handshake_s = None if tls is None else self.app.settings.deadlines.headers_s
        try:
            self._server = await self.app.loop.create_server(
                lambda: RcpxConnection(self),
                host,
                port,
                ssl=tls,
                ssl_handshake_timeout=handshake_s,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            from headwater.server.server import why_not

            raise AccessError(
                f"cannot listen on {host}:{port} for RCPX ({why_not(error)})",
                advice="choose another --rcpx-port, 0 for a free one, or off",
            ) from error

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def server_time(self) -> bytes:
        """When an answer was made, as people write it; printed once a millisecond at most."""
        now = self.app.clock.wall_ms()
        if now != self._time_ms:
            self._time_ms = now
            second, ms = divmod(now, 1_000)
            if second != self._second:
                self._second = second
                moment = datetime.fromtimestamp(second, UTC)
                self._second_text = moment.isoformat(timespec="seconds").encode()[:-6]
            self._time = b"%b.%03dZ" % (self._second_text, ms)
        return self._time

    # -- connections

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """What has to wait for files. Not used by the write path."""
        task = self.app.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        await self.connections.drain()
        for task in list(self._tasks):
            task.cancel()
