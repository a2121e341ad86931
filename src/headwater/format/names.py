"""File and directory names, made and read back in one module.

Names given by users never become paths (I16).
"""

from __future__ import annotations

import re
from typing import Final

WAL_DIRECTORY: Final = "wal"
TOPICS_DIRECTORY: Final = "topics"
QUARANTINE_DIRECTORY: Final = "quarantine"
COLD_ADDRESS_NAME: Final = "cold-tier.json"
REPORTS_DIRECTORY: Final = "reports"
CURRENT_NAME: Final = "CURRENT"
REPAIRS_NAME: Final = "REPAIRS"
PREPARED_NAME: Final = "prepared.next"

_WAL_FILE: Final = re.compile(r"wal-([0-9]{16})\.log")
_SHARD_DIRECTORY: Final = re.compile(r"shard-([0-9]{2})")


def wal_file_name(first_frame: int) -> str:
    return f"wal-{first_frame:016d}.log"


def parse_wal_file_name(name: str) -> int | None:
    """The number in the name, or None when this is not the name of a WAL file."""
    match = _WAL_FILE.fullmatch(name)
    return int(match[1]) if match else None


def shard_directory_name(shard: int) -> str:
    return f"shard-{shard:02d}"


def parse_shard_directory_name(name: str) -> int | None:
    match = _SHARD_DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def is_log_name(name: str) -> bool:
    """What lies in a directory of log files: CURRENT, files, or a directory for each shard."""
    return (
        name == CURRENT_NAME
        or parse_wal_file_name(name) is not None
        or parse_shard_directory_name(name) is not None
    )
