"""A progress bar on stderr while files are read, when stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from headwater.disk import Disk, OpenMode, PosixDisk
from headwater.disk.posix import PosixFile
from headwater.format.names import parse_wal_file_name
from headwater.recovery.topics.survey import find_shard_directories, list_directory

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
