"""Seqs whose records are there but cannot be read: readers and loading note them, in memory.

A record in here still counts as a record: it was not deleted, and a backup may bring it back. But
no reader gets it, and a reader that comes to it gets a tombstone (I6). A start forgets the ranges
and finds the same again, because the bytes are still damaged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from headwater.core.arrays import numpy
from headwater.model.index import SeqIndex


class DamagedSeqs:
    """Ranges of seqs, apart from each other and in order. False while there are none."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The first seq behind each range."""

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[range]:
        return map(range, list(self._starts), list(self._ends))

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq < self._ends[at]

    def add(self, first: int, after: int) -> None:
        """Everything of [first, after), joined with what it touches."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, after)
        if low < high:
            first = min(first, self._starts[low])
            after = max(after, self._ends[high - 1])
        self._starts[low:high] = [first]
        self._ends[low:high] = [after]

    def forget_below(self, seq: int) -> None:
        gone = bisect_right(self._ends, seq)
        del self._starts[:gone], self._ends[:gone]

    def among(self, seqs: Iterable[int]) -> list[int]:
        return [seq for seq in seqs if seq in self] if self._starts else []

    def first_run(self, index: SeqIndex, start: int, end: int) -> tuple[int, int] | None:
        """The first neighbours that are damaged and not deleted, from one in [start, end) on: the
        first of them, and the first seq behind the last."""
        at = bisect_right(self._ends, start)
        while at < len(self._starts) and self._starts[at] < end:
            after = min(self._ends[at], index.next_seq)
            first = index.first_live(max(self._starts[at], start))
            if first < after:
                if first >= end:
                    return None
                flags = index.alive(first, after)
                return first, after if flags.all() else first + int(numpy.argmin(flags))
            at += 1
        return None
