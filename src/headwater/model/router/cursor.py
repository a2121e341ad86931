"""A router's cursor: how far it is, what it leaves in its destination, and where it goes on.

Copies are not in the log. They are in the destination's memory until a checkpoint puts them into
segments; a crash before that takes them, and they are made again from the source. What a router
leaves in its destination for each record it passes depends on its guarantee:

| record at the source | at_least_once | exactly_once |
|---|---|---|
| matches | a copy | a copy |
| does not match, or was deleted | nothing | an empty slot |
| lost (cap, age) before it was copied | a lost slot | a lost slot |

With exactly_once every source seq has exactly one slot in the destination. So the slot of a copy
shows which record it is a copy of, and the head of what survived shows where to go on: a
record is copied once, under the same seq before and after the crash, and a reader of the
destination never meets it twice. The price is a slot for every record that is passed over.

With at_least_once only what matches takes a slot. A mark, made durable in the same checkpoint as
the copies it counts, says how far the source was read; what came after it is copied again, under
seqs that were never used before (I3).

A lost slot becomes a tombstone for readers of the destination, with `source_trim` (I9).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from headwater.core.errors import InvariantError
from headwater.model.router.definition import Guarantee


class Fate(Enum):
    """What became of a record of the source, as its router meets it."""

    MATCHES = "matches"
    PASSED = "passed"
    """Deleted, or not matched by the filter."""
    LOST = "lost"


class Slot(Enum):
    """What is left in the destination for it."""

    NOTHING = 0
    COPY = 1
    EMPTY = 2
    LOST = 3


_SLOTS: Final[dict[tuple[Guarantee, Fate], Slot]] = {
    (Guarantee.AT_LEAST_ONCE, Fate.MATCHES): Slot.COPY,
    (Guarantee.AT_LEAST_ONCE, Fate.PASSED): Slot.NOTHING,
    (Guarantee.AT_LEAST_ONCE, Fate.LOST): Slot.LOST,
    (Guarantee.EXACTLY_ONCE, Fate.MATCHES): Slot.COPY,
    (Guarantee.EXACTLY_ONCE, Fate.PASSED): Slot.EMPTY,
    (Guarantee.EXACTLY_ONCE, Fate.LOST): Slot.LOST,
}


def slot_for(guarantee: Guarantee, fate: Fate) -> Slot:
    return _SLOTS[guarantee, fate]


class CursorMark(NamedTuple):
    """Durable together: the source was read up to here when the destination ended there."""

    source_seq: int
    dest_seq: int


class Trim(NamedTuple):
    """Records of the source that were lost before they were copied, both ends included."""

    first_seq: int
    last_seq: int

    @property
    def slots(self) -> int:
        """Lost slots they leave in the destination."""
        return self.last_seq - self.first_seq + 1


class RouterCursor:
    """One router: the last source seq it has passed, and what it may rely on after a crash."""

    __slots__ = ("forwarded_total", "guarantee", "held", "mark", "own_writes", "source_seq")

    def __init__(self, guarantee: Guarantee, mark: CursorMark) -> None:
        self.guarantee = guarantee
        self.mark = mark
        self.source_seq = mark.source_seq
        self.forwarded_total = 0
        self.held = False
        """The destination is full and refuses: the cursor waits for room."""
        self.own_writes = 0
        """Records others wrote into the destination since the mark."""

    def next_range(self, source_visible_seq: int, limit: int) -> tuple[int, int] | None:
        """The source seqs to copy next, both ends included; None when there are none."""
        if self.source_seq >= source_visible_seq:
            return None
        return self.source_seq + 1, min(self.source_seq + limit, source_visible_seq)

    def trimmed(self, evict_floor: int) -> Trim | None:
        """What the source lost before this router came to it."""
        if self.source_seq + 1 >= evict_floor:
            return None
        return Trim(self.source_seq + 1, evict_floor - 1)

    def passed(self, upto_seq: int, copies: int) -> None:
        """Everything up to this source seq has its slot in the destination."""
        if upto_seq < self.source_seq:
            raise InvariantError(f"a router at {self.source_seq} cannot go back to {upto_seq}")
        self.source_seq = upto_seq
        self.forwarded_total += copies
        self.held = False

    def hold(self) -> None:
        """The destination refused a copy: it is tried again, and nothing after it before."""
        self.held = True

    def next_mark(self, dest_seq: int) -> CursorMark:
        """The mark for this router in the destination's next checkpoint, up to this seq."""
        return CursorMark(self.source_seq, dest_seq)

    def marked(self, mark: CursorMark) -> None:
        """The checkpoint is durable."""
        self.mark = mark
        self.own_writes = 0

    def resume(self, dest_seq: int, own_writes: int = 0) -> None:
        """After a crash: the destination came back up to this seq, with so many records after the
        mark that were written into it directly and are in the log themselves."""
        slots = dest_seq - self.mark.dest_seq - own_writes
        if slots < 0:
            raise InvariantError(
                f"a destination that ends at {dest_seq} is behind its mark {self.mark.dest_seq}"
            )
        self.own_writes = own_writes
        self.source_seq = self.mark.source_seq
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            self.source_seq += slots
