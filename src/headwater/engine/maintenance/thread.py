"""The maintenance thread: file work that no caller waits for.

It runs when woken and at every interval: checkpoint what is large, everything when a log file
filled up, a snapshot when one is due, then trim, relocate, drop. Each step hands its results to the
owner; the thread itself never touches domain state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.core.clock import Clock, Doorbell


class MaintenanceThread:
    def __init__(self, clock: Clock, interval_ms: int, work: Callable[[], None]) -> None:
        self._clock = clock
        self._interval_us = interval_ms * 1_000
        self._work = work
        self._doorbell = Doorbell()
        self._stopping = False
        self.error: Exception | None = None
        """What the last round failed with; None after a good one."""
        self._thread = threading.Thread(target=self._run, name="headwater-maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._doorbell.ring()

    def stop(self) -> None:
        self._stopping = True
        self._doorbell.ring()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._clock.wait(self._doorbell, self._clock.monotonic_us() + self._interval_us)
            if self._stopping:
                return
            try:
                self._work()
                self.error = None
            except Exception as error:
                # A full or failing disk, or a bug: what is in the log is safe, try again next time.
                # Without this thread the log would grow until the disk is full.
                self.error = error
