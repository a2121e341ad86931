"""Room for the next checkpoint, put aside: on a full disk nothing can be given back without one.

A file of nothing but room. When a checkpoint finds none, the file goes and the checkpoint is
written again; the old checkpoint's room then becomes the file's.
"""

from __future__ import annotations

import contextlib
from pathlib import PurePath
from typing import Final

from headwater.core.units import KIB
from headwater.disk import Disk, OpenMode
from headwater.format.kafka.names import SPARE_NAME

_STEP_BYTES: Final = 64 * KIB


class SpareRoom:
    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self._disk = disk
        self._path = directory / SPARE_NAME
        self._size = 0

    def keep(self, size: int) -> None:
        """Have room for a checkpoint of this size, if there is any."""
        wanted = (size // _STEP_BYTES + 1) * _STEP_BYTES
        if self._size >= wanted:
            return
        with contextlib.suppress(OSError):
            self.give_up()
            file = self._disk.open(self._path, OpenMode.CREATE)
            try:
                file.allocate(wanted)
                self._size = wanted
            finally:
                file.close()
        if not self._size:
            with contextlib.suppress(OSError):
                self.give_up()

    def give_up(self) -> bool:
        """Whether there was any."""
        self._size = 0
        try:
            self._disk.unlink(self._path)
        except FileNotFoundError:
            return False
        return True
