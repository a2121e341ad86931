"""What the slots of an index say: which of them are alive, and what those hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN, IndexFlag
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
