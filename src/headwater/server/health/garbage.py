"""When Python looks for garbage among what has lived long.

What a server keeps (topics, indexes, tails) is not garbage, and to look through all of it takes
tens of milliseconds, in which nothing else runs. So what recovery has made is put out of the
collector's sight, and the oldest generation is looked through when no request came for a moment.
Only when very much was made since the last time is it done without waiting for one. The younger
generations are collected as always: they are small.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

from headwater.observe.waits import Waits

DUE_AFTER: Final = 10
"""Collections of the middle generation; Python's own number for the oldest."""
OVERDUE_AFTER: Final = 200
"""Each of them stands for 7,000 objects that were made and not freed at once: garbage in circles
takes some 100 MB until then, at the very worst."""
_NEVER: Final = 2**31 - 1


class GarbageSchedule:
    def __init__(self, requests: Callable[[], int], collector: Any = gc) -> None:
        """`requests` counts up with every request of a client."""
        self._requests = requests
        self._collector = collector
        self._waits: Waits | None = None
        self._thresholds: tuple[int, int, int] | None = None
        self._seen = 0

    def begin(self, waits: Waits) -> None:
        """Recovery is done."""
        collector = self._collector
        collector.freeze()
        self._thresholds = collector.get_threshold()
        young, middle, _ = self._thresholds
        collector.set_threshold(young, middle, _NEVER)
        self._waits = waits
        waits.watch_collector()

    def check(self) -> None:
        """Called every half second."""
        requests = self._requests()
        is_quiet, self._seen = requests == self._seen, requests
        due = self._collector.get_count()[2]
        if due >= OVERDUE_AFTER or (is_quiet and due >= DUE_AFTER):
            self._collector.collect()

    def end(self) -> None:
        if self._thresholds is not None:
            self._collector.set_threshold(*self._thresholds)
            self._collector.unfreeze()
            self._thresholds = None
        if self._waits is not None:
            self._waits.leave_collector()
