"""Which segments may go, be rewritten or move: rules over numbers, no files.

Reclaiming changes when space comes back, never what a reader sees.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.config.store import SegmentSettings
from headwater.core.arrays import numpy
from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN, Entries, IndexFlag, index_flags
from headwater.store.segment import Segment


def choose_drops(segments: Sequence[Segment], earliest_seq: int) -> list[Segment]:
    """Sealed segments that end below the earliest live seq. Never the active one."""
    return [segment for segment in segments if segment.sealed and segment.end_seq < earliest_seq]


def choose_relocations(segments: Sequence[Segment], settings: SegmentSettings) -> list[Segment]:
    """Sealed hot segments beyond what may stay hot, oldest first; the stricter bound wins."""
    newest_first = sorted(
        (segment for segment in segments if segment.sealed and not segment.is_cold),
        key=lambda segment: -segment.first_seq,
    )
    moving: list[Segment] = []
    kept_bytes = 0
    for position, segment in enumerate(newest_first):
        kept_bytes += segment.data_bytes
        too_many = position >= settings.hot_retain_segments
        too_large = 0 < settings.hot_retain_bytes < kept_bytes
        if too_many or too_large:
            moving = newest_first[position:]
            break
    return moving[::-1]


def may_relocate(hot_bytes: Sequence[int], settings: SegmentSettings) -> bool:
    """Whether these sizes of hot segments are more than may stay, as far as sizes show."""
    too_many = len(hot_bytes) > settings.hot_retain_segments
    return too_many or 0 < settings.hot_retain_bytes < sum(hot_bytes)


def dead_bytes(entries: Entries) -> int:
    """What rewriting would give back: dead records less the empty frames they leave behind."""
    is_dead = (index_flags(entries) & IndexFlag.DELETED) != 0
    lengths = entries["len"][is_dead].astype(numpy.int64)
    return int((lengths - SEGMENT_FRAME_BYTES_MIN).sum())


def is_rewrite_due(segment: Segment, entries: Entries, settings: SegmentSettings) -> bool:
    """True when enough of a sealed segment is dead that its live records are worth copying."""
    if not segment.sealed or not settings.rewrite_dead_ratio:
        return False
    dead = dead_bytes(entries)
    return dead > 0 and dead >= segment.data_bytes * settings.rewrite_dead_ratio
