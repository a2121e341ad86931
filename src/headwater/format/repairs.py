"""REPAIRS: losses an operator agreed to, so that the log can be read past them.

A repair changes no byte of a damaged file. It records where to stop believing and where to go on;
the damage stays, for people who want to inspect it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64

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
