"""Breaks of background work, so that it has a small part of the interpreter and not half of it.

A thread that computes shares the interpreter with the loop, and the loop loses it at each of its
system calls. So a thread that has computed for a while rests several times as long. It does not
where the owner has no loop, while closing, or when memory fills up with what it is to put away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.core.clock import thread_us
from headwater.engine.state.engine_core import EngineCore

COMPUTES_US: Final = 200
"""So much is not worth a break."""
RESTS: Final = 4
"""Times as long as it has computed."""


class Breaks:
    """Of the thread that makes it."""

    def __init__(self, core: EngineCore, thread_us: Callable[[], int] = thread_us) -> None:
        self._core = core
        self._thread_us = thread_us
        self._used_us = thread_us()

    def take(self) -> None:
        core, used_us = self._core, self._thread_us() - self._used_us
        is_urgent = core.closing or core.tail_bytes > core.settings.tail_bytes_max // 4
        if used_us >= COMPUTES_US and not is_urgent:
            core.owner.rest(RESTS * used_us)
            self._used_us = self._thread_us()
