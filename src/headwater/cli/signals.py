"""Ctrl-C and SIGTERM as a wish to stop, for verbs that go on until then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals(stop: Callable[[], None], *, once: bool = False) -> Iterator[None]:
    """Call `stop` at each signal; `once`: a second one does what it did before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _frame: object) -> None:
        if once:
            signal.signal(number, before[signal.Signals(number)])
        stop()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
