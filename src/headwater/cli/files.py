"""Small files the command line reads and writes for its user, through the disk."""

from __future__ import annotations

from pathlib import Path

from headwater.core.errors import RequestError
from headwater.core.units import MIB
from headwater.disk import PosixDisk, read_whole

BYTES_MAX = 4 * MIB


def read_text_file(name: str) -> str:
    """The text of a file that the user named, or one line that says why not."""
    path = Path(name).expanduser()
    try:
        contents = read_whole(PosixDisk(), path, BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}; check the path") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {(error.strerror or '').lower()}") from error
    if len(contents) > BYTES_MAX:
        raise RequestError(f"{path} has over {BYTES_MAX} bytes; that is no such file")
    try:
        return contents.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not text in UTF-8") from error
