"""Maps of sealed `.data` files, the most recently used ones kept for all topics together.

A map holds memory addresses and a descriptor, so their number is bounded over all topics. To let
one go is to forget it: the bytes stay readable for as long as anybody holds a slice, and the
last one to let go unmaps them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import PurePath
from typing import NamedTuple

from headwater.core.arrays import NDArray, numpy

MapKey = tuple[PurePath, int, int]
"""A topic's directory, a segment's first seq and its length: a rewritten file is another file."""


class Mapped(NamedTuple):
    view: memoryview
    path: PurePath


class SegmentMaps:
    """Safe to use from several threads."""

    def __init__(self, maps_max: int = 256) -> None:
        self._maps_max = maps_max
        self._lock = threading.Lock()
        self._views: OrderedDict[MapKey, Mapped] = OrderedDict()
        self._checked: dict[MapKey, NDArray[numpy.bool_]] = {}

    def __len__(self) -> int:
        return len(self._views)

    def find(self, key: MapKey) -> Mapped | None:
        with self._lock:
            view = self._views.get(key)
            if view is not None:
                self._views.move_to_end(key)
            return view

    def keep(self, key: MapKey, mapped: Mapped) -> None:
        with self._lock:
            self._views[key] = mapped
            self._views.move_to_end(key)
            self._checked.pop(key, None)
            while len(self._views) > self._maps_max:
                old, _ = self._views.popitem(last=False)
                self._checked.pop(old, None)

    def forget(self, key: MapKey) -> None:
        with self._lock:
            self._views.pop(key, None)
            self._checked.pop(key, None)

    def forget_all_in(self, directory: PurePath) -> None:
        """The files of this directory are going."""
        with self._lock:
            for key in [key for key in self._views if key[0] == directory]:
                del self._views[key]
                self._checked.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._views.clear()
            self._checked.clear()

    def checked(self, key: MapKey, count: int) -> NDArray[numpy.bool_] | None:
        """Which of the records of a mapped file were found sound since it was mapped.

        Their checker marks them. None when the file is not mapped.
        """
        with self._lock:
            if key not in self._views:
                return None
            checked = self._checked.get(key)
            if checked is None:
                checked = self._checked[key] = numpy.zeros(count, numpy.bool_)
            return checked
