"""How long a thread that comes back from the disk waits for the interpreter.

A thread returning from fdatasync must take the interpreter lock again. When another thread is
busy computing, Python hands the lock over only after its switch interval, 5 ms by default: forty
times the sync itself. So the interval is lowered while a log is open and put back when the last
one closes. `make bench` shows the effect.
"""

from __future__ import annotations

import sys
import threading


class SwitchInterval:
    """The interpreter has one switch interval, so this keeps count of all who want it lower."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted_s: list[float] = []
        self._original_s = 0.0

    def lower(self, interval_us: int) -> None:
        """Ask for at most this interval; the smallest that anyone asks for wins."""
        with self._lock:
            if not self._wanted_s:
                self._original_s = sys.getswitchinterval()
            self._wanted_s.append(interval_us / 1_000_000)
            sys.setswitchinterval(min(self._original_s, *self._wanted_s))

    def restore(self, interval_us: int) -> None:
        """Take one request back."""
        with self._lock:
            self._wanted_s.remove(interval_us / 1_000_000)
            sys.setswitchinterval(min([self._original_s, *self._wanted_s]))


switch_interval = SwitchInterval()
