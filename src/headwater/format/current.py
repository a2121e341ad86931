"""CURRENT: one line about a shard's files that is true even when a file is gone.

It names the active file, the length that file was made with, how much of it was known synced when
the line was written, the oldest file that must still be there, and the log all of them belong to.
The line has a checksum, so a damaged line is told from one that names a missing file: the first is
a nuisance (the files themselves show which is last), the second is a loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.names import wal_file_name

CURRENT_BYTES_MAX: Final = 256

_LINE: Final = re.compile(
    r"wal-([0-9]{16})\.log bytes=([0-9]{1,20}) durable=([0-9]{1,20}) "
    r"oldest=wal-([0-9]{16})\.log log=([0-9a-f]{16})"
)


@dataclass(frozen=True, slots=True)
class Current:
    active: int
    """Number of the file that is written to."""
    active_bytes: int
    """The length that file was made with."""
    durable_offset: int
    """How much of the active file was known synced when this was written."""
    oldest: int
    """Number of the oldest file that was not yet trimmed."""
    log_id: int
    """The log the files belong to, as in their marks: files are deleted on this line's word."""


def encode_current(current: Current) -> bytes:
    body = (
        f"{wal_file_name(current.active)} bytes={current.active_bytes} "
        f"durable={current.durable_offset} oldest={wal_file_name(current.oldest)} "
        f"log={current.log_id:016x}"
    ).encode()
    return body + f" xxh3={checksum64(body):016x}\n".encode()


def decode_current(line: bytes) -> Current:
    body, mark, checksum = line.rpartition(b" xxh3=")
    if not mark or checksum != f"{checksum64(body):016x}\n".encode():
        raise FormatError("CURRENT: checksum does not match")
    match = _LINE.fullmatch(body.decode("ascii", "replace"))
    if match is None:
        raise FormatError("CURRENT: not the line this software writes")
    active, active_bytes, durable, oldest, log_id = match.groups()
    return Current(int(active), int(active_bytes), int(durable), int(oldest), int(log_id, 16))
