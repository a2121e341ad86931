"""When Python looks for garbage: little at a time while clients are served, much when none is.

What a server keeps (topics, indexes, tails) is not garbage, and to look through all of it takes
tens of milliseconds, in which nothing else runs. Nor do Python's own thresholds keep the looks
among the young short: they count what was made less what was freed, old or new, so that a server
which drops an old record for each new one has a hundred thousand young objects before it looks.

So Python's own schedule is off. While requests come, the young are looked through every 20 ms, in
a fraction of a millisecond, and what lives on is then put out of the collector's sight. All of it
comes back, and is looked through, when no request came for a moment; if that never happens, after
ten minutes: circles among what is old are rare.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final, Protocol

from headwater.core.clock import Clock
from headwater.core.units import US_PER_S
from headwater.observe.waits import Waits

YOUNG_EVERY_S: Final = 0.02
QUIET_CHECKS: Final = 2
"""So many checks in a row without a request are a quiet moment."""
DUE_AFTER_US: Final = 60 * US_PER_S
OVERDUE_AFTER_US: Final = 600 * US_PER_S


class Timers(Protocol):
    """Of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> object: ...


class GarbageSchedule:
    def __init__(
        self, requests: Callable[[], int], clock: Clock, timers: Timers, collector: Any = gc
    ) -> None:
        """`requests` counts up with every request of a client."""
        self._requests = requests
        self._clock = clock
        self._timers = timers
        self._collector = collector
        self._waits: Waits | None = None
        self._seen = 0
        self._quiet_checks = 0
        self._ticks = False
        self._all_at_us = 0

    def begin(self, waits: Waits) -> None:
        """Recovery is done; all that it has made is there to stay."""
        self._collector.disable()
        self._collector.freeze()
        self._all_at_us = self._clock.monotonic_us()
        self._waits = waits
        waits.watch_collector()

    def check(self) -> None:
        """Called every half second."""
        requests = self._requests()
        self._quiet_checks = self._quiet_checks + 1 if requests == self._seen else 0
        self._seen = requests
        since_us = self._clock.monotonic_us() - self._all_at_us
        is_quiet = self._quiet_checks >= QUIET_CHECKS
        if since_us >= (DUE_AFTER_US if is_quiet else OVERDUE_AFTER_US):
            self._collect_all()
        else:
            self._collect_young()
        if not self._quiet_checks and not self._ticks:
            self._ticks = True
            self._timers.call_later(YOUNG_EVERY_S, self._tick)

    def end(self) -> None:
        if self._waits is not None:
            self._waits.leave_collector()
            self._waits = None
            self._collector.unfreeze()
            self._collector.enable()

    def _tick(self) -> None:
        self._ticks = self._waits is not None and not self._quiet_checks
        if self._ticks:
            self._collect_young()
            self._timers.call_later(YOUNG_EVERY_S, self._tick)

    def _collect_young(self) -> None:
        self._collector.collect(0)
        self._collector.freeze()

    def _collect_all(self) -> None:
        self._collector.unfreeze()
        self._collector.collect()
        self._collector.freeze()
        self._all_at_us = self._clock.monotonic_us()
