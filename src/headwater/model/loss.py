"""Records lost without a delete, and the tombstones that readers get for them.

A floor for each reason is enough to name the reason for any cursor exactly: something above the
cursor was lost to a cap if and only if the cap's floor is above the cursor.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final, NamedTuple


class Loss(IntFlag):
    """Why records are gone. The values are on disk; a sum means several reasons."""

    NONE = 0
    CAP = 1
    TTL = 2
    LOST_TAIL = 4
    """Acknowledged by a class that risks it, and gone with a crash."""
    SOURCE_TRIM = 8
    """Evicted at the source of a router before it was copied."""

    @property
    def word(self) -> str:
        """The `reason` of a tombstone."""
        return _WORDS.get(self, "mixed")


_WORDS = {
    Loss.CAP: "cap",
    Loss.TTL: "ttl",
    Loss.LOST_TAIL: "lost_tail",
    Loss.SOURCE_TRIM: "source_trim",
}

RECREATED = "recreated"
DAMAGED = "damaged"
"""The record was not lost by any rule: its bytes on the disk are wrong, or the file is gone."""


EVERY_LOSS: Final = tuple(map(Loss, range(16)))
"""Each sum of reasons at its own number: adding flags is slow, adding numbers is not."""


class LossFloors:
    """For each reason the first seq above everything it took."""

    __slots__ = ("_floors",)

    def __init__(self) -> None:
        self._floors: dict[int, int] = {}

    def raise_to(self, reason: int, floor: int) -> None:
        """Everything that `reason` took is below `floor`. Reasons may be joined."""
        floors = self._floors
        if reason in floors:
            floors[reason] = max(floor, floors[reason])
            return
        for each in (1, 2, 4, 8):
            if each & reason:
                floors[each] = max(floor, floors.get(each, 0))

    def above(self, seq: int) -> Loss:
        """The reasons for which seqs at or above `seq` were lost."""
        return EVERY_LOSS[sum(reason for reason, floor in self._floors.items() if floor > seq)]


class Eviction(NamedTuple):
    """A prefix that went: what to write down, and what to free."""

    first_seq: int
    """The earliest seq before."""
    evict_floor: int
    earliest_seq: int
    reason: Loss
    records: int
    bytes: int
