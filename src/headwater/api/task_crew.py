"""Tasks for a worker on an event loop: one for each job in hand, one more that reports."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import nullcontext, suppress
from typing import Any, Final

from headwater.core.clock import Clock
from headwater.core.results import ClaimedJob
from headwater.core.units import US_PER_S

HANDLER_ERRORS: Final = (Exception, asyncio.CancelledError)
"""What else there is ends the program, as anywhere on a loop."""


class AsyncBell:
    """Rung by any thread; one task waits for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def ring(self) -> None:
        if threading.get_ident() == self._thread:
            self._event.set()
        else:
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, until_us: int | None) -> None:
        timeout_s = None
        if until_us is not None:
            timeout_s = max(until_us - self._clock.monotonic_us(), 0) / US_PER_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        self._event.clear()


class AsyncCrew:
    """So many handlers at a time. All of it runs on one thread, so `lock` guards nothing."""

    def __init__(self, size: int) -> None:
        self.lock = nullcontext()
        self._turns = asyncio.Semaphore(size)
        self._jobs: dict[asyncio.Task[None], ClaimedJob] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._reporter: asyncio.Task[None] | None = None

    def begin_reporting(self, report_all: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._reporter = asyncio.create_task(report_all())

    def begin(self, handle: Callable[[ClaimedJob], Awaitable[None]], job: ClaimedJob) -> None:
        task = asyncio.create_task(self._run(handle, job))
        self._jobs[task] = job
        task.add_done_callback(self._forget)

    async def _run(self, handle: Callable[[ClaimedJob], Awaitable[None]], job: ClaimedJob) -> None:
        async with self._turns:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            await handle(job)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._jobs.pop(task, None)
        self._running.discard(task)

    def cancel_waiting(self) -> Iterator[ClaimedJob]:
        """The jobs whose handlers have not begun, and now never will."""
        for task, job in list(self._jobs.items()):
            if task not in self._running and not task.cancelling() and task.cancel():
                yield job

    def cancel_running(self) -> None:
        for task in self._running:
            task.cancel()

    async def finish(self) -> None:
        """Wait for the handlers that have begun."""
        if self._jobs:
            await asyncio.wait(self._jobs)

    async def finish_reporting(self) -> None:
        assert self._reporter is not None
        await self._reporter
