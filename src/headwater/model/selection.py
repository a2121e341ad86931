"""What a reader with a cursor gets: one pass over the slots behind it.

The cursor is the last seq the reader has seen. A pass skips what is deleted, stops before what was
lost or is damaged, and never scans more than a fixed number of slots; the cursor moves on in any
case, so a reader that follows it sees every live record once and every loss as a tombstone (I9).
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.core.limits import (
    READ_BYTES_DEFAULT,
    READ_RECORDS_CLAMP,
    READ_RECORDS_DEFAULT,
    READ_SLOTS_MAX,
)
from headwater.core.results import Tombstone
from headwater.model.index import SeqIndex, Seqs, no_seqs
from headwater.model.loss import DAMAGED, RECREATED, Eviction
from headwater.model.slots import DEAD, LOST, OVERHEAD
from headwater.model.topic import TopicLog
from headwater.native import compiled

_native: Final = compiled("entries")


class Selection(NamedTuple):
    seqs: Seqs
    """Live records to read, ascending."""
    next_from_seq: int
    """The cursor after this answer."""
    caught_up: bool
    tombstone: Tombstone | None
    records_scanned: int
    eviction: Eviction | None = None
    """What expired on the way: floors to write down."""


def tombstone_for(log: TopicLog, from_seq: int) -> Tombstone | None:
    """What a reader at this cursor has lost, apart from losses in the middle of the log."""
    earliest = log.earliest_seq
    if from_seq > log.head_seq:
        gone = earliest - 1
        return Tombstone(1, gone, RECREATED, gone, earliest, log.visible_seq)
    if from_seq + 1 < log.evict_floor:
        return Tombstone(
            from_seq + 1,
            earliest - 1,
            log.losses_above(from_seq + 1).word,
            log.evict_floor - from_seq - 1,
            earliest,
            log.visible_seq,
        )
    return None


def select(
    log: TopicLog,
    from_seq: int,
    limit: int = READ_RECORDS_DEFAULT,
    bytes_max: int = READ_BYTES_DEFAULT,
    now_ms: int | None = None,
    slots_max: int = READ_SLOTS_MAX,
) -> Selection:
    """The next records after `from_seq`: at most `limit`, and at most `bytes_max` but at least one.

    With `now_ms`, what is too old by now is evicted first, so that expiry is seen at once.
    """
    eviction = None
    if now_ms is not None and log.settings.ttl_ms:
        eviction = log.evict(now_ms)
    tombstone = tombstone_for(log, from_seq)
    earliest = log.earliest_seq
    start = earliest if tombstone is not None else max(from_seq + 1, earliest)
    end = log.visible_seq + 1
    if start >= end:
        cursor = max(start - 1, from_seq) if tombstone is None else start - 1
        return Selection(no_seqs(), cursor, True, tombstone, 0, eviction)
    index = log.index
    stop = min(start + slots_max, end)
    if index.lost_count or log.damaged:
        gap = _first_gap(log, start, stop)
        if gap is not None:
            if tombstone is None and index.first_live(start) >= gap.first:
                tombstone = _in_the_middle(log, gap)
                start = gap.after
                stop = min(start + slots_max, end)
                gap = _first_gap(log, start, stop)
            if gap is not None:
                stop = min(stop, gap.first)
    seqs, cursor = _pick(index, start, stop, limit, bytes_max)
    return Selection(seqs, cursor, cursor >= end - 1, tombstone, cursor + 1 - start, eviction)


class _TombstoneRun(NamedTuple):
    """A run of seqs that becomes a tombstone: the first of it, and the first behind it."""

    first: int
    after: int
    reason: str


def _in_the_middle(log: TopicLog, gap: _TombstoneRun) -> Tombstone:
    missed = gap.after - gap.first
    return Tombstone(
        gap.first, gap.after - 1, gap.reason, missed, log.earliest_seq, log.visible_seq
    )


def _first_gap(log: TopicLog, start: int, stop: int) -> _TombstoneRun | None:
    """The first run that was lost, or is damaged, and begins in [start, stop). They do not overlap:
    what is lost is dead, and what is damaged is not."""
    gaps: list[_TombstoneRun] = []
    if log.index.lost_count and (lost := _first_lost_run(log.index, start, stop)) is not None:
        gaps.append(_TombstoneRun(*lost, log.lost_as.word))
    if log.damaged and (damaged := log.damaged.first_run(log.index, start, stop)) is not None:
        gaps.append(_TombstoneRun(*damaged, DAMAGED))
    return min(gaps, default=None)


def _first_lost_run(index: SeqIndex, start: int, stop: int) -> tuple[int, int] | None:
    """The first lost seq in [start, stop) and the first behind its run that is not lost."""
    lost = index.flags(start, stop) & LOST != 0
    if not lost.any():
        return None
    first = start + int(lost.argmax())
    at, step = first, 256
    while at < index.next_seq:
        kept = index.flags(at, min(at + step, index.next_seq)) & LOST == 0
        if kept.any():
            return first, at + int(kept.argmax())
        at, step = at + len(kept), step * 4
    return first, index.next_seq


def _pick(index: SeqIndex, start: int, stop: int, limit: int, bytes_max: int) -> tuple[Seqs, int]:
    """Live seqs of [start, stop) within the limits, and the last seq that was scanned."""
    if _native is not None:
        picked = numpy.empty(min(limit, stop - start), numpy.int64)
        slots = index.peek(start, stop)
        count, last = _native.pick_live(slots, start, bytes_max, DEAD, OVERHEAD, picked)
        return picked[:count], last
    dense = index.live_count == len(index)
    parts: list[Seqs] = []
    at, wanted, room = start, limit, bytes_max
    while at < stop:
        # It scans slots in growing steps: mostly the first one is enough.
        end = min(at + (wanted if dense else max(wanted, at - start) * 2), stop)
        seqs, payloads = _alive(index, at, end, wanted, dense=dense)
        if len(seqs):
            fits = len(seqs)
            if payloads[-1] > room:
                fits = int(payloads.searchsorted(room, "right"))
                if not fits and not parts:
                    fits = 1
            parts.append(seqs[:fits])
            if fits < len(seqs):
                return _joined(parts), int(seqs[fits]) - 1
            if fits == wanted:
                return _joined(parts), int(seqs[-1])
            wanted -= fits
            room -= int(payloads[-1])
        at = end
    return _joined(parts), stop - 1


def _alive(
    index: SeqIndex, start: int, end: int, wanted: int, *, dense: bool
) -> tuple[Seqs, NDArray[numpy.int64]]:
    """The first live seqs of [start, end), and their payload bytes summed up."""
    slots = index.peek(start, end)
    lengths = slots["len"]
    if dense:
        seqs = numpy.arange(start, end, dtype=numpy.int64)
    else:
        alive = numpy.flatnonzero(slots["flags_check"] & DEAD == 0)[:wanted]
        lengths = lengths[alive]
        seqs = alive + start
    payloads = lengths.cumsum(dtype=numpy.int64)
    payloads -= _overheads(len(payloads))
    return seqs, payloads


def _overheads(count: int) -> NDArray[numpy.int64]:
    """1, 2, 3, ... times what an entry's length has beside the payload."""
    if count <= READ_RECORDS_CLAMP:
        return _overheads_of_most()[:count]
    return numpy.arange(1, count + 1, dtype=numpy.int64) * OVERHEAD


@cache
def _overheads_of_most() -> NDArray[numpy.int64]:
    return numpy.arange(1, READ_RECORDS_CLAMP + 1, dtype=numpy.int64) * OVERHEAD


def _joined(parts: list[Seqs]) -> Seqs:
    if len(parts) == 1:
        return parts[0]
    return numpy.concatenate(parts) if parts else no_seqs()
