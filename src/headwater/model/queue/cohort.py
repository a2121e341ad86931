"""Claims that come close together are served together, so that none of them takes everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Claimer = TypeVar("Claimer")


def share(available: int, wanted: Sequence[int]) -> list[int]:
    """How many each gets: in proportion to what it wants, never more than that.

    What does not divide goes one by one to those with the largest remainder, and among equals to
    the one who came first. Nothing is left over while a claimer still wants it.
    """
    total = sum(wanted)
    if available >= total:
        return list(wanted)
    shares = [want * available // total for want in wanted]
    left = available - sum(shares)
    by_remainder = sorted(
        range(len(wanted)), key=lambda at: (-(wanted[at] * available % total), at)
    )
    for at in by_remainder[:left]:
        shares[at] += 1
    return shares


class ClaimWindow(Generic[Claimer]):
    """Claimers who wait for one pass. The first one opens the window, the pass closes it."""

    __slots__ = ("_members", "_wanted", "closes_us")

    def __init__(self) -> None:
        self._members: list[Claimer] = []
        self._wanted: list[int] = []
        self.closes_us: int | None = None
        """When the pass is due; None while no claimer waits."""

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, claimer: Claimer) -> bool:
        return claimer in self._members

    def join(self, claimer: Claimer, wanted: int, now_us: int, window_us: int) -> bool:
        """True when this claimer opened the window: the caller sets the timer."""
        self._members.append(claimer)
        self._wanted.append(wanted)
        if self.closes_us is not None:
            return False
        self.closes_us = now_us + window_us
        return True

    def leave(self, claimer: Claimer) -> None:
        """A claimer gave up waiting."""
        if claimer in self._members:
            at = self._members.index(claimer)
            del self._members[at], self._wanted[at]
            if not self._members:
                self.closes_us = None

    @property
    def wanted(self) -> int:
        return sum(self._wanted)

    def close(self) -> list[Claimer]:
        """Everyone who waits, in the order they came; the next claim opens a new window."""
        members = self._members
        self._members, self._wanted, self.closes_us = [], [], None
        return members
