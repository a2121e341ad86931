"""An operation: something a caller can do, written once for threads and for event loops.

It is a generator of steps: something to do as the owner, something to read from files, something to
wait for. `core.driver` runs it; each API says how a step is done: a thread blocks
(`BlockingDriver`), a coroutine awaits. So the logic is written once, and two versions of it cannot
drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from headwater.core.clock import Doorbell
from headwater.core.driver import LATER, drive
from headwater.core.errors import ClosedError
from headwater.engine.partition import Partition
from headwater.engine.pending import Pending, wait_for
from headwater.engine.state.engine_core import EngineCore

T = TypeVar("T")


class AsOwner(NamedTuple):
    """Work for the owner of the state."""

    work: Callable[[], Any]


class InFiles(NamedTuple):
    """Work that may wait for a disk."""

    work: Callable[[], Any]


class Answered(NamedTuple):
    """Start something as the owner, then wait for its answer."""

    start: Callable[[], Pending[Any]]


class Woken(NamedTuple):
    """Wait until the partition has something new, or the time is up. `ready` is called as the
    owner, before waiting: true means there is no need to."""

    topic: Partition
    until_us: int | None
    ready: Callable[[], bool]


Step = AsOwner | InFiles | Answered | Woken
Operation = Generator[Step, Any, T]


def do_as_owner(step: Step) -> Any:
    """For the driver, on the owner's thread: what waits for nothing."""
    return step.work() if isinstance(step, AsOwner) else LATER


class BlockingDriver:
    """Runs operations on the thread of the caller, which is not the owner's."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def drive(self, operation: Operation[T]) -> T:
        return drive(operation, self.do)

    def do(self, step: Step) -> Any:
        core = self._core
        if core.closing:
            raise ClosedError("the database is closed")
        if isinstance(step, AsOwner):
            return core.owner.call(step.work)
        if isinstance(step, InFiles):
            return step.work()
        if isinstance(step, Answered):
            return wait_for(core.owner, step.start).answer()
        return self._await_wake(step)

    def _await_wake(self, step: Woken) -> None:
        core = self._core
        doorbell = Doorbell()

        def register() -> bool:
            if step.ready():
                return False
            step.topic.waiters.add(doorbell.ring)
            return True

        if core.owner.call(register):
            core.clock.wait(doorbell, step.until_us)
            core.owner.call(lambda: step.topic.waiters.discard(doorbell.ring))
