"""Listening: sockets, TLS, the port file, signals, and the order of starting and stopping.

The port is bound first and answers "not ready" while the engine recovers, so a restart is seen as
slow and not as gone. With workers, this is the sequencer: gateways have the ports.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import signal
import ssl
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING

from headwater.config.engine import EngineSettings
from headwater.config.kafka import KafkaSettings
from headwater.config.server import ServerSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError, StorageError
from headwater.disk import Disk, PosixDisk, replace_file
from headwater.engine.maintenance.reports import make_reports_directory
from headwater.engine.opening import open_database_async
from headwater.observe.logs import Logger
from headwater.server.app import App
from headwater.server.gateway import links
from headwater.server.http.connection import HttpConnection
from headwater.server.kafka.listener import KafkaListener
from headwater.server.ports import BACKLOG, cannot_listen, connections_possible, tls_context
from headwater.wire import channel

if TYPE_CHECKING:
    from headwater.server.gateway.inheritance import Inheritance
    from headwater.server.gateway.links import GatewayLinks

TICK_S = 0.5
GATEWAYS_LATER_S = 1.0
"""Gateways drain for as long as a server without them, and then say so."""


class Server:
    """One server on the running event loop. `start`, then `serve_until_stopped` or `stop`."""

    def __init__(
        self,
        directory: str | PathLike[str],
        settings: ServerSettings | None = None,
        engine_settings: EngineSettings | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        kafka_settings: KafkaSettings | None = None,
        inherited: Inheritance | None = None,
    ) -> None:
        """`inherited`: gateways have the connections; without it they are this process's."""
        self.settings = settings or ServerSettings()
        self._engine_settings = engine_settings or EngineSettings()
        self._directory = fspath(directory)
        self._clock = clock or SystemClock()
        self._disk = disk or PosixDisk()
        refuse_public_without_keys(self.settings)
        self._inherited = inherited
        self._links: GatewayLinks | None = None
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._log = Logger("headwater.server")
        self.app: App | None = None
        self.kafka = KafkaListener(
            self.settings,
            kafka_settings or KafkaSettings(),
            PurePath(self._directory),
            self._clock,
            self._disk,
        )

    @property
    def port(self) -> int:
        if self._inherited is not None:
            return self._inherited.ports["http"]
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def ports(self) -> dict[str, int]:
        """Every port that is listened on, by protocol."""
        ports = {"http": self.port}
        if self.kafka.port is not None:
            ports["kafka"] = self.kafka.port
        if self.app is not None and self.app.rcpx is not None:
            ports["rcpx"] = self.app.rcpx.port
        return ports

    async def start(self) -> None:
        """Bind, recover, serve. Returns when requests are answered."""
        loop = asyncio.get_running_loop()
        inherited = self._inherited
        slots = None if inherited is None else inherited.slots
        app = self.app = App(
            self.settings, self._clock, loop, self.kafka, connections_possible(), slots
        )
        if inherited is None:
            await self._listen(app, loop)
        else:
            await self._listen_to_gateways(app, inherited)
        self._ticker = loop.create_task(self._tick(app))
        try:
            database = await open_database_async(
                self._directory,
                settings=self._engine_settings,
                progress=lambda done: setattr(app.backend, "recovery_progress", done),
                disk=self._disk,
                clock=self._clock,
            )
        except BaseException:
            await self._stop_listening()
            raise
        self._make_reports_directory(app)
        try:
            await self.kafka.open(database, app.ports)
        except BaseException:
            await self._stop_listening()
            await database.close()
            raise
        app.serve_from(database)
        if self._links is not None:
            self._links.time_turns(database.engine.core.waits.timed)
            self._links.open_ports()
        self._write_port_file()

    async def _listen_to_gateways(self, app: App, inherited: Inheritance) -> None:
        ports: dict[channel.BytePort, links.MakeProtocol] = {}
        if "kafka" in inherited.ports:
            self.kafka.serve_gateways(inherited.ports["kafka"])
            ports[channel.BytePort.KAFKA] = self.kafka.make_connection
        if app.rcpx is not None:
            app.rcpx.serve_gateways(inherited.ports["rcpx"])
            ports[channel.BytePort.RCPX] = app.rcpx.make_connection
        self._links = links.GatewayLinks(
            app.dispatcher, app.turn_writer, app.access, ports, self._log
        )
        await self._links.start(inherited.rendezvous)

    async def _listen(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        tls = tls_context(self.settings)
        handshake_s = None if tls is None else self.settings.deadlines.headers_s
        try:
            self._server = await loop.create_server(
                lambda: HttpConnection(app.dispatcher),
                self.settings.host,
                self.settings.port,
                ssl=tls,
                ssl_handshake_timeout=handshake_s,
                backlog=BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise cannot_listen("http", self.settings.host, self.settings.port, error) from error
        try:
            await self.kafka.bind(tls)
            await self._listen_for_rcpx(app, tls)
        except BaseException:
            await self._stop_listening()
            raise

    async def _listen_for_rcpx(self, app: App, tls: ssl.SSLContext | None) -> None:
        settings = self.settings
        if app.rcpx is not None and settings.rcpx_port is not None:
            handshake_s = settings.deadlines.headers_s
            await app.rcpx.start(settings.host, settings.rcpx_port, tls, handshake_s)

    async def serve_until_stopped(self) -> None:
        """Until SIGTERM, SIGINT or `request_stop`; then drain and close."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop)
        await self.wait_for_stop()

    @property
    def is_listening(self) -> bool:
        return self._server is not None or self._links is not None

    def request_stop(self) -> None:
        self._stopping.set()

    async def wait_for_stop(self) -> None:
        """Until `request_stop`; for those whose signals are not the process's."""
        await self._stopping.wait()
        await self.stop()

    async def stop(self) -> None:
        """Finish what is under way, close the engine cleanly."""
        app = self.app
        if app is None:
            return
        await self._stop_listening()
        if self._links is not None:
            await self._links.all_draining(GATEWAYS_LATER_S)
        await app.webhooks.close()
        drains = [self._drain_http(app), self.kafka.drain()]
        if app.rcpx is not None:
            drains.append(app.rcpx.drain())
        await asyncio.gather(*drains)
        await self.kafka.close()
        if app.backend.database is not None:
            await app.backend.database.close()

    async def _drain_http(self, app: App) -> None:
        app.begin_drain()
        if self._links is not None:
            await self._links.drain(self.settings.deadlines.drain_s + GATEWAYS_LATER_S)
        await app.drain()

    async def _stop_listening(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        if self._server is not None:
            self._server.close()
        self.kafka.stop_listening()
        if self.app is not None and self.app.rcpx is not None:
            self.app.rcpx.close()

    async def _tick(self, app: App) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                app.check_deadlines()
                self.kafka.tick()
            except Exception:
                self._log.exception("the check of deadlines failed")

    def _make_reports_directory(self, app: App) -> None:
        """For reports of verify, doctor and pipeline runs. The server serves without it, too."""
        try:
            make_reports_directory(self._disk, PurePath(self._directory))
        except (OSError, StorageError) as error:
            self._log.warning("reports of jobs cannot be kept", error=str(error))

    def _write_port_file(self) -> None:
        if self.settings.port_file is not None:
            path = PurePath(self.settings.port_file)
            replace_file(self._disk, path, json.dumps(self.ports).encode() + b"\n")


def refuse_public_without_keys(settings: ServerSettings) -> None:
    """Without keys every client that connects can do everything: loopback only."""
    if settings.api_keys or settings.allow_insecure_no_auth:
        return
    try:
        local = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        local = settings.host == "localhost"
    if not local:
        raise RequestError(
            f"refusing to listen on {settings.host} without API keys; "
            "set HEADWATER_API_KEYS, or HEADWATER_ALLOW_INSECURE_NO_AUTH=true if you mean it"
        )
