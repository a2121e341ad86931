"""`headwater bridge`: copy topics between Headwater and Kafka clusters."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import finish, say, say_json
from headwater.cli.signals import stopped_by_signals
from headwater.core.clock import SystemClock
from headwater.core.errors import InvalidRequestError
from headwater.core.units import US_PER_S
from headwater.disk import PosixDisk
from headwater.disk.whole_files import read_whole

if TYPE_CHECKING:
    from headwater.client.bridge.settings import BridgeProgress

CONFIG_BYTES_MAX: Final = 1_000_000
LINE_US: Final = 5 * US_PER_S
"""How often a line is written where stderr is no terminal."""

ConfigOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Lines of name=value, as librdkafka knows them.")
]


def bridge(
    source: Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Where to copy from.")],
    dest: Annotated[str, typer.Option("--to", metavar="ADDRESS", help="Where to copy to.")],
    topics: Annotated[str, typer.Option(metavar="A,B", help="Topics, with commas between.")],
    name: Annotated[
        str,
        typer.Option(help="The bridge's name at the destination; its position is kept under it."),
    ] = "default",
    until_caught_up: Annotated[
        bool, typer.Option(help="End when everything that was there is copied.")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option(help="Go on where the source lost records before they were copied.")
    ] = False,
    settle_s: Annotated[
        float,
        typer.Option(min=0.0, metavar="S", help="After a crash: wait until copies stop arriving."),
    ] = 2.0,
    from_config: ConfigOption = None,
    to_config: ConfigOption = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Metrics at this port; 0: a free one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy topics from one cluster to another, in order and each record once.

    Either side may be Headwater or Apache Kafka. Partitions and offsets' order stay; topics that
    are missing in the destination are made. It goes on where it ended, also after a crash: the
    position is kept in the destination, in the topic headwater-bridge.NAME. No other producer may
    write to the copies. Ctrl-C ends it cleanly.

    An address is kafka://[user:password@]host:port[,host:port], with kafkas:// for TLS.
    """
    from headwater.client.bridge.bridge import Bridge, topics_of
    from headwater.client.bridge.settings import BridgeSettings, Cluster

    settings = BridgeSettings(
        Cluster(source, _lines(from_config)),
        Cluster(dest, _lines(to_config)),
        topics_of(topics),
        name,
        until_caught_up,
        skip_lost,
        settle_s,
    )
    stop = threading.Event()
    report = ProgressReport(as_json=as_json)
    with _metrics(report, metrics_port) as port, stopped_by_signals(stop.set):
        if metrics_port == 0:
            sys.stderr.write(f"metrics at http://127.0.0.1:{port}/metrics\n")
            sys.stderr.flush()
        done = Bridge(settings, stop, report.report).run()
    report.end(done)


class ProgressReport:
    """The progress line: rewritten on a terminal, now and then elsewhere."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._clock = SystemClock()
        self._reported_us = 0
        self._before = 0
        self._is_shown = sys.stderr.isatty() and not as_json
        self.last: BridgeProgress | None = None

    def report(self, progress: BridgeProgress) -> None:
        self.last = progress
        now = self._clock.monotonic_us()
        passed = now - self._reported_us
        if passed < (US_PER_S if self._is_shown else LINE_US):
            return
        rate = (progress.copied - self._before) * US_PER_S / passed if self._reported_us else 0.0
        self._reported_us, self._before = now, progress.copied
        if self._as_json:
            say_json({"copied": progress.copied, "lag": progress.lag, "lags": progress.lags})
            finish()
            return
        line = f"{progress.copied:,} copied, {rate:,.0f} a second, {progress.lag:,} behind"
        sys.stderr.write(f"\r\x1b[K{line}" if self._is_shown else line + "\n")
        sys.stderr.flush()

    def end(self, progress: BridgeProgress) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
        if self._as_json:
            say_json({"copied": progress.copied, "lag": progress.lag, "lags": progress.lags})
        else:
            records = "record" if progress.copied == 1 else "records"
            say(f"{progress.copied:,} {records} copied; {progress.lag:,} behind")


def _lines(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        return read_whole(PosixDisk(), PurePath(path), CONFIG_BYTES_MAX).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path} cannot be read: {error}") from error


def _metrics(report: ProgressReport, port: int | None) -> AbstractContextManager[int | None]:
    from headwater.client.bridge.metrics import serve_metrics

    return serve_metrics(lambda: report.last, port)
