"""From what the user typed to a log directory, or one line that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated

import typer

from headwater.core.errors import RequestError
from headwater.disk import Disk
from headwater.format.names import (
    WAL_DIRECTORY,
    is_log_name,
)
from headwater.recovery.directory import accessing, list_directory

DirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="The data directory (the one with wal/ in it), or its wal/ directory."
    ),
]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    wal: PurePath
    data: PurePath | None
    """The directory whose lock protects the log; None for a log directory that stands alone."""
    is_whole: bool = False
    """The data directory itself was named, and so every store in it."""


def find_log(disk: Disk, directory: Path) -> LogDirectory:
    directory = directory.resolve() if directory.name in ("", "..") else directory
    with accessing(directory):
        if not disk.is_directory(directory):
            if not disk.exists(directory):
                raise RequestError(f"there is no directory {directory}; check the path")
            raise RequestError(
                f"{directory} is not a directory; name the data directory, "
                f"or show one file with `headwater show`"
            )
        names = list_directory(disk, directory)
        if WAL_DIRECTORY in names and disk.is_directory(directory / WAL_DIRECTORY):
            return LogDirectory(directory / WAL_DIRECTORY, directory, is_whole=True)
    if any(map(is_log_name, names)):
        data = directory.absolute().parent if directory.name == WAL_DIRECTORY else None
        return LogDirectory(directory, data)
    if directory.name == WAL_DIRECTORY and not names:
        return LogDirectory(directory, directory.absolute().parent)
    raise RequestError(
        f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it; "
        "name the directory that Headwater was started with"
    )
