"""A real server on a free port of this machine, in a thread of its own, for a module of tests.

With HEADWATER_TEST_WORKERS its connections are those of gateways, in processes of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from headwater.config.engine import EngineSettings
from headwater.config.server import DeadlineSettings, LimitSettings, ServerSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.server.app import App
from headwater.server.health.overview import Overview
from headwater.server.server import Server
from tests.rig.server_process import workers_wanted
from tests.server.gateway_process import GatewayProcesses
from tests.server.raw_http import RawHttp

SMALL_ENGINE = EngineSettings(wal=WalSettings(shards=2, file_bytes=8 * 1024 * 1024))
PATIENCE_S = 30.0


def eventually(condition: Callable[[], object]) -> None:
    """Wait for something that happens in another thread and tells nobody."""
    pause = threading.Event()
    until = SystemClock().monotonic_us() + int(PATIENCE_S * 1_000_000)
    while not condition():
        assert SystemClock().monotonic_us() < until, "it never happened"
        pause.wait(0.005)


class RunningServer:
    """What tests may do with it from outside, and look at from inside."""

    def __init__(self, directory: Path, settings: ServerSettings, **options: Any) -> None:
        self.directory = directory
        self._settings = settings
        self._options = {"engine_settings": SMALL_ENGINE, **options}
        self._listening: Future[None] = Future()
        self._serving: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._failure: BaseException | None = None
        self.host = settings.host
        self.gateways: GatewayProcesses | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    @property
    def app(self) -> App:
        assert self._server is not None
        assert self._server.app is not None
        return self._server.app

    @property
    def connections_open(self) -> int:
        """Those that speak HTTP, whichever process has them."""
        overview = self.app.services[Overview]
        assert isinstance(overview, Overview)
        return overview.open["connections"]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def start(self, *, recovered: bool = True) -> None:
        self._thread.start()
        self._listening.result(PATIENCE_S)
        if recovered:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        self._serving.result(PATIENCE_S)

    def stop(self) -> None:
        if self.gateways is not None:
            self.gateways.stop()
        if self._loop is not None and self._server is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.request_stop)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the server did not stop"
        gateways, self.gateways = self.gateways, None
        if gateways is not None:
            gateways.join()
        if self._failure is not None:
            raise self._failure

    def inside(self, work: Any) -> Any:
        """Run something on the server's own loop and return its result."""
        assert self._loop is not None
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(PATIENCE_S)

    def talk(self, **options: Any) -> RawHttp:
        """A connection of its own."""
        return RawHttp(self.host, self.port, **options)

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:
            waiting = [each for each in (self._listening, self._serving) if not each.done()]
            for future in waiting:
                future.set_exception(error)
            if not waiting:  # nobody else would hear of it
                self._failure = error

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if workers_wanted():
            self.gateways = GatewayProcesses(self._settings, workers_wanted())
            self._options["inherited"] = self.gateways.inherited
        self._server = server = Server(self.directory, self._settings, **self._options)
        start = self._loop.create_task(server.start())
        while not server.is_listening and not start.done():
            await asyncio.sleep(0)
        self._listening.set_result(None)
        await start
        self._serving.set_result(None)
        await server.wait_for_stop()  # signals belong to the main thread


def settings(**fields: Any) -> ServerSettings:
    """Settings on a free port. `limits` and `deadlines` are given as mappings."""
    limits = LimitSettings(**fields.pop("limits", {}))
    deadlines = DeadlineSettings(**{"drain_s": 5.0, **fields.pop("deadlines", {})})
    return ServerSettings(port=0, limits=limits, deadlines=deadlines, **fields)


@contextmanager
def running(
    directory: Path, chosen: ServerSettings | None = None, **options: Any
) -> Iterator[RunningServer]:
    server = RunningServer(directory, chosen or settings(), **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def loop_held(server: RunningServer) -> Iterator[None]:
    """Nothing is read meanwhile, so that what is sent comes in one turn of the loop."""
    is_held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        assert go_on.wait(PATIENCE_S)

    holder = threading.Thread(target=server.inside, args=(hold,))
    holder.start()
    assert is_held.wait(PATIENCE_S)
    try:
        yield
    finally:
        go_on.set()
        holder.join(PATIENCE_S)


def submissions(server: RunningServer) -> int:
    wal = server.app.backend.engine.core.wal
    assert wal is not None
    return sum(shard.counters.submissions for shard in wal.shards)
