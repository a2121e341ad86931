"""The RCPX port."""

from __future__ import annotations

import asyncio
import ssl

from headwater.server.connection import Connections
from headwater.server.ports import BACKLOG, cannot_listen
from headwater.server.rcpx.connection import RcpxConnection
from headwater.server.rcpx.endpoint import RcpxEndpoint


class RcpxListener:
    def __init__(self, endpoint: RcpxEndpoint) -> None:
        self._endpoint = endpoint
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

    def make_connection(self) -> RcpxConnection:
        return RcpxConnection(self._endpoint)

    @property
    def connections(self) -> Connections:
        return self._endpoint.connections

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

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def drain(self) -> None:
        await self._endpoint.drain()
