"""Where log files are: a data directory, a log directory alone, or an archive of several of them.

A data directory that may have an owner is locked while a job reads it. The copies in an archive may
overlap: of the same file of the same log the one that reaches furthest is taken.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from headwater.core.errors import RequestError
from headwater.disk import Disk
from headwater.disk.posix import LOCK_NAME
from headwater.format.names import (
    WAL_DIRECTORY,
    is_log_name,
)
from headwater.recovery.directory import access_error, accessing, list_directory


@dataclass(frozen=True, slots=True)
class JobLog:
    wal: PurePath
    data: PurePath | None
    """The data directory around it; None for a log that stands alone."""


def find_logs(disk: Disk, path: PurePath) -> list[JobLog]:
    """The logs at a path, or an error that says what may be there."""
    with accessing(path):
        if not disk.is_directory(path):
            raise RequestError(f"there is no directory {path}; check the path")
        log = _log_at(disk, path)
        if log is not None:
            return [log]
        below = [path / name for name in list_directory(disk, path)]
        logs = [_log_at(disk, each) for each in below if disk.is_directory(each)]
    several = [log for log in logs if log is not None]
    if not several:
        raise RequestError(
            f"{path} holds no log files: name a data directory (with {WAL_DIRECTORY}/ in it), a "
            "directory of log files, or one whose directories are such"
        )
    return several


def _log_at(disk: Disk, path: PurePath) -> JobLog | None:
    names = list_directory(disk, path)
    if WAL_DIRECTORY in names and disk.is_directory(path / WAL_DIRECTORY):
        return JobLog(path / WAL_DIRECTORY, path)
    if not any(map(is_log_name, names)):
        return None
    if path.name == WAL_DIRECTORY and disk.exists(path.parent / LOCK_NAME):
        return JobLog(path, path.parent)
    return JobLog(path, None)


@contextlib.contextmanager
def owned(disk: Disk, directories: list[PurePath], *, writing: bool = False) -> Iterator[None]:
    """No other process owns these data directories while the block runs.

    For a reader, one without a lock file was never owned, and one that cannot be written to has no
    owner.
    """
    with contextlib.ExitStack() as held:
        for directory in directories:
            if not writing and not disk.exists(directory / LOCK_NAME):
                continue
            try:
                lock = disk.lock_directory(directory)
            except OSError as error:
                if error.errno == errno.EROFS and not writing:
                    continue
                raise access_error(directory, error) from error
            held.callback(lock.release)
        yield


def require_data_directory(disk: Disk, directory: PurePath) -> None:
    with accessing(directory):
        if not disk.is_directory(directory / WAL_DIRECTORY):
            raise RequestError(
                f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it"
            )


def require_cold(disk: Disk, cold: str) -> None:
    """An object store says itself what is wrong with it."""
    with accessing(PurePath(cold)):
        if "://" not in cold and not disk.is_directory(PurePath(cold)):
            raise RequestError(f"there is no directory {cold} for the cold tier; check the path")
