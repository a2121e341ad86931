"""When to try again, for how long, and how a thread or a task pauses until then.

Waits grow, and no two clients wait alike.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import DiskFullError, HeadwaterError, UnavailableError
from headwater.core.units import US_PER_S

SPREAD: Final = 0.5
"""A wait is between this share of its length and all of it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """`Retry(give_up_after_s=0)` tries once."""

    give_up_after_s: float = 60.0
    """From the first attempt of a call; for a watch, from the last bytes it received."""
    first_delay_s: float = 0.05
    longest_delay_s: float = 5.0

    def delay_s(self, failures: int, error: HeadwaterError, rng: random.Random) -> float:
        """How long to wait after so many failures in a row; not less than the server asks."""
        grown = min(self.longest_delay_s, self.first_delay_s * 2.0 ** min(failures - 1, 30))
        delay = grown * rng.uniform(SPREAD, 1.0)
        if isinstance(error, UnavailableError) and _names_delay(error):
            named_s = error.retry_after_ms / 1_000
            return max(delay, named_s * rng.uniform(1.0, 1.0 + SPREAD / 2))
        return delay


def may_retry(error: HeadwaterError) -> bool:
    """The same call may work later. A full disk waits for an operator more often than not, so
    that error is raised at once."""
    return isinstance(error, UnavailableError) and not isinstance(error, DiskFullError)


def _names_delay(error: UnavailableError) -> bool:
    """The server named a time, as opposed to a connection that failed."""
    return error.code not in ("unreachable", "no_answer")


AsyncSleep = Callable[[float], Awaitable[None]]
Sleep = Callable[[float], None]
"""Called with seconds."""


def async_sleep(_clock: Clock) -> AsyncSleep:
    return asyncio.sleep


def blocking_sleep(clock: Clock) -> Sleep:
    def sleep(seconds: float) -> None:
        clock.wait(Doorbell(), clock.monotonic_us() + int(seconds * US_PER_S))

    return sleep
