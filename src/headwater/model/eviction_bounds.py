"""How far an eviction goes: always a prefix, and records that stay are not visited.

Few records are counted one by one, many with numpy, a block at a time.
"""

from __future__ import annotations

from typing import Final

from headwater.core.arrays import numpy
from headwater.model.index import BLOCK_SLOTS, SeqIndex
from headwater.model.slots import DEAD, OVERHEAD

_SCALAR_SLOTS: Final = 4


def first_kept_by_age(index: SeqIndex, cutoff_ms: int) -> int:
    """The first live seq that is not older than the cutoff; `next_seq` when all are.

    Only a prefix expires: a record behind a younger one waits for it, whatever its own time.
    """
    for seq in range(index.base_seq, min(index.base_seq + _SCALAR_SLOTS, index.next_seq)):
        if not index.flags_at(seq) & DEAD and index.ts_at(seq) >= cutoff_ms:
            return seq
    seq = index.base_seq + _SCALAR_SLOTS
    cutoff = numpy.uint64(max(cutoff_ms, 0))
    while seq < index.next_seq:
        end = min(seq + BLOCK_SLOTS, index.next_seq)
        slots = index.peek(seq, end)
        young = numpy.flatnonzero((slots["ts"] >= cutoff) & (slots["flags_check"] & DEAD == 0))
        if len(young):
            return seq + int(young[0])
        seq = end
    return index.next_seq


def first_kept_by_cap(index: SeqIndex, over_records: int, over_bytes: int) -> int:
    """The first seq to keep when this many records and bytes are too many."""
    for seq in range(index.base_seq, min(index.base_seq + _SCALAR_SLOTS, index.next_seq)):
        if over_records <= 0 and over_bytes <= 0:
            return seq
        if not index.flags_at(seq) & DEAD:
            over_records -= 1
            over_bytes -= index.payload_at(seq)
    seq = index.base_seq + _SCALAR_SLOTS
    while (over_records > 0 or over_bytes > 0) and seq < index.next_seq:
        end = min(seq + BLOCK_SLOTS, index.next_seq)
        slots = index.peek(seq, end)
        alive = slots["flags_check"] & DEAD == 0
        records = numpy.cumsum(alive)
        sizes = numpy.cumsum(numpy.where(alive, slots["len"].astype(numpy.int64) - OVERHEAD, 0))
        wanted = 0
        if over_records > 0:
            wanted = int(numpy.searchsorted(records, over_records)) + 1
        if over_bytes > 0:
            wanted = max(wanted, int(numpy.searchsorted(sizes, over_bytes)) + 1)
        if wanted <= len(slots):
            return seq + wanted
        over_records -= int(records[-1])
        over_bytes -= int(sizes[-1])
        seq = end
    return min(seq, index.next_seq)
