"""Bars on stderr, when it is a terminal; numbers for people, and times as they are typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import PurePath

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from headwater.core.errors import RequestError
from headwater.core.units import MIB, US_PER_S
from headwater.disk import Disk, OpenMode, PosixDisk
from headwater.disk.posix import PosixFile
from headwater.format.names import parse_wal_file_name
from headwater.recovery.directory import list_directory
from headwater.recovery.topics.survey import find_shard_directories

Advance = Callable[[int], None]


class WatchedDisk(PosixDisk):
    """The real disk, telling how far a reader has come. Knows nothing of what is read."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._seen: set[PurePath] = set()

    def open(self, path: PurePath, mode: OpenMode) -> PosixFile:
        file = super().open(path, mode)
        if path not in self._seen and parse_wal_file_name(path.name) is not None:
            self._seen.add(path)
            self._advance(file.size())
        return file


@contextmanager
def reading(wal_directory: PurePath, doing: str) -> Iterator[Disk]:
    """A disk to read the log through. The bar is gone when the work is done."""
    if not sys.stderr.isatty():
        yield PosixDisk()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(doing, total=_log_bytes(PosixDisk(), wal_directory))
        yield WatchedDisk(lambda size: bar.advance(task, size))


def _log_bytes(disk: PosixDisk, wal_directory: PurePath) -> int:
    """Only for the bar: files may come and go meanwhile, so what cannot be read counts nothing."""
    total = 0
    for directory in find_shard_directories(disk, wal_directory):
        for name in list_directory(disk, directory):
            if parse_wal_file_name(name) is not None:
                total += _size(disk, directory / name)
    return total


def _size(disk: PosixDisk, path: PurePath) -> int:
    try:
        file = disk.open(path, OpenMode.READ)
    except OSError:
        return 0
    try:
        return file.size()
    finally:
        file.close()


Begin = Callable[[int], Advance]


@contextmanager
def transferring(doing: str) -> Iterator[Begin]:
    """A progress bar on stderr while bytes are copied, when stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _total: lambda _size: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(file=sys.stderr)
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:

        def begin(total: int) -> Advance:
            task = bar.add_task(doing, total=total)
            return lambda size: bar.advance(task, size)

        yield begin


def speed(size: int, elapsed_us: int) -> str:
    """How much, in what time, and how fast."""
    seconds = max(elapsed_us, 1) / US_PER_S
    return f"{size / MIB:,.1f} MiB in {seconds:.1f} s ({size / MIB / seconds:,.0f} MiB/s)"


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from an ISO time (UTC unless it says otherwise) or from a number."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(
            f"{text!r} is no time; write 2026-05-01T12:00:00Z or milliseconds since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)


def parse_seqs(texts: list[str]) -> dict[str, int]:
    """TOPIC=SEQ, any number of times."""
    seqs: dict[str, int] = {}
    for text in texts:
        topic, sign, number = text.rpartition("=")
        if not sign or not topic or not (number.isascii() and number.isdigit()):
            raise RequestError(f"{text!r} is not TOPIC=SEQ, as in orders=1500")
        if topic in seqs:
            raise RequestError(f"topic {topic!r} is named twice")
        seqs[topic] = int(number)
    return seqs
