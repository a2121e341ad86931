"""How a client pauses before it tries again: a thread, or a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.core.clock import Clock, Doorbell
from headwater.core.units import US_PER_S

AsyncSleep = Callable[[float], Awaitable[None]]
Sleep = Callable[[float], None]
"""Called with seconds."""


def async_sleep(_clock: Clock) -> AsyncSleep:
    return asyncio.sleep


def blocking_sleep(clock: Clock) -> Sleep:
    def sleep(seconds: float) -> None:
        clock.wait(Doorbell(), clock.monotonic_us() + int(seconds * US_PER_S))

    return sleep
