"""A ticket is one submission to a log and the promise of exactly one answer (I15)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError, InvariantError


class Ticket:
    """Frames that go into the log together: all of them in one group, or none.

    `context` belongs to the submitter; the log never looks at it. `essential` tickets (deletes,
    acks, floors, checkpoints) may use the reserve while the disk is full.
    """

    __slots__ = (
        "_gate",
        "body",
        "context",
        "durability",
        "error",
        "essential",
        "frame_count",
        "last_frame",
        "resolved",
    )

    def __init__(
        self,
        body: bytes,
        frame_count: int,
        durability: Durability,
        *,
        essential: bool = False,
        context: Any = None,
    ) -> None:
        self.body = body
        self.frame_count = frame_count
        self.durability = durability
        self.essential = essential
        self.context = context
        self.last_frame = 0
        """Number of its last frame in the shard, once it was written."""
        self.resolved = False
        self.error: HeadwaterError | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def resolve(self, error: HeadwaterError | None = None) -> None:
        """Answer the ticket. A second answer is a bug in the log, not in the submitter."""
        if self.resolved:
            raise InvariantError("a commit ticket was resolved twice")
        self.error = error
        self.resolved = True
        self._gate.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Block until answered. True when acked; raises what went wrong; False on time-out."""
        if not self._gate.acquire(timeout=timeout_s):
            return False
        self._gate.release()  # so that any number of waiters get through
        if self.error is not None:
            raise self.error
        return True


Listener = Callable[[Sequence[Ticket]], None]
"""Called on the log's thread, once per resolved batch of tickets, in enqueue order."""


def resolve_quietly(tickets: Sequence[Ticket]) -> None:
    """The listener for callers who wait on the tickets themselves."""
