"""The live index of a topic: for each seq where its record is, how long, how old, and whether dead.

The memory is the `.idx` layout itself, 20 bytes a seq in one growable buffer; the position of a
seq is computed. Appending writes packed bytes, everything about many records goes through
numpy. A bytearray serves well: it grows by an eighth, and what is cut off its front costs nothing
until half of it is gone. It cannot grow while there is a view of it, so `entries` and `take` give
copies and the view used inside is let go before each change.

Sums of live records are kept for each full block of 4096 seqs, so that forgetting a prefix of
millions costs about as much as forgetting ten.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import InvariantError
from headwater.format.segment import ENTRY_BYTES, INDEX_ENTRY, Entries, pack_entries
from headwater.model.slots import (
    DEAD,
    IN_WAL,
    LOST,
    OVERHEAD,
    Live,
    all_alive,
    as_run,
    first_alive,
    kill_run,
    sum_live,
)

Seqs: TypeAlias = "NDArray[numpy.int64]"

BLOCK_BITS: Final = 12
BLOCK_SLOTS: Final = 1 << BLOCK_BITS
_BLOCK_MASK: Final = BLOCK_SLOTS - 1

_PACK: Final = struct.Struct("<IIQI")
_FLAGS_AT: Final = INDEX_ENTRY.offset_of("flags_check")
_LEN_AT: Final = INDEX_ENTRY.offset_of("len")
_TS_AT: Final = INDEX_ENTRY.offset_of("ts")
_LEN: Final = struct.Struct("<I")
_TS: Final = struct.Struct("<Q")
_FLAGS_MASK: Final = 0xFF
_SCALAR_SLOTS: Final = 8
"""Slots checked one by one before numpy is used; it is slow to start."""
_SLACK_BYTES_MIN: Final = 4096
"""Free room that is not worth a copy."""


@cache
def no_seqs() -> Seqs:
    """None at all."""
    return numpy.empty(0, numpy.int64)


class SeqIndex:
    """Slots for the seqs from `base_seq` up to, not including, `next_seq`."""

    __slots__ = (
        "_block_bytes",
        "_block_counts",
        "_buffer",
        "_dead_upto",
        "_view",
        "base_seq",
        "live_bytes",
        "live_count",
        "lost_count",
        "next_seq",
    )

    def __init__(self, base_seq: int = 1) -> None:
        self.base_seq = base_seq
        self.next_seq = base_seq
        self.live_count = 0
        self.live_bytes = 0
        self.lost_count = 0
        self._buffer = bytearray()
        self._dead_upto = 0
        """No slot behind this seq is dead, which saves a scan of the newest."""
        self._view: Any = None
        # One sum for each block that is full, beginning with the block of base_seq.
        self._block_counts: list[int] | None = None
        self._block_bytes: list[int] | None = None

    def __len__(self) -> int:
        return self.next_seq - self.base_seq

    @property
    def memory_bytes(self) -> int:
        """What the index really occupies, slack included."""
        sums = 0 if self._block_counts is None else 2 * sys.getsizeof(self._block_counts)
        return sys.getsizeof(self._buffer) + sums

    # -- growing

    def append_one(self, length: int, ts: int, flags: int) -> None:
        """One live record at `next_seq`."""
        self._view = None
        entry = _PACK.pack(0, length, ts, flags)
        try:
            self._buffer += entry
        except BufferError:
            self._extend(entry)
        self.live_count += 1
        self.live_bytes += length - OVERHEAD
        self.next_seq = seq = self.next_seq + 1
        if not seq & _BLOCK_MASK:
            self._close_blocks()

    def append_many(
        self, lengths: Sequence[int], ts: int | Sequence[int], flags: Sequence[int]
    ) -> None:
        """Live records, of one moment or with a time each, beginning at `next_seq`."""
        count = len(lengths)
        self._extend(pack_entries(lengths, ts, flags))
        self._grow(count, Live(count, sum(lengths) - OVERHEAD * count))

    def append_dead(self, count: int, ts: int, *, lost: bool = False) -> None:
        """Slots for seqs that have no record: deleted, or given out and lost."""
        entries = numpy.zeros(count, INDEX_ENTRY.dtype)
        entries["len"] = OVERHEAD
        entries["ts"] = ts
        entries["flags_check"] = DEAD | LOST if lost else DEAD
        self.append_entries(entries)

    def append_entries(self, entries: Entries) -> None:
        """Entries as they are in an `.idx`, checked before; their check values are not kept."""
        count = len(entries)
        if not count:
            return
        kept = entries.copy()
        kept["flags_check"] &= _FLAGS_MASK
        self._extend(kept.view(numpy.uint8).data)
        live = sum_live(kept)
        if live.records < count:
            self.lost_count += int(numpy.count_nonzero(kept["flags_check"] & LOST))
            self._dead_upto = self.next_seq + count - 1
        self._grow(count, live)

    def _grow(self, count: int, live: Live) -> None:
        self.live_count += live.records
        self.live_bytes += live.bytes
        before = self.next_seq
        self.next_seq += count
        if self.next_seq >> BLOCK_BITS > before >> BLOCK_BITS:
            self._close_blocks()

    def _extend(self, packed: bytes | memoryview) -> None:
        self._view = None
        try:
            self._buffer += packed
        except BufferError:
            # There is still a view of the old bytes; leave them, and go on with a copy.
            self._buffer = bytearray(self._buffer)
            self._buffer += packed

    def _close_blocks(self) -> None:
        """Sum up every block that became full."""
        if self._block_counts is None or self._block_bytes is None:
            self._block_counts, self._block_bytes = [], []
        block = (self.base_seq >> BLOCK_BITS) + len(self._block_counts)
        while (block + 1) << BLOCK_BITS <= self.next_seq:
            first = max(block << BLOCK_BITS, self.base_seq)
            live = sum_live(self.peek(first, (block + 1) << BLOCK_BITS))
            self._block_counts.append(live.records)
            self._block_bytes.append(live.bytes)
            block += 1

    # -- reading

    def peek(self, first_seq: int, end_seq: int) -> Any:
        """A view of the entries of [first_seq, end_seq). Let it go before the index changes."""
        view = self._view
        if view is None:
            self._view = view = numpy.frombuffer(self._buffer, INDEX_ENTRY.dtype)
        return view[first_seq - self.base_seq : end_seq - self.base_seq]

    def entries(self, first_seq: int, last_seq: int) -> Entries:
        """A copy of the entries of these seqs, both ends included."""
        low, high = first_seq - self.base_seq, last_seq + 1 - self.base_seq
        # As plain bytes: numpy copies a record field by field, which takes ten times as long.
        return numpy.frombuffer(
            self._buffer[low * ENTRY_BYTES : high * ENTRY_BYTES], INDEX_ENTRY.dtype
        )

    def take(self, seqs: Seqs) -> Entries:
        """A copy of the entries of these seqs, which must be in the index."""
        return self._copy(self.peek(self.base_seq, self.next_seq)[seqs - self.base_seq])

    @staticmethod
    def _copy(entries: Any) -> Entries:
        copied: Entries = entries.copy()
        return copied

    def flags(self, first_seq: int, end_seq: int) -> NDArray[numpy.uint32]:
        """A copy of the flags of [first_seq, end_seq)."""
        flags: NDArray[numpy.uint32] = self.peek(first_seq, end_seq)["flags_check"] & _FLAGS_MASK
        return flags

    def alive(self, first_seq: int, end_seq: int) -> NDArray[numpy.bool_]:
        """Which of [first_seq, end_seq) have a record that is alive."""
        alive: NDArray[numpy.bool_] = self.peek(first_seq, end_seq)["flags_check"] & DEAD == 0
        return alive

    def flags_at(self, seq: int) -> int:
        return self._buffer[(seq - self.base_seq) * ENTRY_BYTES + _FLAGS_AT]

    def payload_at(self, seq: int) -> int:
        at = (seq - self.base_seq) * ENTRY_BYTES + _LEN_AT
        return int(_LEN.unpack_from(self._buffer, at)[0]) - OVERHEAD

    def ts_at(self, seq: int) -> int:
        return int(_TS.unpack_from(self._buffer, (seq - self.base_seq) * ENTRY_BYTES + _TS_AT)[0])

    def is_live(self, seq: int) -> bool:
        return self.base_seq <= seq < self.next_seq and not self.flags_at(seq) & DEAD

    def all_live(self, first_seq: int, end_seq: int) -> bool:
        """Every seq of [first_seq, end_seq) has a record that is alive."""
        if not self.base_seq <= first_seq < end_seq <= self.next_seq:
            return False
        if first_seq > self._dead_upto:
            return True
        return all_alive(self._buffer, first_seq - self.base_seq, end_seq - self.base_seq)

    def first_live(self, from_seq: int) -> int:
        """The first live seq at or after `from_seq`; `next_seq` when there is none."""
        base = self.base_seq
        start = max(from_seq, base)
        while start < self.next_seq:
            end = min((start | _BLOCK_MASK) + 1, self.next_seq)
            if self._may_live(start):
                seq = base + first_alive(self._buffer, start - base, end - base)
                if seq < end:
                    return seq
            start = end
        return self.next_seq

    def last_live(self, before_seq: int) -> int:
        """The last live seq below `before_seq`; `base_seq` - 1 when there is none."""
        end = before_seq
        for seq in range(end - 1, max(end - 1 - _SCALAR_SLOTS, self.base_seq - 1), -1):
            if not self.flags_at(seq) & DEAD:
                return seq
        end -= _SCALAR_SLOTS
        while end > self.base_seq:
            start = max(end - 1 & ~_BLOCK_MASK, self.base_seq)
            if self._may_live(start):
                live = numpy.flatnonzero(self.peek(start, end)["flags_check"] & DEAD == 0)
                if len(live):
                    return start + int(live[-1])
            end = start
        return self.base_seq - 1

    def _may_live(self, seq: int) -> bool:
        """False when the sums already say that nothing in the block of this seq is alive."""
        block = (seq >> BLOCK_BITS) - (self.base_seq >> BLOCK_BITS)
        counts = self._block_counts
        return counts is None or block >= len(counts) or counts[block] > 0

    def live_between(self, first_seq: int, end_seq: int) -> Live:
        """Live records in [first_seq, end_seq), by whole blocks where there are any."""
        if first_seq <= self.base_seq and end_seq >= self.next_seq:
            return Live(self.live_count, self.live_bytes)
        counts, sums = self._block_counts, self._block_bytes
        front = self.base_seq >> BLOCK_BITS
        low = -(-first_seq >> BLOCK_BITS) if first_seq > self.base_seq else front
        high = min(end_seq >> BLOCK_BITS, front + len(counts or ()))
        if counts is None or sums is None or high <= low:
            return sum_live(self.peek(first_seq, end_seq))
        before = sum_live(self.peek(first_seq, max(low << BLOCK_BITS, first_seq)))
        after = sum_live(self.peek(high << BLOCK_BITS, end_seq))
        return Live(
            before.records + sum(counts[low - front : high - front]) + after.records,
            before.bytes + sum(sums[low - front : high - front]) + after.bytes,
        )

    # -- changing

    def set_offsets(self, first_seq: int, offsets: NDArray[Any]) -> None:
        """The records are in a segment now, at these offsets. Slots dropped since are skipped."""
        skipped = max(self.base_seq - first_seq, 0)
        if skipped >= len(offsets):
            return
        slots = self.peek(first_seq + skipped, first_seq + len(offsets))
        slots["offset"] = offsets[skipped:]
        slots["flags_check"] &= ~numpy.uint32(IN_WAL)

    def set_entries(self, first_seq: int, entries: Entries) -> None:
        """A segment was rewritten: new offsets for all of its records; dead frames are short and
        say nothing but that."""
        self.set_offsets(first_seq, entries["offset"])
        skipped = max(self.base_seq - first_seq, 0)
        if skipped < len(entries):
            slots = self.peek(first_seq + skipped, first_seq + len(entries))
            dead = slots["flags_check"] & DEAD != 0
            slots["len"][dead] = entries["len"][skipped:][dead]
            gone = entries["flags_check"][skipped:] & DEAD != 0
            slots["flags_check"][gone] &= numpy.uint32(DEAD | LOST)

    def mark_deleted(self, seqs: Sequence[int] | Seqs) -> Seqs:
        """Mark these records dead; gives those that were alive until now, which is what counts."""
        run = as_run(seqs) if isinstance(seqs, list) else None
        if run is not None and self._mark_run(run.start, run.stop):
            return numpy.arange(run.start, run.stop)
        seqs = numpy.asarray(seqs, numpy.int64)
        inside = seqs[(seqs >= self.base_seq) & (seqs < self.next_seq)]
        slots = self.peek(self.base_seq, self.next_seq)
        at = inside - self.base_seq
        flags = slots["flags_check"][at]
        alive = flags & DEAD == 0
        newly: Seqs = inside[alive]
        at = at[alive]
        if not len(newly):
            return newly
        payloads = slots["len"][at].astype(numpy.int64) - OVERHEAD
        slots["flags_check"][at] = flags[alive] | numpy.uint32(DEAD)
        self._dead_upto = max(self._dead_upto, int(newly.max()))
        self.live_count -= len(newly)
        self.live_bytes -= int(payloads.sum())
        blocks = newly >> BLOCK_BITS
        lowest = int(blocks.min())
        gone, freed = numpy.bincount(blocks - lowest), numpy.bincount(blocks - lowest, payloads)
        for block in numpy.flatnonzero(gone).tolist():
            self._subtract(lowest + block, int(gone[block]), int(freed[block]))
        return newly

    def _mark_run(self, first_seq: int, end_seq: int) -> bool:
        """The same for live neighbours in one block, as most acks are: a slice of slots, and none
        picked. False, and nothing is done, when they are not."""
        block = first_seq >> BLOCK_BITS
        inside = self.base_seq <= first_seq < end_seq <= self.next_seq
        if not inside or block != end_seq - 1 >> BLOCK_BITS:
            return False
        size = kill_run(self._buffer, first_seq - self.base_seq, end_seq - self.base_seq)
        if size < 0:
            return False
        count = end_seq - first_seq
        payload_bytes = size - OVERHEAD * count
        self._dead_upto = max(self._dead_upto, end_seq - 1)
        self.live_count -= count
        self.live_bytes -= payload_bytes
        self._subtract(block, count, payload_bytes)
        return True

    def _subtract(self, block: int, records: int, payload_bytes: int) -> None:
        """Take records out of the sums of their block, if it has any."""
        counts, sums = self._block_counts, self._block_bytes
        block -= self.base_seq >> BLOCK_BITS
        if counts is not None and sums is not None and block < len(counts):
            counts[block] -= records
            sums[block] -= payload_bytes

    def last_lost(self, end_seq: int) -> int:
        """The last lost seq below `end_seq`, 0 when there is none."""
        if not self.lost_count:
            return 0
        lost = numpy.flatnonzero(self.peek(self.base_seq, end_seq)["flags_check"] & LOST)
        return self.base_seq + int(lost[-1]) if len(lost) else 0

    def drop_before(self, seq: int, *, nothing_lives: bool = False) -> Live:
        """Forget every slot below `seq`; gives what of it was alive, unless that is known."""
        if not self.base_seq < seq <= self.next_seq:
            if seq > self.next_seq:
                raise InvariantError(f"slots up to {seq} of {self.next_seq} cannot be dropped")
            return Live(0, 0)
        if nothing_lives:
            live = Live(0, 0)
        elif seq == self.base_seq + 1:
            dead = self.flags_at(self.base_seq) & DEAD
            live = Live(0, 0) if dead else Live(1, self.payload_at(self.base_seq))
        else:
            live = self.live_between(self.base_seq, seq)
        if self.lost_count:
            dropped = self.peek(self.base_seq, seq)["flags_check"]
            self.lost_count -= int(numpy.count_nonzero(dropped & LOST))
            del dropped
        self.live_count -= live.records
        self.live_bytes -= live.bytes
        self._drop_blocks(seq, live)
        self._view = None
        self._cut_front((seq - self.base_seq) * ENTRY_BYTES)
        self.base_seq = seq
        return live

    def _drop_blocks(self, seq: int, dropped: Live) -> None:
        counts, sums = self._block_counts, self._block_bytes
        if not counts or not sums:
            return
        whole = min((seq >> BLOCK_BITS) - (self.base_seq >> BLOCK_BITS), len(counts))
        if seq & _BLOCK_MASK and whole < len(counts):
            alone = not whole or not dropped.records
            part = dropped if alone else sum_live(self.peek(seq & ~_BLOCK_MASK, seq))
            counts[whole] -= part.records
            sums[whole] -= part.bytes
        if whole:
            del counts[:whole], sums[:whole]

    def _cut_front(self, size: int) -> None:
        try:
            del self._buffer[:size]
        except BufferError:
            self._buffer = self._buffer[size:]
        # The room in front is given back once it is more than a sixth of what remains.
        used = len(self._buffer)
        if self._buffer.__alloc__() - used > max(used // 6, _SLACK_BYTES_MIN):
            self._buffer = bytearray(self._buffer)
