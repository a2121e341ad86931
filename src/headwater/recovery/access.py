"""Files and directories that the system does not give, as one line for people.

For everything that reads a directory on somebody's behalf: commands, backups, readers beside the
owner, Spark's jobs and recovery itself.
"""

from __future__ import annotations

import errno
from pathlib import PurePath
from typing import Final

from headwater.core.errors import AccessError
from headwater.disk import Disk

_HINTS: Final = {
    errno.EACCES: "give this user access to it",
    errno.EPERM: "give this user access to it",
    errno.ENOTDIR: "name a directory",
    errno.ENOENT: "check the path",
}


def list_directory(disk: Disk, path: PurePath) -> list[str]:
    try:
        return disk.list_directory(path)
    except OSError as error:
        raise access_error(path, error) from error


def access_error(path: PurePath, error: OSError) -> AccessError:
    """An operating-system error as one line for people."""
    return AccessError(
        f"the system says {(error.strerror or 'no').lower()!r}",
        path=path,
        advice=_HINTS.get(error.errno or 0, "check the disk, then try again"),
    )
