"""An open file, and a held directory lock, of a fake disk."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from headwater.disk.protocol import Buffer
from headwater.testing.fake_names import os_error
from headwater.testing.trace import Operation, OperationKind, apply_to_bytes

if TYPE_CHECKING:
    from headwater.testing.fake_disk import FakeDisk


class FakeFile:
    """Implements `headwater.disk.File`. Bound to the inode: survives rename and unlink."""

    def __init__(self, disk: FakeDisk, path: PurePath, inode: int, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._closed = False

    @property
    def path(self) -> PurePath:
        return self._path

    def size(self) -> int:
        with self._disk.lock:
            return len(self._content())

    def read(self, offset: int, length: int) -> bytes:
        with self._disk.lock:
            content = self._content()
            if offset < 0:
                raise os_error(errno.EINVAL, self._path)
            return bytes(content[offset : offset + length])

    def view(self) -> memoryview:
        with self._disk.lock:
            return memoryview(bytes(self._content()))

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Takes what fits: a disk that fills up in the middle shows as a short write."""
        with self._disk.lock:
            content = self._own_content(errno.EBADF)
            if offset < 0:
                raise os_error(errno.EINVAL, self._path)
            data = b"".join(buffers)
            if not data:
                return 0
            growth = offset + len(data) - len(content)
            if growth > 0 and growth > self._disk.room():
                data = data[: max(len(data) - (growth - self._disk.room()), 0)]
                if not data:
                    raise os_error(errno.ENOSPC, self._path)
            self._apply(OperationKind.WRITE, content, offset, data)
            return len(data)

    def sync_data(self) -> None:
        with self._disk.lock:
            self._content()
            self._note(OperationKind.SYNC_DATA)

    def truncate(self, length: int) -> None:
        with self._disk.lock:
            content = self._own_content(errno.EINVAL)
            if length < 0:
                raise os_error(errno.EINVAL, self._path)
            self._apply(OperationKind.TRUNCATE, content, length)

    def allocate(self, length: int) -> None:
        """A disk without room gives what it has before it refuses, as ext4 does."""
        with self._disk.lock:
            content = self._own_content(errno.EBADF)
            if length <= 0:
                raise os_error(errno.EINVAL, self._path)
            possible = min(length, len(content) + self._disk.room())
            self._apply(OperationKind.ALLOCATE, content, possible)
            if possible < length:
                raise os_error(errno.ENOSPC, self._path)

    def close(self) -> None:
        with self._disk.lock:
            if self._closed:
                return
            self._closed = True
            self._disk.opens[self._inode] -= 1
            self._disk.free_if_unused(self._inode)

    def forget_unsynced(self) -> None:
        """What the kernel does after a failed fsync: the pages are called clean, never written.

        Reading still shows the bytes, and a later sync succeeds without making them durable.
        """
        with self._disk.lock:
            self._note(OperationKind.FORGET)

    def _content(self) -> bytes | bytearray:
        if self._closed:
            raise os_error(errno.EBADF, self._path)
        return self._disk.contents[self._inode]

    def _own_content(self, refusal: int) -> bytearray:
        """The bytes for changing them: copied first while another disk shares them."""
        content = self._content()
        if not self._writable:
            raise os_error(refusal, self._path)
        if not isinstance(content, bytearray):
            content = self._disk.contents[self._inode] = bytearray(content)
        return content

    def _apply(
        self, kind: OperationKind, content: bytearray, offset: int, data: bytes = b""
    ) -> None:
        self._note(kind, offset, data)
        apply_to_bytes(content, self._disk.trace[-1])

    def _note(self, kind: OperationKind, offset: int = 0, data: bytes = b"") -> None:
        self._disk.trace.append(Operation(kind, self._path, self._inode, offset, data))


class FakeDirectoryLock:
    """Implements `headwater.disk.DirectoryLock`."""

    def __init__(self, disk: FakeDisk, inode: int) -> None:
        self._disk = disk
        self._inode: int | None = inode

    def release(self) -> None:
        if self._inode is not None:
            inode, self._inode = self._inode, None
            self._disk.unlock(inode)
