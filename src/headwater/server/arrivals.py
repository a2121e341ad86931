"""Clients of a port whose protocol is loaded when the first of them comes.

Kafka's and RCPX's take 60 to 200 ms and several MiB, and most servers speak one or none of them.
Their ports are bound all the same, so that one that is taken is an error at once. A client that
comes first waits; the loop goes on meanwhile, because another thread loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from headwater.observe.logs import Logger

MakeConnection = Callable[[], asyncio.Protocol]


class Arrival(asyncio.Protocol):
    """A connection that has no protocol yet. What its client sends first is kept for that."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received = data
        self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def hand_over(self, make: MakeConnection) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        protocol = make()
        if self._received:
            transport.resume_reading()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received and not transport.is_closing():
            protocol.data_received(self._received)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Arrivals:
    """Belongs to one event loop and is used on its thread only."""

    def __init__(self, make_ready: Callable[[], Awaitable[MakeConnection]], log: Logger) -> None:
        """`make_ready` is called again by the next client when it failed: the process may have
        had no file descriptor left for it."""
        self._make_ready = make_ready
        self._log = log
        self._make: MakeConnection | None = None
        self._loading: asyncio.Task[None] | None = None
        self._waiting: list[Arrival] = []

    def connect(self) -> asyncio.Protocol:
        if self._make is not None:
            return self._make()
        arrival = Arrival()
        self._waiting.append(arrival)
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load_for_clients())
        return arrival

    async def load(self) -> None:
        """Before any client comes. Raises what goes wrong."""
        self._make = await self._make_ready()

    async def _load_for_clients(self) -> None:
        try:
            await self.load()
        except Exception:
            self._log.exception("clients are disconnected: their protocol cannot be loaded")
            self._loading = None
        waiting, self._waiting = self._waiting, []
        for arrival in waiting:
            if self._make is None:
                arrival.abort()
            else:
                arrival.hand_over(self._make)

    async def close(self) -> None:
        """What is being loaded is there, or is not, when this returns."""
        if self._loading is not None:
            await self._loading
