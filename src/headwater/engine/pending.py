"""Something on its way to the log: what was asked, and later what became of it.

Answered exactly once, by the owner, after its class is satisfied (I15). The caller that waits for
the answer sets `on_done`: an HTTP connection writes its response, a coroutine's future is set, a
thread's gate is opened. There is no task per request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from headwater.core.errors import HeadwaterError
from headwater.core.results import Appended

if TYPE_CHECKING:
    from headwater.engine.owner import Owner
    from headwater.engine.topics.topic import Topic

R = TypeVar("R")


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


class Keyed(NamedTuple):
    """An idempotency key, and the records it stands for."""

    key: bytes
    first_seq: int
    last_seq: int


class Write(Pending[Appended]):
    """One append of one or more records."""

    buffer = b""
    offsets: Sequence[int] = ()
    lengths: Sequence[int] = ()
    """Size each record will have in a segment."""
    flags: Sequence[int] = ()
    tags: Sequence[bytes] = ()
    created = False
    writers = 1
    """How many writes of others it stands for."""
    waits = False
    """Its ack is held until a sync."""
    logged = True
    """Its records are in the log."""
    synced = False
    """Its ack is to wait for a sync, whatever the topic's class says of disk writes."""
    keys: Sequence[Keyed] = ()
    """One for all of its records; or several, when it stands for writes of others."""
    expires_ts = 0
    scheduled: dict[int, int] | None = None
    """When jobs of a queue may be delivered, by seq."""
    on_flushed: Callable[[], None] | None = None
    """Told that the copies in front of it in its group are durable."""
    sync_us = 0
    """How long the sync took that this write waited for."""
    throttle_us = 0
    """How much longer its group waited for company because of pressure, at most."""
    _followers: list[tuple[Write, int | None]] | None = None
    """Each with the last seq of what it repeats, when that is a part."""

    def __init__(self, topic: Topic, first_seq: int, ts: int) -> None:
        self.topic = topic
        self.first_seq = first_seq
        self.ts = ts

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.offsets) - 1

    def follow(self, follower: Write, last_seq: int | None = None) -> None:
        """A repeat of this write waits for it and gets the same answer, marked as a repeat. A
        repeat of a part gets that part: from the follower's own first seq to this one."""
        if self._followers is None:
            self._followers = []
        self._followers.append((follower, last_seq))

    def succeed(self, result: Appended) -> None:
        self.result = result
        if self.on_done is not None:
            self.on_done(self)
        if self._followers is not None:
            repeated = result._replace(deduped=True)
            for follower, last_seq in self._followers:
                first_seq = follower.first_seq
                follower.succeed(
                    repeated
                    if last_seq is None
                    else repeated._replace(first_seq=first_seq, last_seq=last_seq)
                )

    def fail(self, error: HeadwaterError) -> None:
        super().fail(error)
        for follower, _ in self._followers or ():
            follower.fail(error)


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
