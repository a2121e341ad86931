"""One run of the server, and what it prints for its operator."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import uvloop

from headwater.cli.output import finish, printable, say, say_json
from headwater.config.loading import Settings
from headwater.core.errors import AccessError
from headwater.core.memory import keep_freed_memory
from headwater.core.version import __version__
from headwater.disk import PosixDisk, replace_file
from headwater.engine.engine import Engine
from headwater.server import metrics_listener
from headwater.server.server import Server

if TYPE_CHECKING:
    from headwater.server.gateway.inheritance import Inheritance
    from headwater.server.metrics_listener import MetricsListener

PROGRESS_EVERY_S = 0.1
SILENT_S = 1.0
"""A recovery that is done sooner needs no bar."""


GARBAGE_THRESHOLDS = (50_000, 20, 50)
"""Nearly everything here is freed by counting; searching for cycles every 700 objects, as Python
does by default, means walking the whole tail of every topic again and again."""


def run_server(settings: Settings, inherited: Inheritance | None = None) -> None:
    """`inherited`: as the sequencer of gateways."""
    settle_memory()
    # While recovering there is nothing to finish: a signal simply ends the process, and the next
    # start begins again.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    run_on_loop(_serve(settings, inherited))


def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def settle_memory() -> None:
    """What is there now stays; what comes is mostly freed by counting."""
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    gc.enable()
    keep_freed_memory()


async def _serve(settings: Settings, inherited: Inheritance | None) -> None:
    await ServerRun(settings, inherited).run()


class ServerRun:
    def __init__(self, settings: Settings, inherited: Inheritance | None) -> None:
        self._settings = settings
        self._inherited = inherited
        # The port file names both listeners, so it is written here when both are there.
        self._server = Server(
            settings.data_dir,
            replace(settings.server, port_file=None),
            settings.engine,
            inherited=inherited,
        )
        self._metrics: MetricsListener | None = None
        if settings.server.metrics_port is not None:
            self._metrics = metrics_listener.MetricsListener(
                self._server,
                settings.server.metrics_port,
                sockets=() if inherited is None else inherited.metrics,
            )

    async def run(self) -> None:
        settings = self._settings
        self._print_event("starting", f"headwater {__version__}", version=__version__)
        for given, line in zip(settings.given, settings.changed_lines(), strict=True):
            self._print_event("setting", f"  {line}", name=given.key.name, told=line)
        if self._metrics is not None:
            await self._metrics.start()
        try:
            await self._start()
            self._handle_signals()
            self._print_recovery()
            self._write_port_file()
            self._print_address()
            await self._server.serve_until_stopped()
        finally:
            if self._metrics is not None:
                await self._metrics.stop()
        self._print_event("stopped", "stopped cleanly")

    async def _start(self) -> None:
        """Recover, with a progress bar when it takes long and stderr is a terminal."""
        starting = asyncio.ensure_future(self._server.start())
        progress_task = None
        if sys.stderr.isatty():
            progress_task = asyncio.ensure_future(self._show_progress())
        try:
            await starting
        finally:
            if progress_task is not None:
                progress_task.cancel()
                with suppress(asyncio.CancelledError):
                    await progress_task

    def _handle_signals(self) -> None:
        """Before the listening line is printed: its reader may stop the server at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._server.request_stop)
        if self._inherited is not None:
            loop.add_reader(self._inherited.alive[0], self._stop_without_supervisor)

    def _stop_without_supervisor(self) -> None:
        assert self._inherited is not None
        asyncio.get_running_loop().remove_reader(self._inherited.alive[0])
        self._server.request_stop()

    async def _show_progress(self) -> None:
        await asyncio.sleep(SILENT_S)
        # Late: most servers are ready before a bar could be seen.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
            task = bar.add_task("Recovering", total=1.0)
            while True:
                app = self._server.app
                bar.update(
                    task, completed=app.backend.recovery_progress if app is not None else 0.0
                )
                await asyncio.sleep(PROGRESS_EVERY_S)

    def _print_recovery(self) -> None:
        assert self._server.app is not None
        engine = self._server.app.backend.engine
        report, notes = engine.wal_report, engine.notes
        kafka = self._server.kafka.store
        beside = [] if kafka is None else kafka.report.findings
        for finding in [*report.findings, *beside]:
            self._print_event("recovery", f"  {printable(finding.line())}", told=finding.line())
        for name in notes.snapshots_unreadable:
            line = f"snapshot {name} cannot be read; the one before it was used"
            self._print_event("recovery", f"  {printable(line)}", told=line)
        self._print_machines(engine)
        self._print_unavailable(engine)
        facts = {
            "topics": notes.topics,
            "log_groups": report.groups,
            "log_frames": report.frames,
            "frames_replayed": notes.frames_replayed,
            "seqs_reserved": notes.seqs_reserved,
        }
        if not (notes.topics or report.frames):
            self._print_event("recovered", "new data directory: nothing to recover", **facts)
            return
        lost = ""
        if notes.seqs_reserved:
            lost = (
                f"; {notes.seqs_reserved:,} seqs of the disk class were reserved and have no "
                "record: none was acknowledged, unless the machine itself went down"
            )
        self._print_event(
            "recovered",
            f"recovered: {notes.topics:,} topics; log with {report.frames:,} frames in "
            f"{report.groups:,} groups, {notes.frames_replayed:,} of them replayed{lost}",
            **facts,
        )

    def _print_unavailable(self, engine: Engine) -> None:
        """What could not be opened; everything else is served."""
        for part, reason in engine.core.parts.away.items():
            line = f"{part.not_served}: {reason}"
            self._print_event("unavailable", printable(line), **engine.core.parts.detail(part))

    def _print_machines(self, engine: Engine) -> None:
        """What was recovered of state machines; prints nothing where there are none."""
        store = engine.machines.store
        if store is None:
            return
        report = store.report
        line = f"state machines: {report.instances:,} instances"
        if report.damaged_entries:
            line += f"; {report.damaged_entries:,} damaged entries of their log were passed over"
        if report.doubtful:
            line += "; instances that may not be in their last state say so"
        self._print_event(
            "machines",
            line,
            instances=report.instances,
            damaged_entries=report.damaged_entries,
            doubtful=report.doubtful,
        )

    def _print_address(self) -> None:
        settings = self._settings.server
        scheme = "http" if settings.tls_certificate is None else "https"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{scheme}://{host}:{self._server.port}"
        keys = len(settings.api_keys)
        access = "no keys: every client that can connect may do everything"
        if keys:
            access = f"{keys} API key{'' if keys == 1 else 's'}"
        data = str(Path(self._settings.data_dir).absolute())
        text = f"listening on {address} (data in {printable(data)}; {access})"
        self._print_kafka(host)
        self._print_event("listening", text, address=address, data_dir=data, api_keys=keys)
        rcpx = self._server.ports.get("rcpx")
        if rcpx is not None:
            where = f"{host}:{rcpx}"
            self._print_event("rcpx", f"state machines over RCPX on {where}", address=where)
        if self._metrics is not None:
            where = f"{scheme}://{host}:{self._metrics.port}/metrics"
            self._print_event("metrics", f"metrics on {where}", address=where)

    def _print_kafka(self, host: str) -> None:
        port, users = self._server.kafka.port, len(self._settings.server.kafka_users)
        if port is None:
            return
        access = f"{users} user{'' if users == 1 else 's'}"
        if not users:
            locked = bool(self._settings.server.api_keys)
            access = (
                "closed: set kafka_users" if locked else "no users: every client may do everything"
            )
        where = f"{host}:{port}"
        self._print_event(
            "kafka", f"Kafka clients on {where} ({access})", address=where, users=users
        )

    def _write_port_file(self) -> None:
        if self._settings.server.port_file is None:
            return
        ports = self._server.ports
        if self._metrics is not None:
            ports["metrics"] = self._metrics.port
        path = PurePath(self._settings.server.port_file)
        text = "{" + ", ".join(f'"{name}": {port}' for name, port in ports.items()) + "}\n"
        try:
            replace_file(PosixDisk(), path, text.encode())
        except OSError as error:
            raise AccessError(
                f"the port file cannot be written ({(error.strerror or '').lower()})", path=path
            ) from error

    def _print_event(self, event: str, line: str, **facts: Any) -> None:
        """Lines for people, or objects when the logs are for programs. At once, never buffered."""
        if self._settings.log_json:
            say_json({"event": event, **facts})
        else:
            say(line)
        finish()
