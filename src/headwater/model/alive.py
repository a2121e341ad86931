"""Which slots of an index are alive, and the end of those that are done, over the bytes themselves.

Slots are counted from the front of the buffer that holds them. Where it is compiled, a scan of many
of them is a plain loop; otherwise it is numpy's.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.core.arrays import numpy
from headwater.format.segment import ENTRY_BYTES, INDEX_ENTRY
from headwater.model.slots import DEAD
from headwater.native import compiled

_native: Final = compiled("jobs")
_FLAGS_AT: Final = INDEX_ENTRY.offset_of("flags_check")
_SCALAR_SLOTS: Final = 8
"""Slots checked one by one before numpy is used; it is slow to start."""


def _check(buffer: bytearray, first: int, end: int) -> None:
    if not 0 <= first <= end <= len(buffer) // ENTRY_BYTES:
        raise ValueError(f"no slots {first} to {end} in {len(buffer) // ENTRY_BYTES}")


def _view(buffer: bytearray, first: int, end: int) -> Any:
    return numpy.frombuffer(buffer, INDEX_ENTRY.dtype)[first:end]


def first_alive(buffer: bytearray, first: int, end: int) -> int:
    """The first of the slots [first, end) that is alive; `end` when there is none."""
    if _native is not None:
        return int(_native.first_alive(buffer, first, end))
    _check(buffer, first, end)
    for at in range(first, min(first + _SCALAR_SLOTS, end)):
        if not buffer[at * ENTRY_BYTES + _FLAGS_AT] & DEAD:
            return at
    if end - first <= _SCALAR_SLOTS:
        return end
    alive = _view(buffer, first, end)["flags_check"] & DEAD == 0
    position = int(alive.argmax())
    return first + position if alive[position] else end


def all_alive(buffer: bytearray, first: int, end: int) -> bool:
    """Every one of the slots [first, end) is alive."""
    if _native is not None:
        return bool(_native.all_alive(buffer, first, end))
    _check(buffer, first, end)
    return not (_view(buffer, first, end)["flags_check"] & DEAD).any()


def kill_run(buffer: bytearray, first: int, end: int) -> int:
    """Mark the slots [first, end) dead; gives the sum of their lengths. If one of them is dead
    already, nothing is done and the answer is -1."""
    if _native is not None:
        return int(_native.kill_run(buffer, first, end))
    if not all_alive(buffer, first, end):
        return -1
    slots = _view(buffer, first, end)
    slots["flags_check"] |= numpy.uint32(DEAD)
    return int(slots["len"].sum(dtype=numpy.int64))
