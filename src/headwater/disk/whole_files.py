"""Whole-file work on top of the verbs: write everything, read everything, replace atomically."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from headwater.core.errors import SyncError
from headwater.disk.posix import PosixFile
from headwater.disk.protocol import Buffer, Disk, File, OpenMode

TEMPORARY_SUFFIX = ".tmp"


def write_all(file: File, offset: int, buffers: Sequence[Buffer]) -> int:
    """Write every byte, going on after short writes. Returns the number of bytes written.

    A write that takes nothing and reports nothing would loop forever, so it counts as a
    failed device.
    """
    total = sum(map(len, buffers))
    done = file.write(offset, buffers)
    while done < total:
        rest = _after(buffers, done)
        step = file.write(offset + done, rest)
        if step <= 0:
            raise OSError(errno.EIO, "the device took no bytes", str(file.path))
        done += step
    return total


def _after(buffers: Sequence[Buffer], skip: int) -> list[Buffer]:
    rest: list[Buffer] = []
    for buffer in buffers:
        if skip >= len(buffer):
            skip -= len(buffer)
            continue
        rest.append(memoryview(buffer)[skip:])
        skip = 0
    return rest


def sync_file(file: File, path: PurePath | None = None) -> None:
    """`sync_data`, whose failure is not an ordinary error: whatever the errno, it is the end.

    `path` for messages, where the file was renamed since it was opened.
    """
    try:
        file.sync_data()
    except OSError as error:
        raise SyncError(f"sync failed: {error.strerror}", path=path or file.path) from error


def sync_together(first: File, second: File) -> None:
    """`sync_file` of both, at the same time where the disk can: it has one flush for the two.

    On return both are synced. Until then either may be, as with any write that was not synced.
    """
    errors = None
    if isinstance(first, PosixFile) and isinstance(second, PosixFile):
        errors = first.sync_data_beside(second)
    if errors is None:
        sync_file(first)
        sync_file(second)
        return
    for file, number in zip((first, second), errors, strict=True):
        if number:
            raise SyncError(f"sync failed: {os.strerror(number)}", path=file.path)


def sync_names(disk: Disk, directory: PurePath) -> None:
    """`sync_directory`, with the same rule."""
    try:
        disk.sync_directory(directory)
    except OSError as error:
        raise SyncError(f"sync failed: {error.strerror}", path=directory) from error


@contextmanager
def opened(disk: Disk, path: PurePath, mode: OpenMode) -> Iterator[File]:
    """A file for as long as the work with it takes."""
    file = disk.open(path, mode)
    try:
        yield file
    finally:
        file.close()


def file_bytes(disk: Disk, path: PurePath) -> int:
    with opened(disk, path, OpenMode.READ) as file:
        return file.size()


def read_all(disk: Disk, path: PurePath) -> bytes:
    with opened(disk, path, OpenMode.READ) as file:
        return file.read(0, file.size())


def read_range(disk: Disk, path: PurePath, offset: int, length: int) -> bytes:
    with opened(disk, path, OpenMode.READ) as file:
        return file.read(offset, length)


def remove_files(disk: Disk, paths: Iterable[PurePath]) -> None:
    """Remove those of them that are there, durably. All lie in one directory."""
    there = [path for path in paths if disk.exists(path)]
    for path in there:
        disk.unlink(path)
    if there:
        sync_names(disk, there[0].parent)


def read_whole(disk: Disk, path: PurePath, limit: int) -> bytes:
    """The bytes of a small file, at most `limit` of them."""
    return read_range(disk, path, 0, limit)


def map_file(disk: Disk, path: PurePath) -> memoryview:
    """The whole file as memory. The caller must know that no process shortens it meanwhile."""
    with opened(disk, path, OpenMode.READ) as file:
        return file.view()


def write_new_file(disk: Disk, path: PurePath, contents: Buffer) -> None:
    """A file that was not there, and its bytes synced; not its name."""
    with opened(disk, path, OpenMode.CREATE) as file:
        write_all(file, 0, [contents])
        sync_file(file)


@contextmanager
def new_file(disk: Disk, path: PurePath) -> Iterator[File]:
    """One that is written bit by bit under a temporary name, and gets its own, durably, when it is
    whole. What there was no room for does not take the room."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    if disk.exists(temporary):
        disk.unlink(temporary)  # left by a crash; it was never the file
    with opened(disk, temporary, OpenMode.CREATE) as file:
        try:
            yield file
            sync_file(file)
        except OSError:
            disk.unlink(temporary)
            raise
    disk.rename(temporary, path)
    sync_names(disk, path.parent)


def have_directory(disk: Disk, path: PurePath) -> None:
    """A directory is there from now on, also after a crash."""
    if not disk.is_directory(path):
        disk.make_directory(path)
        sync_names(disk, path.parent)


def cut_file(disk: Disk, path: PurePath, length: int) -> None:
    """Shorten a file to `length` and sync it."""
    with opened(disk, path, OpenMode.UPDATE) as file:
        file.truncate(length)
        sync_file(file)


def replace_file(disk: Disk, path: PurePath, contents: Buffer) -> None:
    """Give `path` new contents such that a crash at any point leaves the old or the new whole.

    The order carries the promise: bytes first, then the name, then the directory.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    if disk.exists(temporary):
        disk.unlink(temporary)  # left by a crash; it was never the file
    write_new_file(disk, temporary, contents)
    disk.rename(temporary, path)
    sync_names(disk, path.parent)
