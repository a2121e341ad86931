"""What all connections of one HTTP port share, and each exchange on them. Lives on the loop."""

from __future__ import annotations

import asyncio
import secrets

from headwater.config.server import LimitSettings
from headwater.observe.logs import Logger
from headwater.server.connection import Connections, Ports
from headwater.server.http.request_head import KnownHeads


class HttpEndpoint:
    def __init__(self, ports: Ports, limits: LimitSettings, log: Logger) -> None:
        self.connections: Connections = ports.connections(log)
        self.limits = limits
        self.log = log
        self.now_us = ports.clock.monotonic_us
        self.known_heads = KnownHeads()
        self.request_prefix = secrets.token_hex(4).encode()
        """Ids of requests begin with it."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that could not be answered at once."""

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        await self.connections.drain()
        for task in list(self.tasks):
            task.cancel()
