"""What the repairs of all stores do with doubtful bytes, and with the end of a log file.

What leaves its place in a store is kept beside it, in quarantine, never deleted.

A log file is made of zeros before it is written, so zeros at its end are nothing. What is behind
the last whole write was never acknowledged: a copy goes to quarantine, then it is zeros again. The
file is not made shorter: the space stays allocated, and the length keeps telling whether the file
was cut.

What no witness covers may be in memory only, left there by a process that was killed, or by a sync
that failed: then the kernel holds pages that it calls clean and never wrote, and the next sync
succeeds without them (docs/decisions/0009). So it is written once more before it is synced.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import PurePath
from typing import Final

from headwater.core.units import KIB, MIB
from headwater.disk import (
    Buffer,
    Disk,
    File,
    OpenMode,
    have_directory,
    opened,
    replace_file,
    sync_file,
    sync_names,
    write_all,
)
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
    have_directory(disk, directory)
    return directory


CHUNK_BYTES: Final = MIB
_ZEROS: Final = bytes(64 * KIB)


def used_bytes(contents: bytes) -> int:
    """Without the zeros at the end. Most of a file may be zeros: they are compared, not read one by
    one."""
    end = len(contents)
    while contents.endswith(_ZEROS, 0, end):
        end -= len(_ZEROS)
    begin = max(end - len(_ZEROS), 0)
    return begin + len(contents[begin:end].rstrip(b"\0"))


def has_bytes(file: File, begin: int) -> bool:
    """Whether anything but zeros is behind here."""
    size = file.size()
    chunks = (file.read(at, min(CHUNK_BYTES, size - at)) for at in range(begin, size, CHUNK_BYTES))
    return any(used_bytes(chunk) for chunk in chunks)


def cut_tail(disk: Disk, path: PurePath, end: int) -> None:
    """Put a copy of what is behind aside, then overwrite it with zeros."""
    with opened(disk, path, OpenMode.UPDATE) as file:
        tail = file.read(end, max(file.size() - end, 0))
        used = used_bytes(tail)
        keep_stretch(disk, path, end, tail[:used], "torn")
        for at in range(0, used, CHUNK_BYTES):
            write_all(file, end + at, [bytes(min(CHUNK_BYTES, used - at))])
        sync_file(file)


def write_again(file: File, start: int, stop: int) -> None:
    """The bytes of a stretch, as they are. The caller syncs the file."""
    for at in range(start, stop, CHUNK_BYTES):
        contents: Buffer = file.read(at, min(CHUNK_BYTES, stop - at))
        if contents:
            write_all(file, at, [contents])
