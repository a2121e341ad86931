"""Positions of the consumers of the machines' log on disk, and their retention holds.

`restore_holds` comes before the log is opened: from then on compaction deletes nothing that one of
them has not taken. A position that cannot be read is one that is not known, and holds everything.
"""

from __future__ import annotations

import logging
from pathlib import PurePath
from typing import Final

from headwater.config.machines import MachineSettings
from headwater.core.errors import FormatError
from headwater.core.units import GIB
from headwater.disk import Disk, read_whole, replace_file
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.format.machines.current import (
    decode_fed,
    decode_webhook_position,
    encode_fed,
    encode_webhook_position,
)
from headwater.format.machines.names import FED_NAME, WEBHOOKS_DIRECTORY, is_webhook_name
from headwater.model.retention import HoldOwner

TRANSITIONS: Final = "transitions topic"
"""The name of the feeder's hold."""
WEBHOOK_HELD_BYTES_MAX: Final = 1 * GIB
"""Of log that is kept for a webhook that is behind."""
WATCH_HELD_BYTES_MAX: Final = 1 * GIB
"""The same for a watch that reads what came before it."""
_FED_BYTES_MAX: Final = 128
_WEBHOOK_BYTES_MAX: Final = 4_096
_log: Final = logging.getLogger("headwater.machines")


class PositionFile:
    """The FED file, or that of a webhook."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._disk = disk
        self.path = path
        self._is_fed = path.name == FED_NAME

    def exists(self) -> bool:
        return self._disk.exists(self.path)

    def read(self) -> int | None:
        """None when there is none, and when it cannot be read: it logs a warning then."""
        if not self.exists():
            return None
        try:
            if self._is_fed:
                return decode_fed(read_whole(self._disk, self.path, _FED_BYTES_MAX))
            return decode_webhook_position(read_whole(self._disk, self.path, _WEBHOOK_BYTES_MAX))
        except FormatError as error:
            _log.warning("%s: the position in it is damaged: %s", self.path, error.reason)
            return None

    def write(self, position: int) -> None:
        encoded = encode_fed(position) if self._is_fed else encode_webhook_position(position)
        replace_file(self._disk, self.path, encoded)


def fed_file(disk: Disk, directory: PurePath) -> PositionFile:
    return PositionFile(disk, directory / FED_NAME)


def webhook_file(disk: Disk, directory: PurePath, file_name: str) -> PositionFile:
    return PositionFile(disk, directory / WEBHOOKS_DIRECTORY / file_name)


def webhook_hold_name(file_name: str) -> str:
    return f"webhook {file_name.removesuffix('.json')}"


def restore_holds(
    holds: RetentionHolds, disk: Disk, directory: PurePath, settings: MachineSettings
) -> None:
    fed = fed_file(disk, directory)
    if settings.transitions_topic is not None:
        holds.take(TRANSITIONS, HoldOwner.TRANSITIONS_TOPIC, fed.read())
    elif fed.exists():
        _log.warning(
            "transitions are copied to no topic any more: the log is not kept for one "
            "(it was at offset %s)",
            fed.read(),
        )
    webhooks = directory / WEBHOOKS_DIRECTORY
    if not disk.is_directory(webhooks):
        return
    for name in sorted(filter(is_webhook_name, disk.list_directory(webhooks))):
        position = webhook_file(disk, directory, name).read()
        hold = webhook_hold_name(name)
        holds.take(hold, HoldOwner.WEBHOOK, position, bytes_max=WEBHOOK_HELD_BYTES_MAX)
