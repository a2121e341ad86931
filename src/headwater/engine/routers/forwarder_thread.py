"""The forwarder: the thread on which routers copy. There is none until there is a router.

It works when a source has new records, and tries again after a while where a router had to wait:
for room in its destination, or for memory.
"""

from __future__ import annotations

import threading
from typing import Final

from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_MS
from headwater.engine.routers.copy_rounds import CopyRounds
from headwater.observe.waits import Waits

RETRY_EVERY_MS: Final = 50


class ForwarderThread:
    def __init__(self, clock: Clock, copy_rounds: CopyRounds, waits: Waits) -> None:
        self._clock = clock
        self._waits = waits
        self._copy_rounds = copy_rounds
        self._doorbell = Doorbell()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What the last round failed with; None after a good one."""

    def wake(self) -> None:
        """As the owner: there may be something to copy."""
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(
                target=self._run, name="headwater-forwarder", daemon=True
            )
            self._thread.start()
        self._doorbell.ring()

    def stop(self) -> None:
        """Not for the owner's own thread: a round that is under way may need it."""
        self._stopping = True
        self._doorbell.ring()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            until_us = None
            if self._copy_rounds.waits:
                until_us = self._clock.monotonic_us() + RETRY_EVERY_MS * US_PER_MS
            self._clock.wait(self._doorbell, until_us)
            if self._stopping:
                return
            try:
                with self._waits.activity("routers"):
                    self._copy_rounds.retry_waiting()
                    while self._copy_rounds.round():
                        continue
                self.error = None
            except (OSError, HeadwaterError) as error:
                self.error = error  # tried again with the next records, or after a while
