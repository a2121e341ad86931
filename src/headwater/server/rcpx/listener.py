"""The RCPX port: bound at the start, its protocol loaded when the first client comes."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import TYPE_CHECKING

from headwater.config.server import LimitSettings
from headwater.core.late_names import load
from headwater.server.access.access import Access
from headwater.server.arrivals import Arrivals, MakeConnection
from headwater.server.connection import Ports
from headwater.server.machines.transition_follower import TransitionFeed
from headwater.server.ports import BACKLOG, cannot_listen
from headwater.server.rcpx import connection, endpoint

if TYPE_CHECKING:
    from headwater.server.rcpx.endpoint import RcpxEndpoint


class RcpxListener:
    def __init__(
        self, ports: Ports, limits: LimitSettings, access: Access, feed: TransitionFeed
    ) -> None:
        self._ports, self._limits, self._access, self._feed = ports, limits, access, feed
        self._arrivals = Arrivals(self._load, feed.log)
        self._started_us = ports.clock.monotonic_us()
        self._endpoint: RcpxEndpoint | None = None
        self._server: asyncio.Server | None = None
        self._gateways_port = 0

    @property
    def port(self) -> int:
        if self._gateways_port:
            return self._gateways_port
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def serve_gateways(self, port: int) -> None:
        """Gateways listen there, and make connections here."""
        self._gateways_port = port

    def make_connection(self) -> asyncio.Protocol:
        return self._arrivals.connect()

    @property
    def open_connections(self) -> int:
        return 0 if self._endpoint is None else len(self._endpoint.connections)

    async def start(
        self, host: str, port: int, tls: ssl.SSLContext | None, handshake_s: float
    ) -> None:
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self.make_connection,
                host,
                port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else handshake_s,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise cannot_listen("rcpx", host, port, error) from error

    async def _load(self) -> MakeConnection:
        await asyncio.get_running_loop().run_in_executor(None, load, connection, endpoint)
        self._endpoint = endpoint.RcpxEndpoint(
            self._ports, self._limits, self._access, self._feed, self._started_us
        )
        return partial(connection.RcpxConnection, self._endpoint)

    def check_deadlines(self) -> None:
        if self._endpoint is not None:
            self._endpoint.connections.check_deadlines()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def drain(self) -> None:
        await self._arrivals.close()
        if self._endpoint is not None:
            await self._endpoint.drain()
