"""What an errno means for segment files: whose move it is."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Final

from headwater.core.errors import AccessError, DamageError, DiskFullError, StorageError
from headwater.disk import NO_ROOM

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
