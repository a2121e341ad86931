"""CURRENT: one line about a shard's files that is true even when a file is gone.

It names the active file, the length that file was made with, how much of it was known synced when
the line was written, and the oldest file that must still be there. The line has a checksum, so a
damaged line is told from one that names a missing file: the first is a nuisance (the files
themselves tell which is last), the second is a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.names import parse_wal_file_name, wal_file_name

CURRENT_BYTES_MAX: Final = 256


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


def encode_current(current: Current) -> bytes:
    body = (
        f"{wal_file_name(current.active)} bytes={current.active_bytes} "
        f"durable={current.durable_offset} oldest={wal_file_name(current.oldest)}"
    ).encode()
    return body + f" xxh3={checksum64(body):016x}\n".encode()


def decode_current(line: bytes) -> Current:
    body, mark, checksum = line.rpartition(b" xxh3=")
    if not mark or checksum != f"{checksum64(body):016x}\n".encode():
        raise FormatError("CURRENT: checksum does not match")
    words = body.decode("ascii", "replace").split(" ")
    if len(words) != 4:
        raise FormatError("CURRENT: not the line this software writes")
    active = parse_wal_file_name(words[0])
    active_bytes = words[1].removeprefix("bytes=")
    durable = words[2].removeprefix("durable=")
    oldest = parse_wal_file_name(words[3].removeprefix("oldest="))
    if active is None or oldest is None or not (active_bytes.isdigit() and durable.isdigit()):
        raise FormatError("CURRENT: not the line this software writes")
    return Current(active, int(active_bytes), int(durable), oldest)
