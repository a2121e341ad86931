"""A ticket is one submission to a log and the promise of exactly one answer (I15)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError, InvariantError

_making_a_gate = threading.Lock()


class Ticket:
    """Frames that go into the log together: all of them in one group, or none.

    `context` belongs to the submitter; the log never reads it. `essential` tickets (deletes,
    acks, floors, checkpoints) may use the reserve while the disk is full.
    """

    # Defaults stand in the class: setting an attribute costs time, and most keep theirs.
    last_frame = 0
    """Number of its last frame in the shard, once it was written."""
    resolved = False
    taken = False
    """The submitter's own: it has drawn its conclusions from the answer."""
    error: HeadwaterError | None = None
    writers = 1
    """How many wait for its answer: the log expects as many to come back."""
    _gate: threading.Lock | None = None

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

    def resolve(self, error: HeadwaterError | None = None) -> None:
        """Answer the ticket. A second answer is a bug in the log, not in the submitter."""
        if self.resolved:
            raise InvariantError("a commit ticket was resolved twice")
        self.error = error
        self.resolved = True  # before reading the gate: see `wait`
        gate = self._gate
        if gate is not None:
            gate.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Block until answered. True when acked; raises what went wrong; False on time-out.

        Only a ticket that a thread blocks on has a gate. No answer is missed: `wait` makes the gate
        and then reads `resolved`, `resolve` sets `resolved` and then reads the gate.
        """
        if not self.resolved:
            gate = self._make_gate()
            if not self.resolved:
                if not gate.acquire(timeout=timeout_s):
                    return False
                gate.release()  # so that any number of waiters get through
        if self.error is not None:
            raise self.error
        return True

    def _make_gate(self) -> threading.Lock:
        with _making_a_gate:
            gate = self._gate
            if gate is None:
                gate = threading.Lock()
                gate.acquire()
                self._gate = gate
            return gate


def resolve_all(tickets: Sequence[Ticket], error: HeadwaterError | None = None) -> None:
    """Answer many alike, as `resolve` does, without a call for each."""
    for ticket in tickets:
        if ticket.resolved:
            raise InvariantError("a commit ticket was resolved twice")
        if error is not None:
            ticket.error = error
        ticket.resolved = True
        gate = ticket._gate
        if gate is not None:
            gate.release()


def writers_of(tickets: Sequence[Ticket]) -> int:
    return sum([ticket.writers for ticket in tickets])


Listener = Callable[[Sequence[Ticket]], None]
"""Called on the log's thread, once per resolved batch of tickets, in enqueue order; and with none
when a sync made durable what was answered before it."""


def resolve_quietly(tickets: Sequence[Ticket]) -> None:
    """The listener for callers who wait on the tickets themselves."""
