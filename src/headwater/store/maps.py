"""Maps of sealed `.data` files, the most recently used ones kept for all topics together.

A map holds memory addresses and a descriptor, so their number is bounded over all topics. To let
one go is to forget it: the bytes stay readable for as long as anybody holds a slice, and the
last one to let go unmaps them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import PurePath

MapKey = tuple[PurePath, int]
"""The file and its length: a rewritten file is another file."""


class SegmentMaps:
    """Safe to use from several threads."""

    def __init__(self, maps_max: int = 256) -> None:
        self._maps_max = maps_max
        self._lock = threading.Lock()
        self._views: OrderedDict[MapKey, memoryview] = OrderedDict()

    def __len__(self) -> int:
        return len(self._views)

    def find(self, key: MapKey) -> memoryview | None:
        with self._lock:
            view = self._views.get(key)
            if view is not None:
                self._views.move_to_end(key)
            return view

    def keep(self, key: MapKey, view: memoryview) -> None:
        with self._lock:
            self._views[key] = view
            self._views.move_to_end(key)
            while len(self._views) > self._maps_max:
                self._views.popitem(last=False)

    def forget(self, key: MapKey) -> None:
        with self._lock:
            self._views.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._views.clear()
