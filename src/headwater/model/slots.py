"""What the slots of an index say: which of them are alive, and what those hold.

Slots are counted from the front of the buffer that holds them. Where it is compiled, a scan of many
of them is a plain loop; otherwise it is numpy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.format.segment import (
    ENTRY_BYTES,
    INDEX_ENTRY,
    SEGMENT_FRAME_BYTES_MIN,
    IndexFlag,
)
from headwater.native import compiled

_native: Final = compiled("jobs")

DEAD: Final = int(IndexFlag.DELETED)
LOST: Final = int(IndexFlag.LOST)
IN_WAL: Final = int(IndexFlag.IN_WAL)
OVERHEAD: Final = SEGMENT_FRAME_BYTES_MIN
"""Bytes of an entry's `len` that are not payload."""


class Live(NamedTuple):
    """How many live records, and their payload bytes."""

    records: int
    bytes: int


def as_run(seqs: Sequence[int]) -> range | None:
    """These seqs as a range, when each is the next after the one before."""
    if isinstance(seqs, range):
        return seqs if len(seqs) and seqs.step == 1 else None
    if not len(seqs) or seqs[-1] - seqs[0] != len(seqs) - 1:
        return None
    run = range(seqs[0], seqs[-1] + 1)
    if _native is not None and isinstance(seqs, list):
        return run if _native.is_run(seqs) else None
    return run if list(seqs) == list(run) else None


def sum_live(slots: Any) -> Live:
    """Of a run of slots."""
    alive = slots["flags_check"] & DEAD == 0
    count = int(numpy.count_nonzero(alive))
    lengths = slots["len"] if count == len(slots) else slots["len"][alive]
    return Live(count, int(lengths.sum(dtype=numpy.int64)) - OVERHEAD * count)


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
