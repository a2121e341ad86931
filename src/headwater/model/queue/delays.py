"""Jobs that may not be claimed before a certain time: a heap of (ready time, seq).

The two numbers are packed into one, which costs half of a pair. Any unit of time will do, as long
as it is always the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

_SEQ_BITS: Final = 64
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1
_SLACK: Final = 64


class Delays:
    __slots__ = ("_heap", "_ready")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._ready: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def __contains__(self, seq: int) -> bool:
        return seq in self._ready

    def items(self) -> list[tuple[int, int]]:
        """Each seq with its time, in order of seq."""
        return sorted(self._ready.items())

    def seqs(self) -> list[int]:
        return list(self._ready)

    def add(self, seq: int, ready: int) -> None:
        self._ready[seq] = ready
        heapq.heappush(self._heap, ready << _SEQ_BITS | seq)
        if len(self._heap) > 2 * len(self._ready) + _SLACK:
            self._heap = [at << _SEQ_BITS | seq for seq, at in self._ready.items()]
            heapq.heapify(self._heap)

    def discard(self, seq: int) -> None:
        self._ready.pop(seq, None)

    def next(self) -> int | None:
        """When the next one is ready."""
        heap = self._heap
        while heap:
            ready = heap[0] >> _SEQ_BITS
            if self._ready.get(heap[0] & _SEQ_MASK) == ready:
                return ready
            heapq.heappop(heap)
        return None

    def due(self, now: int) -> Iterator[int]:
        """Take out those whose time has come, the longest due first."""
        heap = self._heap
        while heap and heap[0] >> _SEQ_BITS <= now:
            packed = heapq.heappop(heap)
            seq = packed & _SEQ_MASK
            if self._ready.get(seq) == packed >> _SEQ_BITS:
                del self._ready[seq]
                yield seq
