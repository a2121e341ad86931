"""Caps and ages: what an owner would not show any more, worked out from index entries alone.

An owner writes its floors down about once a second, and a stopped one not at all, while records go
on growing older. So a reader of the files applies caps and ages first, as an owner does. Only
topics that have a cap or an age cost anything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from headwater.config.topic import Discard, TopicSettings
from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN, Entries, IndexFlag, index_flags
from headwater.model.loss import Loss
from headwater.spark.source.log_view import TopicLogView

_DEAD = int(IndexFlag.DELETED)


@dataclass(frozen=True, slots=True)
class Slots:
    """Index entries of neighbouring seqs, and which of them are deleted beyond what they say."""

    first_seq: int
    entries: Entries
    deleted: NDArray[numpy.bool_] | None = None

    def live(self) -> NDArray[numpy.int64]:
        """Positions of live records."""
        alive = index_flags(self.entries) & _DEAD == 0
        if self.deleted is not None:
            alive &= ~self.deleted
        return numpy.flatnonzero(alive)


@dataclass(frozen=True, slots=True)
class Evicted:
    """A prefix that is gone: the first seq that was not lost, the first that is kept, and why."""

    evict_floor: int
    first_seq: int
    reason: Loss


def has_retention(settings: TopicSettings) -> bool:
    return bool(settings.ttl_ms) or _has_caps(settings)


def _has_caps(settings: TopicSettings) -> bool:
    caps = settings.cap_records or settings.cap_bytes
    return bool(caps) and settings.discard is Discard.OLD


def evicted(topic: TopicLogView, slots: Iterable[Slots], now_ms: int) -> Evicted | None:
    """What caps and age take of these slots, which are all of the topic's, in order."""
    settings = topic.settings
    live = _live(slots)
    by_age: Evicted | None = None
    first_kept: tuple[Slots, int] | None = None
    if settings.ttl_ms:
        by_age, first_kept = _by_age(live, topic.head_seq + 1, now_ms - settings.ttl_ms)
    if _has_caps(settings):
        by_cap = _by_cap(live, first_kept, topic.head_seq + 1, settings)
        if by_cap is not None:
            reason = by_cap.reason if by_age is None else by_cap.reason | by_age.reason
            return Evicted(by_cap.evict_floor, by_cap.first_seq, reason)
    return by_age


def _live(slots: Iterable[Slots]) -> Iterator[tuple[Slots, NDArray[numpy.int64]]]:
    for some in slots:
        positions = some.live()
        if len(positions):
            yield some, positions


def _by_age(
    live: Iterator[tuple[Slots, NDArray[numpy.int64]]], end_seq: int, cutoff_ms: int
) -> tuple[Evicted | None, tuple[Slots, int] | None]:
    """Only a prefix expires: a record behind a younger one waits for it, whatever its own time."""
    last_old = 0
    cutoff = numpy.uint64(max(cutoff_ms, 0))
    for some, positions in live:
        young = positions[some.entries["ts"][positions] >= cutoff]
        if not len(young):
            last_old = some.first_seq + int(positions[-1])
            continue
        kept = int(young[0])
        older = positions[positions < kept]
        if len(older):
            last_old = some.first_seq + int(older[-1])
        gone = Evicted(last_old + 1, some.first_seq + kept, Loss.TTL) if last_old else None
        return gone, (some, kept)
    return (Evicted(last_old + 1, end_seq, Loss.TTL) if last_old else None), None


def _by_cap(
    live: Iterator[tuple[Slots, NDArray[numpy.int64]]],
    first_kept: tuple[Slots, int] | None,
    end_seq: int,
    settings: TopicSettings,
) -> Evicted | None:
    seqs: list[NDArray[numpy.int64]] = []
    sizes: list[NDArray[numpy.int64]] = []
    if first_kept is not None:
        some, kept = first_kept
        positions = some.live()
        _note(some, positions[positions >= kept], seqs, sizes)
    for some, positions in live:
        _note(some, positions, seqs, sizes)
    if not seqs:
        return None
    every, payloads = numpy.concatenate(seqs), numpy.concatenate(sizes)
    over = max(len(every) - settings.cap_records, 0) if settings.cap_records else 0
    if settings.cap_bytes:
        total = numpy.cumsum(payloads)
        too_many = int(total[-1]) - settings.cap_bytes
        if too_many > 0:
            over = max(over, int(numpy.searchsorted(total, too_many)) + 1)
    if not over:
        return None
    first = int(every[over]) if over < len(every) else end_seq
    return Evicted(int(every[over - 1]) + 1, first, Loss.CAP)


def _note(
    some: Slots,
    positions: NDArray[numpy.int64],
    seqs: list[NDArray[numpy.int64]],
    sizes: list[NDArray[numpy.int64]],
) -> None:
    seqs.append(positions + some.first_seq)
    sizes.append(some.entries["len"][positions].astype(numpy.int64) - SEGMENT_FRAME_BYTES_MIN)
