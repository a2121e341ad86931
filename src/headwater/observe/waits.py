"""Long waits: what kept writes from being answered, by cause.

Whoever does what a write waits for (the loop, a log's thread, the collector of garbage) notes how
long it took; what took longer than a setting is kept, the newest of each cause, with the background
work that ran beside it. Waits overlap: a sync that takes long makes the writes behind it wait in
the queue.

Anyone notes, from any thread. A lock is taken only for what is kept, and it may be taken again by
its holder: to keep a wait may start the collector, which notes how long it took.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headwater.core.clock import Clock, thread_us
from headwater.core.results import LongWait, Trace, WaitCount
from headwater.core.units import US_PER_MS

T = TypeVar("T")

KEPT_MAX: Final = 256
"""Of each cause, so that a common one does not push out a rare one."""
ACTIVITIES_MAX: Final = 256
WAIT_BOUNDS_US: Final = (
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000,
)  # fmt: skip


class WaitCause(Enum):
    LOOP = "loop"
    INTERPRETER = "interpreter"
    PROCESSOR = "processor"
    GARBAGE = "garbage_collection"
    COMPANY = "company"
    LOG_THREAD = "log_thread"
    QUEUE = "queue"
    WRITE = "write"
    SYNC = "sync"
    NEW_FILE = "new_file"
    ZEROING = "zeroing"
    DIRECTORY = "directory_sync"
    ANSWERS = "answers"


MEANING_OF: Final[dict[WaitCause, str]] = {
    WaitCause.LOOP: "one callback of the loop computed for so long; everything else waited",
    WaitCause.INTERPRETER: "the loop stood still while background work had the interpreter",
    WaitCause.PROCESSOR: "the loop stood still, and no background work ran: others had the "
    "processor, or a call of the system took long",
    WaitCause.GARBAGE: "Python collected garbage; all threads waited",
    WaitCause.COMPANY: "a group waited for writers that were due, to share their sync",
    WaitCause.LOG_THREAD: "the log's thread woke late: it had to wait for a processor or for the "
    "interpreter",
    WaitCause.QUEUE: "more was waiting than one group takes",
    WaitCause.WRITE: "the call that wrote a group to the log",
    WaitCause.SYNC: "the call that synced a group",
    WaitCause.NEW_FILE: "the log went on in a new file, all in all",
    WaitCause.ZEROING: "the new file was not ready, and the log's thread filled it with zeros",
    WaitCause.DIRECTORY: "the sync of the log's directory for a new file",
    WaitCause.ANSWERS: "a group was committed, and the loop came late for its answers",
}


class WaitSums(msgspec.Struct):
    """Of one cause, since the start."""

    count: int = 0
    total_us: int = 0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(WAIT_BOUNDS_US) + 1))
    kept: deque[LongWait] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_MAX))


class _Activity(NamedTuple):
    name: str
    started_us: int
    ended_us: int


class Waits:
    def __init__(
        self,
        clock: Clock,
        least_us: int,
        *,
        thread_us: Callable[[], int] = thread_us,
    ) -> None:
        """Keeps what took `least_us` or longer; nothing when that is 0. `thread_us` is the
        processor time that the calling thread has used."""
        self.least_us = least_us
        self.sums: Final = {cause: WaitSums() for cause in WaitCause}
        self._clock = clock
        self._thread_us = thread_us
        self._lock = threading.RLock()
        self._number = 0
        self._active: dict[object, tuple[str, int]] = {}
        self._ended: deque[_Activity] = deque(maxlen=ACTIVITIES_MAX)
        self._collection_us = 0

    def note(self, cause: WaitCause, started_us: int, ended_us: int, detail: str = "") -> None:
        """Something that writes waited for began and ended at these times of the clock."""
        if not 0 < self.least_us <= ended_us - started_us:
            return
        with self._lock:
            self._keep(cause, started_us, ended_us, detail, self._beside(started_us, ended_us))

    def since(self, number: int = 0) -> list[LongWait]:
        """What is kept, from behind this number on, in order."""
        with self._lock:
            waits = [each for sums in self.sums.values() for each in sums.kept]
        return sorted(
            (each for each in waits if each.number > number), key=lambda each: each.number
        )

    def trace(self, after: int = 0) -> Trace:
        counts = [
            WaitCount(cause.value, MEANING_OF[cause], sums.count, sums.total_us)
            for cause, sums in self.sums.items()
        ]
        return Trace(self._clock.wall_ms(), self.least_us, counts, self.since(after))

    # -- the loop

    def timed(self, name: str, work: Callable[[], T]) -> Callable[[], T]:
        """The same callback of a loop, whose duration is noted."""
        if not self.least_us:
            return work
        now_us, used_us, least_us = self._clock.monotonic_us, self._thread_us, self.least_us

        def run() -> T:
            started_us, used_before_us = now_us(), used_us()
            try:
                return work()
            finally:
                ended_us = now_us()
                if ended_us - started_us >= least_us:
                    self._note_callback(name, started_us, ended_us, used_us() - used_before_us)

        return run

    def _note_callback(self, name: str, started_us: int, ended_us: int, used_us: int) -> None:
        with self._lock:
            beside = self._beside(started_us, ended_us)
            if 2 * used_us >= ended_us - started_us:
                cause = WaitCause.LOOP
            elif beside:
                cause = WaitCause.INTERPRETER
            else:
                cause = WaitCause.PROCESSOR
            detail = f"{name}, computed {used_us / US_PER_MS:.1f} ms of it"
            self._keep(cause, started_us, ended_us, detail, beside)

    # -- background work

    @contextmanager
    def activity(self, name: str) -> Iterator[None]:
        """Work that no write waits for, but that may stand in the way of one."""
        if not self.least_us:
            yield
            return
        started_us = self._clock.monotonic_us()
        mark = object()
        with self._lock:
            self._active[mark] = name, started_us
        try:
            yield
        finally:
            with self._lock:
                del self._active[mark]
                self._ended.append(_Activity(name, started_us, self._clock.monotonic_us()))

    def _beside(self, started_us: int, ended_us: int) -> list[str]:
        names = {name for name, since_us in self._active.values() if since_us < ended_us}
        for activity in reversed(self._ended):
            if activity.ended_us <= started_us:
                break  # they are in the order of their ends
            if activity.started_us < ended_us:
                names.add(activity.name)
        return sorted(names)

    # -- the collector of garbage

    def watch_collector(self) -> None:
        if self.least_us and self._collected not in gc.callbacks:
            gc.callbacks.append(self._collected)

    def leave_collector(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, facts: dict[str, Any]) -> None:
        now_us = self._clock.monotonic_us()
        if phase == "start":
            self._collection_us = now_us
        elif self._collection_us:
            detail = f"generation {facts['generation']}, {facts['collected']} objects collected"
            self.note(WaitCause.GARBAGE, self._collection_us, now_us, detail)

    # -- with the lock

    def _keep(
        self,
        cause: WaitCause,
        started_us: int,
        ended_us: int,
        detail: str,
        beside: list[str],
    ) -> None:
        duration_us = ended_us - started_us
        ago_us = self._clock.monotonic_us() - started_us
        at_ms = self._clock.wall_ms() - ago_us // US_PER_MS
        self._number += 1
        sums = self.sums[cause]
        sums.count += 1
        sums.total_us += duration_us
        sums.buckets[bisect_left(WAIT_BOUNDS_US, duration_us)] += 1
        sums.kept.append(LongWait(self._number, cause.value, at_ms, duration_us, detail, beside))


def name_of(work: Callable[[], object]) -> str:
    """Of a callback, for people: `Checkpointer.run`."""
    while isinstance(work, partial):
        work = work.func
    name = str(getattr(work, "__qualname__", type(work).__name__))
    return name.partition(".<locals>")[0]
