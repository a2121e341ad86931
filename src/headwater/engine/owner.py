"""Which thread may touch domain state: one owner at a time, instead of locks all over. And what is
asked of it that goes to the log: something pending, with its answer later.

With an event loop the owner is the loop's thread. Without one it is the thread that holds the
baton: a caller's thread during a call, a log's thread while it publishes. Either way the engine's
own code never locks anything, and nothing slow is ever done as the owner.

What is pending is answered exactly once, by the owner, after its class is satisfied (I15). The
caller that waits for the answer sets `on_done`: an HTTP connection writes its response, a
coroutine's future is set, a thread's gate is opened. There is no task per request.

A *turn* is what one pass of the loop brought. Whoever collects what came (writes of topics, batches
of Kafka's log, events of machines) has the owner call it at the end of the turn, when the loop has
read from all that sent something; then all that was collected is one submission. Without a loop
each call is a turn of its own. See docs/decisions/0039-a-turn-is-one-submission.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, Generic, Protocol, TypeVar

from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import HeadwaterError
from headwater.observe.waits import Waits, name_of

T = TypeVar("T")
SLICE_US: Final = 300
"""How long the owner stays with work that is done in slices..."""
REST_US: Final = 1_200
"""...and how long it serves others before the next slice."""
R = TypeVar("R")


class Owner(Protocol):
    def post(self, work: Callable[[], None]) -> None:
        """Have the owner run this soon. Never blocks on the work itself being possible."""

    def call(self, work: Callable[[], T]) -> T:
        """Run this as the owner and return its result. Not to be called by the owner."""

    def rest(self, us: int) -> None:
        """Leave the interpreter to the owner for so long, where it serves others meanwhile."""

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        """By the owner: run this once all that came together is there, however often it is asked
        for until then."""

    def end_turn(self) -> None:
        """By the owner: nothing more belongs to this turn."""


def call_in_slices(owner: Owner, clock: Clock, steps: Iterator[object]) -> None:
    """Have the owner take these steps, a moment at a time: in between it does what others wait
    for. Not to be called by the owner."""

    def take_steps() -> bool:
        until_us = clock.monotonic_us() + SLICE_US
        return any(clock.monotonic_us() >= until_us for _ in steps)

    take_steps.__qualname__ = getattr(steps, "__qualname__", take_steps.__qualname__)
    while owner.call(take_steps):
        owner.rest(REST_US)


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

    def rest(self, us: int) -> None:
        """Nothing else runs on behalf of the owner: callers take the baton when it is free."""

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        work()

    def end_turn(self) -> None:
        """Each call was one."""


class LoopOwner:
    """For programs with an event loop: everything happens on its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, waits: Waits) -> None:
        self._loop = loop
        self._clock = clock
        self._waits = waits
        self._ending: dict[Callable[[], None], None] = {}
        """What to run at the end of this turn, in the order in which it was asked for."""

    def post(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._waits.timed(name_of(work), work))

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        if not self._ending:
            self._loop.call_soon(self._waits.timed("end of the turn", self.end_turn))
        self._ending[work] = None

    def end_turn(self) -> None:
        """What this asks for, and what comes meanwhile, is part of the turn. A mistake in one
        leaves out none of the others (I15)."""
        mistake: Exception | None = None
        while self._ending:
            work = next(iter(self._ending))
            del self._ending[work]
            try:
                work()
            except Exception as error:
                mistake = mistake or error
        if mistake is not None:
            raise mistake

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

    def rest(self, us: int) -> None:
        self._clock.wait(Doorbell(), self._clock.monotonic_us() + us)

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


class Pending(Generic[R]):
    """Defaults stand in the class: most writes use few of these fields."""

    result: R | None = None
    error: HeadwaterError | None = None
    on_done: Callable[[Pending[R]], None] | None = None

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def succeed(self, result: R) -> None:
        self.result = result
        if self.on_done is not None:
            self.on_done(self)

    def fail(self, error: HeadwaterError) -> None:
        self.error = error
        if self.on_done is not None:
            self.on_done(self)

    def answer(self) -> R:
        if self.error is not None:
            raise self.error
        assert self.result is not None, "asked before it was answered"
        return self.result


class Change(Pending[Any]):
    """A control change. Takes effect when the log has it, in the log's order."""

    def __init__(
        self, take_effect: Callable[[], Any], give_up: Callable[[], None] | None = None
    ) -> None:
        self._take_effect = take_effect
        self._give_up = give_up
        self.on_flushed: Callable[[], None] | None = None
        """Told that the copies in front of it in its group are durable."""

    def carry_out(self) -> None:
        if self.on_flushed is not None:
            self.on_flushed()
        self.succeed(self._take_effect())

    def refuse(self, error: HeadwaterError) -> None:
        if self._give_up is not None:
            self._give_up()
        self.fail(error)


class Gate:
    """How a thread waits for an answer: one lock, released by it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self, _pending: object = None) -> None:
        self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()


def wait_for(owner: Owner, start: Callable[[], Pending[R]]) -> Pending[R]:
    """Begin something as the owner, and block until it is answered. Not for the owner itself."""
    gate = Gate()

    def begin() -> Pending[R]:
        pending = start()
        if pending.done:
            gate.open()
        else:
            pending.on_done = gate.open
        return pending

    pending = owner.call(begin)
    gate.wait()
    return pending
