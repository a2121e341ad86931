"""A segment as the rest of the program knows it, and whose move it is when its files fail."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.errors import (
    AccessError,
    DamageError,
    DiskFullError,
    StorageError,
    UnavailableError,
)
from headwater.disk import NO_ROOM
from headwater.format.segment import Identity, salt_of

REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def is_no_room(error: Exception) -> bool:
    return isinstance(error, DiskFullError) or (
        isinstance(error, OSError) and error.errno in NO_ROOM
    )


@contextmanager
def file_work(path: PurePath) -> Iterator[None]:
    """Turn an OSError inside into the error that says whose move it is, with the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamageError(
            "a file that must be there is missing", path=path, advice="restore a backup"
        ) from error
    except OSError as error:
        where = error.filename or path
        if error.errno in NO_ROOM:
            raise DiskFullError(f"no room for {where}; free some space") from error
        if error.errno in REFUSED:
            raise AccessError(
                f"not allowed: {error.strerror}", path=where, advice="check owner and mode"
            ) from error
        raise StorageError(
            f"the disk failed: {error.strerror}", path=where, advice="check the device"
        ) from error


class Tier(Enum):
    HOT = "hot"
    COLD = "cold"


class SegmentChangedError(UnavailableError):
    """The files were rewritten or removed since this segment was looked up; look it up again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=0)


class UnreadableSegmentError(DamageError):
    """The file of a segment is missing, or is another segment's: no record of it can be read."""


class SegmentMissingError(SegmentChangedError):
    """There is no file for this segment. If the segment is still the topic's, it was lost."""

    def __init__(self, path: PurePath) -> None:
        super().__init__(f"{path} is no longer there")
        self.path = path


@dataclass(frozen=True, slots=True)
class Segment:
    """One gapless range of seqs in one pair of files."""

    first_seq: int
    count: int
    data_bytes: int
    sealed: bool
    created_ms: int
    """When its first record was written, by the wall clock."""
    tier: Tier = Tier.HOT
    identity: Identity | None = None
    """Whose it is; None for one that was written before segments knew."""

    @property
    def salt(self) -> int:
        """What the checks of its index are salted with."""
        return salt_of(self.identity)

    @property
    def end_seq(self) -> int:
        """The last seq in it."""
        return self.first_seq + self.count - 1

    @property
    def is_cold(self) -> bool:
        return self.tier is Tier.COLD


class SegmentSlice(NamedTuple):
    """Some bytes of a `.data` file: the frame of an entry begins at its offset minus `base`."""

    buffer: memoryview
    base: int
    path: PurePath
