"""What every inspection of a whole data directory agrees on."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from headwater.disk.posix import LOCK_NAME
from headwater.format.kafka.names import KAFKA_DIRECTORY
from headwater.format.machines.names import MACHINES_DIRECTORY
from headwater.format.names import REPORTS_DIRECTORY, TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.snapshot import META_DIRECTORY
from headwater.store.verify import FaultKind, VerifyFault

OF_A_VOLUME: Final = "lost+found"
"""Where the data directory is a volume of its own, ext4 has put this there."""
DIRECTORY_NAMES: Final = frozenset(
    {
        OF_A_VOLUME,
        LOCK_NAME,
        WAL_DIRECTORY,
        META_DIRECTORY,
        TOPICS_DIRECTORY,
        REPORTS_DIRECTORY,
        KAFKA_DIRECTORY,
        MACHINES_DIRECTORY,
    }
)
"""What there may be in a data directory."""


def gone(path: PurePath, error: FileNotFoundError) -> VerifyFault:
    """An owner removed it just now, or it really is missing: the next inspection shows."""
    missing = PurePath(error.filename or path)
    return VerifyFault(missing, None, "went away while it was read", True, FaultKind.CHANGED)
