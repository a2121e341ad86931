"""Files that can be made again: directories for them, and programs among them.

Nothing here is synced: a cache that a power loss emptied is filled again. What is given a name is
whole all the same, because another process may be looking for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from headwater.disk.posix import DIRECTORY_MODE

_PROGRAM_MODE = 0o700


def cache_directory(*parts: str) -> PurePath:
    """A directory of the user's cache: $XDG_CACHE_HOME/headwater, or ~/.cache/headwater."""
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache").joinpath("headwater", *parts)


def make_directories(path: PurePath) -> None:
    """The directory and those above it, for the owner only where they are new."""
    if not os.path.isdir(path):
        make_directories(path.parent)
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(path, DIRECTORY_MODE)


def write_cached(path: PurePath, contents: bytes, *, program: bool = False) -> None:
    """Give `path` these contents, whole, even if others do the same at the same time."""
    make_directories(path.parent)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    mode = _PROGRAM_MODE if program else 0o600
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(contents)
    os.rename(temporary, path)


def read_cached(path: PurePath) -> bytes | None:
    """The contents, or None when there is no such file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def modified_ns(path: PurePath) -> int:
    """When a file was last written; 0 for one that is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def is_program(path: PurePath) -> bool:
    """Is this a file that this user may run?"""
    return os.path.isfile(path) and os.access(path, os.X_OK)


@contextmanager
def scratch_directory(prefix: str, inside: PurePath | None = None) -> Iterator[PurePath]:
    """One of its own, gone with the block; among temporary files unless said where."""
    with TemporaryDirectory(prefix=prefix, dir=inside) as made:
        yield PurePath(made)


def remove_tree(path: PurePath) -> None:
    """A directory of the cache with all that is in it; no error when it is gone already."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
