"""Threads for a worker: a pool runs the handlers, one more thread reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from headwater.core.clock import Clock, Doorbell
from headwater.core.results import ClaimedJob

HANDLER_ERRORS: Final = BaseException
"""A worker outlives whatever its handlers do."""


class Bell:
    """Rung by any thread; one thread waits for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doorbell = Doorbell()
        self.ring = self._doorbell.ring

    def wait(self, until_us: int | None) -> None:
        self._clock.wait(self._doorbell, until_us)


class Crew:
    """So many handlers at a time. `lock` guards what they and the worker's own threads share."""

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self._pool = ThreadPoolExecutor(size, "headwater-work")
        self._jobs: dict[Future[None], ClaimedJob] = {}
        self._reporter: threading.Thread | None = None

    def begin_reporting(self, report_all: Callable[[], None]) -> None:
        self._reporter = threading.Thread(target=report_all, name="headwater-report", daemon=True)
        self._reporter.start()

    def begin(self, handle: Callable[[ClaimedJob], None], job: ClaimedJob) -> None:
        """With the lock held."""
        future = self._pool.submit(handle, job)
        self._jobs[future] = job
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        self._jobs.pop(future, None)

    def cancel_waiting(self) -> Iterator[ClaimedJob]:
        """The jobs whose handlers have not begun, and now never will."""
        for future, job in list(self._jobs.items()):
            if future.cancel():
                yield job

    def cancel_running(self) -> None:
        """Threads cannot be cancelled: their handlers end in their own time."""

    def finish(self) -> None:
        """Wait for the handlers that have begun."""
        self._pool.shutdown(wait=True)

    def finish_reporting(self) -> None:
        assert self._reporter is not None
        self._reporter.join()
