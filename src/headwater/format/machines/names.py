"""Names of the files of machines, and the global offset that names an entry.

```
machines/wal/0000000000000001.wal      segments, numbered from 1 in hex
machines/wal/CURRENT                   which is written to, what of it is known synced
machines/FED                           how far transitions are in their topic
machines/history/0000000000000001.hist what is kept of a segment that was deleted
machines/snapshots/index.json          which snapshots there are
machines/snapshots/snap-1705312200.snap
```
"""

from __future__ import annotations

import re
from typing import Final

from headwater.format.names import CURRENT_NAME, WAL_DIRECTORY

MACHINES_DIRECTORY: Final = "machines"
SNAPSHOTS_DIRECTORY: Final = "snapshots"
HISTORY_DIRECTORY: Final = "history"
INDEX_NAME: Final = "index.json"
FED_NAME: Final = "FED"
WEBHOOKS_DIRECTORY: Final = "webhooks"
INSTANCE_SUFFIX: Final = ".instance"
"""Behind a snapshot's name: one instance, for people; never loaded."""

OFFSET_BITS: Final = 40
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
SEGMENTS_MAX: Final = (1 << (64 - OFFSET_BITS)) - 1

_SEGMENT: Final = re.compile(r"([0-9a-f]{16})\.wal")
_HISTORY: Final = re.compile(r"([0-9a-f]{16})\.hist")
_WEBHOOK: Final = re.compile(r"[0-9a-f]{24}\.json")
_SNAPSHOT: Final = re.compile(r"snap-([0-9]{1,12})(?:-([0-9]{1,6}))?\.snap")


def segment_name(segment: int) -> str:
    return f"{segment:016x}.wal"


def parse_segment_name(name: str) -> int | None:
    """The segment's number, or None when this is not the name of one."""
    match = _SEGMENT.fullmatch(name)
    number = int(match[1], 16) if match else 0
    return number if 1 <= number <= SEGMENTS_MAX else None


def history_name(segment: int) -> str:
    return f"{segment:016x}.hist"


def parse_history_name(name: str) -> int | None:
    """The segment's number, or None when this is not the name of a history."""
    match = _HISTORY.fullmatch(name)
    return int(match[1], 16) if match else None


def snapshot_file_name(unix_seconds: int, number: int) -> str:
    """`number` tells apart those of one second; the first has none."""
    return f"snap-{unix_seconds}{f'-{number}' if number else ''}.snap"


def parse_snapshot_file_name(name: str) -> tuple[int, int] | None:
    match = _SNAPSHOT.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else None


def parse_instance_file_name(name: str) -> tuple[int, int] | None:
    """When the snapshot of one instance was made, and which of its second it is."""
    plain = name.removesuffix(INSTANCE_SUFFIX)
    return None if plain == name else parse_snapshot_file_name(plain)


def is_webhook_name(name: str) -> bool:
    return _WEBHOOK.fullmatch(name) is not None


def is_machine_file(parts: list[str]) -> bool:
    """True for the path of a file below the machines' directory that a backup takes along."""
    match parts:
        case [file]:
            return file == FED_NAME
        case [where, file] if where == WAL_DIRECTORY:
            return file == CURRENT_NAME or parse_segment_name(file) is not None
        case [where, file] if where == SNAPSHOTS_DIRECTORY:
            plain = file.removesuffix(INSTANCE_SUFFIX)
            return file == INDEX_NAME or parse_snapshot_file_name(plain) is not None
        case [where, file] if where == HISTORY_DIRECTORY:
            return parse_history_name(file) is not None
        case [where, file] if where == WEBHOOKS_DIRECTORY:
            return is_webhook_name(file)
    return False


def global_offset(segment: int, offset: int) -> int:
    """Where an entry is, in one number: any entry can be found by it, across segments."""
    return segment << OFFSET_BITS | offset


def segment_of(offset: int) -> int:
    return offset >> OFFSET_BITS


def within_segment(offset: int) -> int:
    return offset & OFFSET_MASK
