"""A clock that moves only when a test moves it, also under a thread that waits for it.

The wall side and the monotonic side are separate on purpose: `jump_wall` is what an NTP step or
an operator does, and no deadline may notice. No thread sleeps: one parked in `wait` is woken by
its doorbell or by `advance`, and `wait_for_waiters` tells a test when a thread is parked.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headwater.core.clock import Doorbell
from headwater.core.units import US_PER_MS

DEFAULT_WALL_MS = 1_700_000_000_000
DEFAULT_TIMEOUT_S = 10.0


@dataclass(eq=False, slots=True)
class _Waiter:
    doorbell: Doorbell
    until_us: int | None
    rung_by_clock: bool = False
    rung_by_other: bool = False


class ManualClock:
    """Implements `headwater.core.clock.Clock`."""

    def __init__(self, wall_ms: int = DEFAULT_WALL_MS, monotonic_us: int = 0) -> None:
        self._changed = threading.Condition()
        self._wall_us = wall_ms * US_PER_MS
        self._monotonic_us = monotonic_us
        self._waiters: list[_Waiter] = []
        self._park_count = 0

    def wall_ms(self) -> int:
        with self._changed:
            return self._wall_us // US_PER_MS

    def monotonic_us(self) -> int:
        with self._changed:
            return self._monotonic_us

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        """True when the doorbell rang, False when the clock reached `until_us`.

        A ring in the very instant of the deadline may be reported as either, so a caller looks
        at its queue after both answers, as it must with a real clock.
        """
        with self._changed:
            if until_us is not None and until_us <= self._monotonic_us:
                return doorbell.wait(0)
            waiter = _Waiter(doorbell, until_us)
            self._waiters.append(waiter)
            self._park_count += 1
            self._changed.notify_all()
        doorbell.wait(None)
        with self._changed:
            self._waiters.remove(waiter)
            self._changed.notify_all()
            if not waiter.rung_by_clock:
                return True
            # Two rings mean that a thread rang beside the clock. Taking the second one keeps
            # it from ending the next wait for no reason.
            return doorbell.wait(0) or waiter.rung_by_other

    def advance(self, us: int) -> None:
        """Let time pass on both sides and wake every thread whose deadline was reached."""
        if us < 0:
            raise ValueError(f"time does not go back: {us} us")
        with self._changed:
            self._move(us)

    def advance_to_next_deadline(self) -> int:
        """Jump to the earliest deadline a thread waits for. Returns by how many microseconds."""
        with self._changed:
            deadlines = [
                waiter.until_us
                for waiter in self._waiters
                if waiter.until_us is not None and not waiter.rung_by_clock
            ]
            if not deadlines:
                raise ValueError("no thread waits for a deadline")
            us = max(min(deadlines) - self._monotonic_us, 0)
            self._move(us)
            return us

    def jump_wall(self, ms: int) -> None:
        """Move the wall side alone, forward or back."""
        with self._changed:
            self._wall_us += ms * US_PER_MS

    @property
    def waiter_count(self) -> int:
        """How many threads are inside `wait`."""
        with self._changed:
            return len(self._waiters)

    @property
    def park_count(self) -> int:
        """How often any thread has begun to wait since the clock was made."""
        with self._changed:
            return self._park_count

    def wait_for_waiters(
        self, count: int, timeout_s: float = DEFAULT_TIMEOUT_S, *, after_parks: int = 0
    ) -> None:
        """Block until `count` threads are parked; TimeoutError when real time runs out first.

        A thread that was rung but has not run yet still counts as parked. To see it park
        *again*, take `park_count` before ringing and pass it as `after_parks`.
        """

        def parked() -> bool:
            return len(self._waiters) >= count and self._park_count > after_parks

        with self._changed:
            if count == 0 and after_parks == 0:
                return
            if not self._changed.wait_for(parked, timeout_s):
                raise TimeoutError(
                    f"{len(self._waiters)} of {count} threads were parked after {timeout_s} s "
                    f"({self._park_count} parks in all)"
                )

    def _move(self, us: int) -> None:
        self._monotonic_us += us
        self._wall_us += us
        for waiter in self._waiters:
            if waiter.until_us is None or waiter.rung_by_clock:
                continue
            if waiter.until_us <= self._monotonic_us:
                # A ring that is already there would swallow ours; remember whose it was.
                waiter.rung_by_other = waiter.doorbell.wait(0)
                waiter.rung_by_clock = True
                waiter.doorbell.ring()
