"""A directory of a store: its names sorted, and what the system does not give of it, for people.

For everything that reads a directory on somebody's behalf: commands, backups, readers beside the
owner, Spark's jobs and recovery itself.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, Generic, TypeVar

from headwater.core.errors import AccessError
from headwater.disk import Disk
from headwater.disk.whole_files import TEMPORARY_SUFFIX

_HINTS: Final = {
    errno.EACCES: "give this user access to it",
    errno.EPERM: "give this user access to it",
    errno.ENOTDIR: "name a directory",
    errno.ENOENT: "check the path",
}


def list_directory(disk: Disk, path: PurePath) -> list[str]:
    with accessing(path):
        return disk.list_directory(path)


@contextmanager
def accessing(path: PurePath) -> Iterator[None]:
    """What the system does not give inside is an `access_error`."""
    try:
        yield
    except OSError as error:
        raise access_error(path, error) from error


def access_error(path: PurePath, error: OSError) -> AccessError:
    """An operating-system error as one line for people."""
    return AccessError(
        f"the system says {(error.strerror or 'no').lower()!r}",
        path=path,
        advice=_HINTS.get(error.errno or 0, "check the disk, then try again"),
    )


T = TypeVar("T")


@dataclass(slots=True)
class StoreNames(Generic[T]):
    known: dict[str, T] = field(default_factory=dict)
    """Names of the store's form, and what they say."""
    leftovers: list[PurePath] = field(default_factory=list)
    """Made by work that was interrupted, or goes on."""
    foreign: list[PurePath] = field(default_factory=list)


def sort_names(
    directory: PurePath,
    names: Iterable[str],
    parse: Callable[[str], T | None],
    own: Callable[[str], bool],
) -> StoreNames[T]:
    """`parse` is None for a name that is not of the store's form; `own` is true of other names that
    belong there."""
    result = StoreNames[T]()
    for name in names:
        parsed = parse(name)
        if parsed is not None:
            result.known[name] = parsed
        elif own(name):
            continue
        elif name.endswith(TEMPORARY_SUFFIX):
            result.leftovers.append(directory / name)
        else:
            result.foreign.append(directory / name)
    return result
