"""The verbs everything durable is built from.

They are small on purpose: each is one thing a kernel can do or fail to do, so that a test's
disk can lose, tear, reorder or refuse any one of them. A write may be short, as in POSIX; only
`write_all` hides that. Failures arrive as `OSError`: what an errno means is decided by the
caller, who knows whether bytes may already have been promised.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import Enum
from pathlib import PurePath
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk says."""


class OpenMode(Enum):
    READ = "read"
    """An existing file, for reading only."""
    UPDATE = "update"
    """An existing file, for reading and writing."""
    CREATE = "create"
    """A new file, for reading and writing; it is an error if it exists."""


class File(Protocol):
    """An open file. Positions are always given; there is no shared cursor."""

    @property
    def path(self) -> PurePath: ...

    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer only at the end of the file."""

    def view(self) -> memoryview:
        """The whole file as read-only memory, mapped where the disk can. For sealed files."""

    def write(self, offset: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers one after the other; returns how many bytes were taken."""

    def sync_data(self) -> None:
        """The bytes (and the size needed to read them) are on stable storage on return."""

    def truncate(self, length: int) -> None: ...

    def allocate(self, length: int) -> None:
        """Reserve space up to `length` so that writing there cannot fail for want of room."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    """Held by one process at a time; gone when that process is, however it ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Names and files. Names become durable only by `sync_directory`."""

    def open(self, path: PurePath, mode: OpenMode) -> File: ...

    def exists(self, path: PurePath) -> bool: ...

    def is_directory(self, path: PurePath) -> bool: ...

    def list_directory(self, path: PurePath) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: PurePath) -> None:
        """Create one directory for the owner only; it is no error if it exists."""

    def remove_directory(self, path: PurePath) -> None:
        """Remove one empty directory."""

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Atomically give `source` the name `target`, replacing what was there."""

    def unlink(self, path: PurePath) -> None: ...

    def sync_directory(self, path: PurePath) -> None:
        """The names in this directory are on stable storage on return."""

    def free_bytes(self, path: PurePath) -> int: ...

    def lock_directory(self, path: PurePath) -> DirectoryLock:
        """Own the directory, or raise DirectoryInUseError."""
