"""The real disk: positioned vector writes, fdatasync, fallocate, flock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DirectoryInUseError
from headwater.disk.protocol import Buffer, DirectoryLock, File, OpenMode
from headwater.native import compiled

_native: Final = compiled("syncs")
LOCK_NAME: Final = "LOCK"
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

_VECTOR_BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX")

_FLAGS: Final = {
    OpenMode.READ: os.O_RDONLY,
    OpenMode.UPDATE: os.O_RDWR,
    OpenMode.CREATE: os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


class PosixFile:
    def __init__(self, path: PurePath, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> PurePath:
        return self._path

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        first = os.pread(self._descriptor, length, offset)
        if len(first) == length or not first:
            return first
        # The kernel may stop early, at 2 GiB for one; only an empty answer is the end.
        chunks = [first]
        have = len(first)
        while have < length:
            chunk = os.pread(self._descriptor, length - have, offset + have)
            if not chunk:
                break
            chunks.append(chunk)
            have += len(chunk)
        return b"".join(chunks)

    def view(self) -> memoryview:
        if self.size() == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ))

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        return os.pwritev(self._descriptor, buffers[:_VECTOR_BUFFERS_MAX], offset)

    def sync_data(self) -> None:
        os.fdatasync(self._descriptor)

    def sync_data_beside(self, other: PosixFile) -> tuple[int, int] | None:
        """`sync_data` of both at the same time: an errno for each, 0 where it went well.

        None, with nothing done, where that is not compiled or not the sync of both.
        """
        if _native is None or not type(self) is type(other) is PosixFile:
            return None  # others have a sync of their own
        errors: tuple[int, int] = _native.sync_together(self._descriptor, other._descriptor)
        return errors

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    def allocate(self, length: int) -> None:
        os.posix_fallocate(self._descriptor, 0, length)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def plain_descriptor(file: File | None) -> int | None:
    """The descriptor of an open file of the real disk, for compiled loops; None of any other."""
    return file._descriptor if type(file) is PosixFile else None


class PosixDirectoryLock:
    """flock on a file that stays: the kernel drops the lock with the process, even on SIGKILL.

    The file itself is never removed. Removing it would let a third process lock a new file of
    the same name while a second one still waits on the old.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class PosixDisk:
    def open(self, path: PurePath, mode: OpenMode) -> PosixFile:
        return PosixFile(path, os.open(path, _FLAGS[mode] | os.O_CLOEXEC, FILE_MODE))

    def exists(self, path: PurePath) -> bool:
        return os.path.lexists(path)

    @staticmethod
    def absolute(path: str) -> str:
        """The path as it is from everywhere."""
        return os.path.abspath(path)

    def is_directory(self, path: PurePath) -> bool:
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            return False

    def list_directory(self, path: PurePath) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: PurePath) -> None:
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            if not self.is_directory(path):
                raise

    def remove_directory(self, path: PurePath) -> None:
        os.rmdir(path)

    def rename(self, source: PurePath, target: PurePath) -> None:
        os.rename(source, target)

    def unlink(self, path: PurePath) -> None:
        os.unlink(path)

    def sync_directory(self, path: PurePath) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: PurePath) -> int:
        facts = os.statvfs(path)
        return facts.f_bavail * facts.f_frsize

    def lock_directory(self, path: PurePath) -> DirectoryLock:
        descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            holder = ""
            with contextlib.suppress(OSError):
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            who = f" (process {holder})" if holder.isdigit() else ""
            raise DirectoryInUseError(
                f"{path} is in use by another Headwater{who}; "
                "stop it, or choose another data directory"
            ) from error
        return PosixDirectoryLock(descriptor)
