"""What the slots of an index say: which of them are alive, and what those hold.

Slots are counted from the front of the buffer that holds them. Where it is compiled, a look at many
of them is a plain loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy

from headwater.format.segment import (
    ENTRY_BYTES,
    INDEX_DTYPE,
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
    return run if list(seqs) == list(run) else None


def sum_live(slots: Any) -> Live:
    """Of a run of slots."""
    alive = slots["flags_check"] & DEAD == 0
    count = int(numpy.count_nonzero(alive))
    lengths = slots["len"] if count == len(slots) else slots["len"][alive]
    return Live(count, int(lengths.sum(dtype=numpy.int64)) - OVERHEAD * count)


_FLAGS_AT: Final = INDEX_ENTRY.offset_of("flags_check")
_SCALAR_STEPS: Final = 8
"""Slots looked at one by one before numpy is asked; it is slow to start."""


def _view(buffer: bytearray, first: int, end: int) -> Any:
    if not 0 <= first <= end <= len(buffer) // ENTRY_BYTES:
        raise ValueError(f"no slots {first} to {end} in {len(buffer) // ENTRY_BYTES}")
    return numpy.frombuffer(buffer, INDEX_DTYPE, end - first, first * ENTRY_BYTES)


def first_alive(buffer: bytearray, first: int, end: int) -> int:
    """The first of the slots [first, end) that is alive; `end` when there is none."""
    if _native is not None:
        return int(_native.first_alive(buffer, first, end))
    for at in range(first, min(first + _SCALAR_STEPS, end)):
        if not buffer[at * ENTRY_BYTES + _FLAGS_AT] & DEAD:
            return at
    if end - first <= _SCALAR_STEPS:
        return end
    alive = _view(buffer, first, end)["flags_check"] & DEAD == 0
    place = int(alive.argmax())
    return first + place if alive[place] else end


def all_alive(buffer: bytearray, first: int, end: int) -> bool:
    """Every one of the slots [first, end) is alive."""
    if _native is not None:
        return bool(_native.all_alive(buffer, first, end))
    return not (_view(buffer, first, end)["flags_check"] & DEAD).any() if end > first else True


def kill_run(buffer: bytearray, first: int, end: int) -> int:
    """Mark the slots [first, end) dead; gives the sum of their lengths. If one of them is dead
    already, nothing is done and the answer is -1."""
    if _native is not None:
        return int(_native.kill_run(buffer, first, end))
    if not all_alive(buffer, first, end):
        return -1
    if first == end:
        return 0
    slots = _view(buffer, first, end)
    slots["flags_check"] |= numpy.uint32(DEAD)
    return int(slots["len"].sum(dtype=numpy.int64))


def pack_entries(
    lengths: Sequence[int], times: int | Sequence[int], flags: Sequence[int]
) -> tuple[bytes, int]:
    """Entries of live records that are in no segment yet, and the sum of their lengths. `times` is
    one for all of them, or one each."""
    if _native is not None:
        packed: tuple[bytes, int] = _native.pack_entries(lengths, times, flags)
        return packed
    if len(flags) != len(lengths) or not (isinstance(times, int) or len(times) == len(lengths)):
        raise ValueError("the columns of a batch are equally long")
    entries = numpy.zeros(len(lengths), INDEX_DTYPE)
    entries["len"] = lengths
    entries["ts"] = times
    entries["flags_check"] = flags
    return entries.tobytes(), sum(lengths)
