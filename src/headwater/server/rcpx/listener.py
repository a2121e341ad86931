"""The RCPX port."""

from __future__ import annotations

import asyncio
import ssl

from headwater.core.errors import AccessError
from headwater.server.connection import Connections
from headwater.server.ports import BACKLOG, why_not
from headwater.server.rcpx.connection import RcpxConnection
from headwater.server.rcpx.endpoint import RcpxEndpoint


class RcpxListener:
    def __init__(self, endpoint: RcpxEndpoint) -> None:
        self._endpoint = endpoint
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> Connections:
        return self._endpoint.connections

    async def start(
        self, host: str, port: int, tls: ssl.SSLContext | None, handshake_s: float
    ) -> None:
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: RcpxConnection(self._endpoint),
                host,
                port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else handshake_s,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise AccessError(
                f"cannot listen on {host}:{port} for RCPX ({why_not(error)})",
                advice="choose another --rcpx-port, 0 for a free one, or off",
            ) from error

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def drain(self) -> None:
        await self._endpoint.drain()
