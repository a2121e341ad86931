"""One gateway process: its listeners, its connections, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock, SystemClock
from headwater.disk import PosixDisk
from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.backend import Backend
from headwater.server.connection import NEVER_S, Awaits, Connection, Ports
from headwater.server.gateway.byte_connection import ByteConnection
from headwater.server.gateway.forwarder import (
    Forwarder,
    ForwardingConnection,
    GatewayDispatcher,
    forwarding_routes,
)
from headwater.server.gateway.page_files import PageFiles
from headwater.server.gateway.shared_room import SharedRoom
from headwater.server.gateway.turn_sender import TurnSender
from headwater.server.gateway.uplink import Uplink
from headwater.server.gateway_slots import GatewaySlots
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.route_table import LateRoutes, Route, RouteTable
from headwater.server.http.write_batcher import WriteBatcher
from headwater.server.intake import Intake
from headwater.server.ports import BACKLOG
from headwater.server.routes import LATE_ROUTES, ROUTES
from headwater.wire.channel import BytePort, ChannelKind

TICK_S: Final = 0.5
TURNS_READ: Final = 2
"""What clients had sent before the signal came is read in this turn of the loop or the next."""
HANG_UP_S: Final = 2.0
"""How long the last frames may take."""
BYTE_PORTS: Final = {"kafka": BytePort.KAFKA, "rcpx": BytePort.RCPX}
_PATIENT: Final = {Awaits.OPENING: NEVER_S, Awaits.ANSWERS_TAKEN: 600.0}
"""Of connections whose protocols run in the sequencer: it knows better. Kafka's clients may be at
work for ten minutes on what they have."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """What one is started with."""

    settings: ServerSettings
    slot: int
    listening: Mapping[str, list[socket.socket]]
    """By name of the port."""
    address: bytes
    """Of the sequencer."""
    slots: GatewaySlots
    tls: ssl.SSLContext | None
    alive: socket.socket
    """Ends when the supervisor does."""
    connections_max: int


class Gateway:
    def __init__(self, plan: GatewayPlan, clock: Clock | None = None) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._log = log = Logger("headwater.gateway")
        settings = plan.settings
        clock = clock or SystemClock()
        self._uplink = Uplink(
            plan.address, plan.slot, log, self._sequencer_changed, self._set_reading
        )
        self._access = access = Access(settings)
        self._files = PageFiles(PosixDisk())
        self._forwarder = Forwarder(self._uplink, self._files)
        self._turns = TurnSender(access.keys, self._forwarder.forward, clock.monotonic_us, log)
        self._uplink.register(
            {ChannelKind.TURN_REPLY: lambda _stream, _flags, reply: self._turns.take_reply(reply)}
        )
        self._batcher = WriteBatcher(self._turns, settings.limits, self._loop)
        room = SharedRoom(plan.connections_max, plan.slots, plan.slot)
        intake = Intake(self._loop, self._end_turn)
        self._ports = Ports(room, access.quotas.connections, intake, clock, settings.deadlines)
        self._http = HttpEndpoint(self._ports, settings.limits, log)
        self._http.connections.on_changed = self._count_http
        self._backend = Backend()
        self._dispatcher = self._make_dispatcher()
        self._streams = self._ports.connections(log, _PATIENT)
        """Those whose bytes go to the sequencer as they are."""
        self._servers: list[asyncio.Server] = []
        self._stopping = asyncio.Event()

    def _make_dispatcher(self) -> GatewayDispatcher:
        """As in a server without workers, with handlers that forward."""
        late = [LateRoutes(each.beginnings, partial(_forwarded, each)) for each in LATE_ROUTES]
        services = {Forwarder: self._forwarder, WriteBatcher: self._batcher}
        return GatewayDispatcher(
            self._uplink,
            self._http,
            self._backend,
            self._access,
            RouteTable(forwarding_routes(ROUTES), services, late),
            self._batcher.add,
            self._forwarder.upgrade,
        )

    def _end_turn(self) -> None:
        """All that was sent was read."""
        self._batcher.flush()
        self._uplink.flush()

    async def run(self) -> None:
        """Until it is told to stop, or the supervisor is gone; then drain."""
        loop, plan = self._loop, self._plan
        loop.add_signal_handler(signal.SIGTERM, self._stopping.set)
        loop.add_reader(plan.alive, self._supervisor_gone)
        plan.slots.set(plan.slot, "pid", os.getpid())
        link = loop.create_task(self._uplink.run())
        for name, sockets in plan.listening.items():
            for each in sockets:
                await self._listen(each, self._connection_of(name))
        ticking = loop.create_task(self._tick())
        await self._stopping.wait()
        await self._drain()
        ticking.cancel()
        link.cancel()

    async def _listen(self, listening: socket.socket, make: Callable[[], Connection]) -> None:
        plan = self._plan
        self._servers.append(
            await self._loop.create_server(
                make,
                sock=listening,
                ssl=plan.tls,
                ssl_handshake_timeout=(
                    None if plan.tls is None else plan.settings.deadlines.headers_s
                ),
                backlog=BACKLOG,
            )
        )

    def _connection_of(self, name: str) -> Callable[[], Connection]:
        port = BYTE_PORTS.get(name)
        if port is None:
            return lambda: ForwardingConnection(self._dispatcher, self._uplink)
        return lambda: ByteConnection(self._streams, self._uplink, port)

    # -- what happens

    def _sequencer_changed(self) -> None:
        if not self._uplink.is_up:
            self._turns.lost()
            return
        self._turns.channel = self._uplink
        self._forwarder.sequencer_up()
        for connection in self._streams:
            assert isinstance(connection, ByteConnection)
            connection.open()

    def _set_reading(self) -> None:
        for connections in (self._http.connections, self._streams):
            for connection in connections:
                connection.set_reading()

    def _supervisor_gone(self) -> None:
        self._loop.remove_reader(self._plan.alive)
        self._stopping.set()

    def _count_http(self) -> None:
        count = len(self._http.connections)
        self._plan.slots.set(self._plan.slot, "http_connections", count)

    async def _tick(self) -> None:
        plan = self._plan
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._http.connections.check_deadlines()
                self._streams.check_deadlines()
                self._forwarder.refuse_waiting(self._http.now_us())
                self._uplink.report_taken()
                self._files.forget_unused(self._http.now_us())
                times = os.times()
                cpu_us = int((times.user + times.system) * 1_000_000)
                plan.slots.set(plan.slot, "cpu_us", cpu_us)
                plan.slots.set(plan.slot, "requests", self._forwarder.requests)
            except Exception:
                self._log.exception("the check of deadlines failed")

    async def _drain(self) -> None:
        """Finish what is under way, then end every connection."""
        for server in self._servers:
            server.close()
        for _ in range(TURNS_READ):
            await asyncio.sleep(0)
        self._batcher.flush()
        self._backend.draining = True
        self._uplink.send(ChannelKind.DRAINING, 0)
        await asyncio.gather(self._http.drain(), self._streams.drain())
        await self._uplink.close(HANG_UP_S)
        self._ports.intake.close()


def _forwarded(late: LateRoutes) -> tuple[Route, ...]:
    return forwarding_routes(late.load())
