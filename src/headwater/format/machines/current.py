"""CURRENT, FED and the positions of webhooks: lines that are true even when a segment is gone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headwater.core.errors import FormatError
from headwater.format.crc32c import crc32c
from headwater.format.machines.names import parse_segment_name, segment_name

_LINE: Final = re.compile(
    r"([0-9a-f]{16}\.wal) durable=([0-9]{1,13}) oldest=([0-9a-f]{16}\.wal) crc32c=([0-9a-f]{8})\n"
)
_FED: Final = re.compile(r"fed=([0-9]{1,20}) crc32c=([0-9a-f]{8})\n")
_WEBHOOK: Final = re.compile(
    r"\{\"wal_offset\":\"([0-9]{1,20})\"(?:,\"crc32c\":\"([0-9a-f]{8})\")?\}\n?"
)


@dataclass(frozen=True, slots=True)
class MachineCurrent:
    active: int
    """The segment that is written to."""
    durable: int
    """How much of it was known synced when this was written."""
    oldest: int
    """The oldest segment that must still be there."""


def encode_machine_current(current: MachineCurrent) -> bytes:
    body = (
        f"{segment_name(current.active)} durable={current.durable} "
        f"oldest={segment_name(current.oldest)}"
    ).encode()
    return body + f" crc32c={crc32c(body):08x}\n".encode()


def decode_machine_current(line: bytes) -> MachineCurrent:
    match = _LINE.fullmatch(line.decode("ascii", "replace"))
    if match is None or int(match[4], 16) != crc32c(line[: line.rindex(b" crc32c=")]):
        raise FormatError("CURRENT: not a line this software wrote")
    active, oldest = parse_segment_name(match[1]), parse_segment_name(match[3])
    if active is None or oldest is None:
        raise FormatError("CURRENT: names no segment")
    return MachineCurrent(active, int(match[2]), oldest)


def encode_fed(offset: int) -> bytes:
    """FED: transitions before this offset are in their topic."""
    body = f"fed={offset}".encode()
    return body + f" crc32c={crc32c(body):08x}\n".encode()


def decode_fed(line: bytes) -> int:
    match = _FED.fullmatch(line.decode("ascii", "replace"))
    if match is None or int(match[2], 16) != crc32c(line[: line.rindex(b" crc32c=")]):
        raise FormatError("FED: not a line this software wrote")
    return int(match[1])


def encode_webhook_position(offset: int) -> bytes:
    """One webhook's file: transitions before this offset are delivered."""
    text = str(offset)
    return f'{{"wal_offset":"{text}","crc32c":"{crc32c(text.encode()):08x}"}}\n'.encode()


def decode_webhook_position(line: bytes) -> int:
    """Older files have no checksum."""
    match = _WEBHOOK.fullmatch(line.decode("ascii", "replace"))
    if match is None or (match[2] is not None and int(match[2], 16) != crc32c(match[1].encode())):
        raise FormatError("the position of a webhook: not a line this software wrote")
    return int(match[1])
