"""Quarantine: what leaves its place in a store is kept beside it, never deleted."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import PurePath

from headwater.disk import Disk, replace_file, sync_names
from headwater.format.names import QUARANTINE_DIRECTORY


def keep_copy(disk: Disk, path: PurePath, name: str, contents: bytes) -> None:
    """Keep bytes that leave a file, under a name that says where they were."""
    target = _directory_for(disk, path) / name
    if not disk.exists(target):  # after a crash in the middle, the first copy is the whole one
        replace_file(disk, target, contents)


def keep_stretch(disk: Disk, path: PurePath, offset: int, contents: bytes, kind: str) -> None:
    """The same for bytes nobody was promised: a courtesy that a full disk may refuse. The zeros
    behind them are not kept."""
    bad = contents.rstrip(b"\0")
    if bad:
        with contextlib.suppress(OSError):
            keep_copy(disk, path, f"{path.name}.{offset}.{kind}", bad)


def move_to_quarantine(disk: Disk, path: PurePath) -> None:
    """The whole file, under the first name there that is free."""
    if not disk.exists(path):
        return  # done before a crash
    directory = _directory_for(disk, path)
    names = itertools.chain([path.name], (f"{path.name}.{n}" for n in itertools.count(1)))
    target = next(directory / name for name in names if not disk.exists(directory / name))
    disk.rename(path, target)
    sync_names(disk, directory)
    sync_names(disk, path.parent)


def _directory_for(disk: Disk, path: PurePath) -> PurePath:
    directory = path.parent / QUARANTINE_DIRECTORY
    if not disk.is_directory(directory):
        disk.make_directory(directory)
        sync_names(disk, path.parent)
    return directory
