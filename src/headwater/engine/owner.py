"""Which thread may touch domain state. One owner at a time, instead of locks all over.

With an event loop the owner is the loop's thread. Without one it is the thread that holds the
baton: a caller's thread during a call, a log's thread while it publishes. Either way the engine's
own code never locks anything, and nothing slow is ever done as the owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from headwater.observe.waits import Waits, name_of

T = TypeVar("T")


class Owner(Protocol):
    def post(self, work: Callable[[], None]) -> None:
        """Have the owner run this soon. Never blocks on the work itself being possible."""

    def call(self, work: Callable[[], T]) -> T:
        """Run this as the owner and return its result. Not to be called by the owner."""


class BatonOwner:
    """For programs without an event loop."""

    def __init__(self) -> None:
        self._baton = threading.RLock()

    def post(self, work: Callable[[], None]) -> None:
        with self._baton:
            work()

    def call(self, work: Callable[[], T]) -> T:
        with self._baton:
            return work()


class LoopOwner:
    """For programs with an event loop: everything happens on its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waits: Waits) -> None:
        self._loop = loop
        self._waits = waits

    def post(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._waits.timed(name_of(work), work))

    def call(self, work: Callable[[], T]) -> T:
        future: Future[T] = Future()
        work = self._waits.timed(name_of(work), work)

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result()

    def watch(self, descriptor: int, work: Callable[[], None], begun: Callable[[], None]) -> None:
        """Run this whenever the descriptor is readable; `begun` runs once that is so."""
        work = self._waits.timed("answers of the log", work)

        def begin() -> None:
            self._loop.add_reader(descriptor, work)
            begun()

        self._loop.call_soon_threadsafe(begin)

    def unwatch(self, descriptor: int) -> None:
        with contextlib.suppress(RuntimeError):  # a loop that is closed watches nothing
            self._loop.call_soon_threadsafe(self._loop.remove_reader, descriptor)
