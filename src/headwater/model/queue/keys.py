"""Per-key order: at most one job of a key is out, and the next waits until it is gone.

A job takes its key when it is first claimed and keeps it until it is deleted: while it is leased,
while a delay runs, while it waits to be delivered again. So jobs of one key complete in the
order in which they were written. Jobs met while their key is taken are parked under it, eight
bytes each, and the first of them gets the key from the one that leaves.
"""

from __future__ import annotations

import heapq


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
