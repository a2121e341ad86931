"""Real logs on a real disk, small enough to look at whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.durability import Durability
from headwater.core.units import KIB
from headwater.disk import PosixDisk
from headwater.format.frame import FrameType, encode_frame
from headwater.recovery.topics.repair import OpenWal, open_wal
from headwater.wal.ticket import Ticket

HOSTILE = b"\x1b[2J\x1b]0;owned\x07 \x9b31m [bold]x[/bold] \xe2\x80\xae \r\n \xff\\"
"""Clears the screen, sets the title, turns red, reverses the line; and is not even UTF-8."""

SETTINGS = WalSettings(file_bytes=16 * KIB, reserve_bytes=KIB)


def open_log(directory: Path, settings: WalSettings = SETTINGS) -> OpenWal:
    log = open_wal(PosixDisk(), directory, settings, SystemClock())
    log.start()
    return log


def append(log: OpenWal, seq: int, data: bytes, *, tag: bytes = b"", node: bytes = b"") -> None:
    body = encode_frame(FrameType.APPEND, 7, seq=seq, ts=1, node=node, tag=tag, data=data)
    ticket = Ticket(body, 1, Durability.FSYNC)
    log.wal.submit(7, ticket)
    assert ticket.wait(timeout_s=30)


def write_log(
    directory: Path, payloads: Sequence[bytes], settings: WalSettings = SETTINGS
) -> list[Path]:
    """A cleanly closed log with one record per group; returns its files in order."""
    log = open_log(directory, settings)
    for seq, payload in enumerate(payloads, start=1):
        append(log, seq, payload)
    log.close()
    return sorted((directory / "wal").rglob("wal-*.log"))


def some_payloads(count: int = 20) -> list[bytes]:
    return [b'{"number":%d}' % number for number in range(count)]


def flip(path: Path, offset: int) -> None:
    contents = bytearray(path.read_bytes())
    contents[offset] ^= 0x01
    path.write_bytes(contents)


def everything_in(directory: Path) -> dict[str, bytes]:
    """Names and contents, to show that nothing was changed."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b""
        for path in sorted(directory.rglob("*"))
    }
