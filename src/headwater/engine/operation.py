"""An operation: something a caller can do, written once for threads and for event loops.

It is a generator of steps: something to do as the owner, something to read from files, something to
wait for. `core.driver` runs it; `drivers` say how a step is done: a thread blocks, a coroutine
awaits. So the logic is written once, and two versions of it cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headwater.core.driver import HandOver
from headwater.engine.owner import Pending
from headwater.engine.partition import Wakeup

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


class WaiterSet(Protocol):
    def add(self, wakeup: Wakeup, /) -> None: ...

    def discard(self, wakeup: Wakeup, /) -> None: ...


class WakeSource(Protocol):
    """A topic, or something else that calls its waiters once when it has something new."""

    @property
    def waiters(self) -> WaiterSet: ...


class Woken(NamedTuple):
    """Wait until the source has something new, or the time is up. `ready` is called as the owner,
    before waiting: true means there is no need to."""

    source: WakeSource
    until_us: int | None
    ready: Callable[[], bool]


Step = AsOwner | InFiles | Answered | Woken
Operation = Generator[Step, Any, T]
WatchOperation = Generator[Step | HandOver, Any, None]
"""One that hands over what it gives, one by one."""


class OneStep(NamedTuple, Generic[T]):
    """An operation that waits for the log once, and for nothing else: without a generator."""

    start: Callable[[], Pending[Any]]
    respond: Callable[[Any], T]
    """Makes the response from what the log answers."""


Work: TypeAlias = Operation[T] | OneStep[T]
