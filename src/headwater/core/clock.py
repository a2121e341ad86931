"""The only module that reads the machine's time, or waits for it.

Deadlines, leases and commit windows use the monotonic side, so a wall clock that jumps moves
none of them. `Doorbell` is how a thread sleeps until rung or until a deadline; the wait goes
through the clock, so a test's clock can end it without sleeping.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Doorbell:
    """A binary signal: any number of rings before a wait count as one."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            return  # already rung, and no wait has taken it yet

    def wait(self, timeout_us: int | None) -> bool:
        """Wait in real time until rung. True when it was rung, False when time ran out."""
        if timeout_us is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=max(timeout_us, 0) / 1_000_000)


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as people write them. May jump."""

    def monotonic_us(self) -> int:
        """Microseconds since some start. Never goes back."""

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        """Sleep until the doorbell rings or the monotonic clock reaches `until_us`."""


def thread_us() -> int:
    """Microseconds of processor time that the calling thread has used."""
    return time.thread_time_ns() // 1_000


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        if until_us is None:
            return doorbell.wait(None)
        return doorbell.wait(until_us - self.monotonic_us())
