"""The shared log's files as memory: indexes and logs, mapped when they are first read.

A sealed file never changes, so its map is good for ever. The active segment grows: its map is good
for what was there when it was made, and is made again for what came later. A slice of a map keeps
its bytes readable for as long as a reader holds it, even when the file is gone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DamageError
from headwater.disk import Disk, OpenMode
from headwater.format.kafka.entry import ENTRY_BYTES, Entries, read_entries
from headwater.format.kafka.names import index_name, log_name

MAPS_MAX: Final = 128


class KafkaSegmentFiles:
    """Safe to use from several threads."""

    def __init__(self, disk: Disk, directory: PurePath, maps_max: int = MAPS_MAX) -> None:
        self._disk = disk
        self._directory = directory
        self._maps_max = maps_max
        self._lock = threading.Lock()
        self._maps: OrderedDict[str, tuple[memoryview, int]] = OrderedDict()
        self._forgotten = 0
        """How often files became others: what was opened before that is not kept behind it."""

    def path_of(self, name: str) -> PurePath:
        return self._directory / name

    def entries(self, number: int, count: int) -> Entries:
        """The first `count` entries of an index, all of which were written before the call."""
        view = self._view(index_name(number), count * ENTRY_BYTES)
        return read_entries(view, count)

    def log(self, number: int, size: int) -> memoryview:
        """The first `size` bytes of a log, all of which were written before the call."""
        return self._view(log_name(number), size)

    def forget(self, number: int) -> None:
        """The files of this number are gone, or are others now."""
        with self._lock:
            self._forgotten += 1
            self._maps.pop(log_name(number), None)
            self._maps.pop(index_name(number), None)

    def clear(self) -> None:
        with self._lock:
            self._forgotten += 1
            self._maps.clear()

    def _view(self, name: str, size: int) -> memoryview:
        with self._lock:
            known = self._maps.get(name)
            if known is not None and known[1] >= size:
                self._maps.move_to_end(name)
                return known[0]
            forgotten = self._forgotten
        path = self._directory / name
        file = self._disk.open(path, OpenMode.READ)
        try:
            view = file.view()
        finally:
            file.close()
        if len(view) < size:
            raise DamageError(
                f"the file ends before byte {size}",
                path=path,
                offset=len(view),
                advice="restore a backup",
            )
        with self._lock:
            if forgotten != self._forgotten:
                return view
            self._maps[name] = (view, size)
            self._maps.move_to_end(name)
            while len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
        return view
