"""CURRENT and REPAIRS: what stands beside the log files of a shard.

CURRENT is one line that is true even when a file is gone. It names the active file, the length that
file was made with, how much of it was known synced when the line was written, the oldest file that
must still be there, and the log all of them belong to. The line has a checksum, so a damaged line
is told from one that names a missing file: the first is a nuisance (the files themselves show which
is last), the second is a loss.

REPAIRS are losses an operator agreed to, so that the log can be read past them. A repair changes no
byte of a damaged file. It records where to stop believing and where to go on; the damage stays, for
people who want to inspect it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.names import wal_file_name

CURRENT_BYTES_MAX: Final = 256

_LINE: Final = re.compile(
    r"wal-([0-9]{16})\.log bytes=([0-9]{1,20}) durable=([0-9]{1,20}) "
    r"oldest=wal-([0-9]{16})\.log log=([0-9a-f]{16})"
)


class Current(msgspec.Struct, frozen=True):
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


REPAIRS_BYTES_MAX: Final = 16 * 1024 * 1024


class Skip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In this file, at this offset: go on at `resume`, or at the next file when it is -1."""

    file: int
    offset: int
    resume: int
    reason: str


class Repairs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    skips: tuple[Skip, ...] = ()

    def of_file(self, number: int) -> dict[int, int]:
        return {skip.offset: skip.resume for skip in self.skips if skip.file == number}


def encode_repairs(repairs: Repairs) -> bytes:
    body = msgspec.json.format(msgspec.json.encode(repairs), indent=1)
    return body + f"\nxxh3={checksum64(body):016x}\n".encode()


def decode_repairs(contents: bytes) -> Repairs:
    body, mark, checksum = contents.rpartition(b"\nxxh3=")
    if not mark or checksum != f"{checksum64(body):016x}\n".encode():
        raise FormatError("REPAIRS: checksum does not match")
    try:
        repairs = msgspec.json.decode(body, type=Repairs)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"REPAIRS: {error}") from error
    for skip in repairs.skips:
        if skip.file < 1 or skip.offset < 0 or (skip.resume < skip.offset and skip.resume != -1):
            raise FormatError(f"REPAIRS: {skip} goes nowhere")
    return repairs
