"""Jobs that may not be claimed yet: before a certain time, or while a job of their key is out.

`Delays` is a heap of (ready time, seq). The two numbers are packed into one, which costs half of a
pair. Any unit of time will do, as long as it is always the same.

`FifoKeys` keeps the order of each key: at most one job of a key is out, and the next waits until it
is gone. A job takes its key when it is first claimed and keeps it until it is deleted: while it is
leased, while a delay runs, while it waits to be delivered again. So jobs of one key complete in the
order in which they were written. Jobs met while their key is taken are parked under it, eight
bytes each, and the first of them gets the key from the one that leaves.
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


class FifoKeys:
    __slots__ = ("_holders", "_keys", "_parked")

    def __init__(self) -> None:
        self._holders: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._parked: dict[bytes, list[int]] = {}

    @property
    def parked(self) -> int:
        """Jobs that wait for their key."""
        return sum(map(len, self._parked.values()))

    def hold(self, key: bytes, seq: int) -> bool:
        """Take the key for this job. False when another has it: the job is parked."""
        holder = self._holders.get(key)
        if holder is None:
            self._holders[key] = seq
            self._keys[seq] = key
        elif holder != seq:
            heapq.heappush(self._parked.setdefault(key, []), seq)
            return False
        return True

    def adopt(self, key: bytes, seq: int) -> None:
        """A job that was out before its key was known holds it, unless another does."""
        if key not in self._holders:
            self._holders[key] = seq
            self._keys[seq] = key

    def free(self, seq: int) -> int | None:
        """The job is gone. Gives the one that holds its key now, if there is one."""
        key = self._keys.pop(seq, None)
        if key is None:
            return None
        waiting = self._parked.get(key)
        if not waiting:
            del self._holders[key]
            return None
        heir = heapq.heappop(waiting)
        if not waiting:
            del self._parked[key]
        self._holders[key] = heir
        self._keys[heir] = key
        return heir

    def let_go(self) -> list[int]:
        """Every job that waits for a key: order by key is wanted no longer."""
        parked = [seq for waiting in self._parked.values() for seq in waiting]
        self._parked.clear()
        self._holders.clear()
        self._keys.clear()
        return parked
