"""What one turn brings to one log: writes that are handed over together, and answered together.

The topics, Kafka's log and the machines' log each have a `WriteTurn`. A write is admitted and has
its place (seqs, offsets) when it comes; at the end of the turn all of them become one `Submission`
for each shard and class, in the order in which they came. See
docs/decisions/0039-a-turn-is-one-submission.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError, InvariantError, OverloadedError
from headwater.core.units import MIB
from headwater.engine.owner import Owner
from headwater.wal.ticket import Ticket

SUBMISSION_WRITERS: Final = 512
"""Roughly: what comes in the next turn need not wait for a larger one."""
SUBMISSION_BYTES: Final = 1 * MIB
"""With so many, what is done once for a submission costs little beside them."""


class Submitted(Protocol):
    """One of the writes."""

    @property
    def writers(self) -> int:
        """How many clients wait for its answer."""

    @property
    def size(self) -> int:
        """Bytes, roughly."""


W = TypeVar("W", bound=Submitted)


class WriteTurn(Generic[W]):
    """The writes of this turn that have their places."""

    def __init__(self, owner: Owner, submit: Callable[[list[W]], None], writers_max: int) -> None:
        """`submit` answers each of the writes it is given, sooner or later."""
        self._at_end_of_turn = owner.at_end_of_turn
        self._submit = submit
        self._writers_max = min(SUBMISSION_WRITERS, writers_max)
        self._begun: list[W] = []
        self._sending = False
        self.send: Final = self._send
        """Hand over what was begun: at the end of the turn, and before anything that must not
        overtake it."""

    def add(self, *writes: W) -> None:
        self._begun += writes
        self._at_end_of_turn(self.send)

    def _send(self) -> None:
        if self._sending:  # what is answered at once may bring more; it goes behind these
            return
        self._sending = True
        try:
            while self._begun:
                count = self._fitting() if len(self._begun) > 1 else 1
                writes, self._begun = self._begun[:count], self._begun[count:]
                self._submit(writes)
        finally:
            self._sending = False

    def _fitting(self) -> int:
        """How many of them are one submission."""
        writers = size = 0
        for count, write in enumerate(self._begun):
            writers += write.writers
            size += write.size
            if count and (writers > self._writers_max or size > SUBMISSION_BYTES):
                return count
        return len(self._begun)


class NotTaken(NamedTuple, Generic[W]):
    """What a log did not take, the newest of what was handed over; and why."""

    writes: list[W]
    error: HeadwaterError


class Submission(Generic[W]):
    """The context of its ticket."""

    __slots__ = ("bodies", "frame_counts", "writes")

    def __init__(self) -> None:
        self.writes: list[W] = []
        self.bodies: list[bytes] = []
        self.frame_counts: list[int] = []

    def add(self, write: W, body: bytes, frame_count: int) -> None:
        self.writes.append(write)
        self.bodies.append(body)
        self.frame_counts.append(frame_count)

    def hand_over(
        self, submit: Callable[[Ticket], None], durability: Durability
    ) -> NotTaken[W] | None:
        """One ticket; where the log has no room for all, those that came first."""
        try:
            submit(self._ticket(durability))
        except OverloadedError as refusal:
            if len(self.writes) == 1:
                return NotTaken(self.writes, refusal)
            first, second = self._halves()
            refused = first.hand_over(submit, durability)
            if refused is None:
                return second.hand_over(submit, durability)
            return NotTaken(refused.writes + second.writes, refused.error)
        except HeadwaterError as refusal:
            return NotTaken(self.writes, refusal)
        return None

    def _ticket(self, durability: Durability) -> Ticket:
        body, frame_count = b"".join(self.bodies), sum(self.frame_counts)
        ticket = Ticket(body, frame_count, durability, context=self)
        ticket.writers = sum([write.writers for write in self.writes])
        return ticket

    def _halves(self) -> tuple[Submission[W], Submission[W]]:
        middle = len(self.writes) // 2
        return self._some(slice(middle)), self._some(slice(middle, None))

    def _some(self, some: slice) -> Submission[W]:
        part = type(self)()
        part.writes, part.bodies = self.writes[some], self.bodies[some]
        part.frame_counts = self.frame_counts[some]
        return part


def mistake_as_answer(mistake: Exception) -> HeadwaterError:
    """To writes that were not handed over because of it; who answers a client logs what it was."""
    error: HeadwaterError = InvariantError("something went wrong here; nothing was written")
    if isinstance(mistake, MemoryError):
        error = OverloadedError("there is no memory for this write; nothing was written, try again")
    error.__cause__ = mistake
    return error
