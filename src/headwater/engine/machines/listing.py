"""Instances in the order of their ids: all, by machine, and by machine and state.

Ids are kept in sorted blocks, so that finding, adding and removing one of a million moves a few
thousand bytes, and a page begins without a scan of what is before it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Final

from headwater.model.machines.instance import Instance

BLOCK_IDS_MAX: Final = 1_024


class SortedIds:
    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block

    def load(self, ids: list[str]) -> None:
        """Begin with these, which are sorted already."""
        half = BLOCK_IDS_MAX // 2
        self._blocks = [ids[at : at + half] for at in range(0, len(ids), half)]
        self._lasts = [block[-1] for block in self._blocks]
        self._count = len(ids)

    def add(self, name: str) -> None:
        self._count += 1
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        at = min(bisect_left(self._lasts, name), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, name)
        self._lasts[at] = block[-1]
        if len(block) > BLOCK_IDS_MAX:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._lasts.insert(at, block[half - 1])

    def remove(self, name: str) -> None:
        at = bisect_left(self._lasts, name)
        block = self._blocks[at]
        del block[bisect_left(block, name)]
        self._count -= 1
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def page(self, offset: int, limit: int) -> list[str]:
        ids: list[str] = []
        for block in self._blocks:
            if offset >= len(block):
                offset -= len(block)
                continue
            ids += block[offset : offset + limit - len(ids)]
            offset = 0
            if len(ids) >= limit:
                break
        return ids


class Listing:
    def __init__(self) -> None:
        self._all = SortedIds()
        self._by_machine: dict[str, SortedIds] = {}
        self._by_state: dict[str, dict[str, SortedIds]] = {}
        """State, then machine."""

    def load(self, instances: Iterable[Instance]) -> None:
        """Begin with these, in any order; those of a snapshot are sorted, which makes it quick."""
        everything = sorted(instances, key=lambda instance: instance.id)
        machines: dict[str, list[str]] = {}
        states: dict[tuple[str, str], list[str]] = {}
        for instance in everything:
            machines.setdefault(instance.machine, []).append(instance.id)
            states.setdefault((instance.state, instance.machine), []).append(instance.id)
        self._all.load([instance.id for instance in everything])
        for machine, ids in machines.items():
            self._by_machine.setdefault(machine, SortedIds()).load(ids)
        for (state, machine), ids in states.items():
            self._ids(state, machine).load(ids)

    def changed(self, before: Instance | None, after: Instance | None) -> None:
        if before is not None and after is not None and before.machine == after.machine:
            if before.state != after.state:
                self._ids(before.state, before.machine).remove(before.id)
                self._ids(after.state, after.machine).add(after.id)
            return
        if before is not None:
            self._all.remove(before.id)
            self._by_machine[before.machine].remove(before.id)
            self._ids(before.state, before.machine).remove(before.id)
        if after is not None:
            self._all.add(after.id)
            self._by_machine.setdefault(after.machine, SortedIds()).add(after.id)
            self._ids(after.state, after.machine).add(after.id)

    def page(
        self, machine: str | None, state: str | None, offset: int, limit: int
    ) -> tuple[list[str], int]:
        """The ids of a page, and how many there are in all."""
        if state is None:
            chosen = self._all if machine is None else self._by_machine.get(machine)
            return _page(chosen, offset, limit)
        of_state = self._by_state.get(state, {})
        if machine is not None:
            return _page(of_state.get(machine), offset, limit)
        total = sum(map(len, of_state.values()))
        return list(islice(merge(*of_state.values()), offset, offset + limit)), total

    def _ids(self, state: str, machine: str) -> SortedIds:
        machines = self._by_state.get(state)
        if machines is None:
            machines = self._by_state[state] = {}
        ids = machines.get(machine)
        if ids is None:
            ids = machines[machine] = SortedIds()
        return ids


def _page(ids: SortedIds | None, offset: int, limit: int) -> tuple[list[str], int]:
    return ([], 0) if ids is None else (ids.page(offset, limit), len(ids))
