"""The rows of one split: entries checked, frames compared with them, columns made of what is live.

Nothing here decides what an error means: a file that is gone or does not fit may have been
changed by its owner, and the caller locates the records again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Protocol

import numpy

from headwater.core.errors import DamageError
from headwater.disk import Disk, map_file
from headwater.format.frame import CHECKSUM_BYTES, FRAME, FRAME_BYTES_MIN, FrameType
from headwater.format.segment import (
    FAULT_MEANING,
    Entries,
    FrameFault,
    IndexFlag,
    frame_faults,
    index_flags,
)
from headwater.format.segment.run import at_each_byte, hash_ranges, heads_at
from headwater.model.loss import Loss
from headwater.spark.source.directory import Directory
from headwater.spark.source.location import (
    LogSplit,
    LostSeqs,
    LostSplit,
    ReadContext,
    SegmentSplit,
    Split,
)
from headwater.store.segment import Segment, SegmentChangedError, SegmentSlice
from headwater.wire.frame_rows import FrameRows, Mask, portions

ADVICE: Final = "see `headwater verify`; failOnDataLoss=false reads around it and reports it"
_DELETED: Final = int(IndexFlag.DELETED)
_LOST: Final = int(IndexFlag.LOST)
_DAMAGED: Final = int(IndexFlag.DAMAGED)
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Rows or a loss, and the last seq that is dealt with by it."""

    what: FrameRows | LostSeqs | None
    upto_seq: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A record that cannot be served, and where it lies."""

    seq: int
    reason: str
    path: PurePath
    offset: int

    def error(self) -> DamageError:
        return DamageError(
            f"seq {self.seq}: {self.reason}", path=self.path, offset=self.offset, advice=ADVICE
        )


class SegmentFiles(Protocol):
    """Where segments are read from: a topic's directory, or its part of a cold tier."""

    @property
    def directory(self) -> PurePath: ...

    def index(self, segment: Segment) -> Entries: ...

    def read(
        self, segment: Segment, first_seq: int, last_seq: int, entries: Entries
    ) -> SegmentSlice: ...


def read_split(
    directory: Directory, topic_id: int, split: Split, context: ReadContext, *, tolerant: bool
) -> Iterator[SplitResult]:
    """`tolerant`: damage is reported as a gap instead of being an error."""
    if isinstance(split, LostSplit):
        yield SplitResult(split.gap, split.last_seq)
    elif isinstance(split, LogSplit):
        yield from read_log_split(directory.disk, split, topic_id, context)
    else:
        files = directory.files_of(topic_id)
        yield from read_segment_split(files, split, context, tolerant=tolerant)


def read_segment_split(
    files: SegmentFiles, split: SegmentSplit, context: ReadContext, *, tolerant: bool
) -> Iterator[SplitResult]:
    segment, first = split.segment, split.first_seq
    start = first - segment.first_seq
    entries = files.index(segment)[start : split.last_seq - segment.first_seq + 1]
    flags = index_flags(entries)
    if flags[0] & (_LOST | _DAMAGED) or (flags & (_LOST | _DAMAGED)).any():
        yield from _with_losses(files, split, entries, context, tolerant=tolerant)
        return
    yield from _stretch(files, split, entries, context, tolerant=tolerant)


def _with_losses(
    files: SegmentFiles,
    split: SegmentSplit,
    entries: Entries,
    context: ReadContext,
    *,
    tolerant: bool,
) -> Iterator[SplitResult]:
    """Stretches of sound entries, and a gap for each run of lost ones between them."""
    flags = index_flags(entries)
    kinds = numpy.where(flags & _DAMAGED, 2, numpy.where(flags & _LOST, 1, 0))
    borders = (numpy.flatnonzero(numpy.diff(kinds)) + 1).tolist()
    for low, high in zip([0, *borders], [*borders, len(entries)], strict=True):
        first, last = split.first_seq + low, split.first_seq + high - 1
        if kinds[low] == 0:
            part = split.part(first, last)
            yield from _stretch(files, part, entries[low:high], context, tolerant=tolerant)
        elif kinds[low] == 1:
            yield SplitResult(LostSeqs(first, last, Loss.LOST_TAIL.word, high - low), last)
        else:
            damage = Damage(first, "neither index nor frame can be read", files.directory, 0)
            yield _damage_result(damage, last, tolerant=tolerant)


def _damage_result(damage: Damage, upto_seq: int, *, tolerant: bool) -> SplitResult:
    if not tolerant:
        raise damage.error()
    reason = f"damaged: {damage.reason} in {damage.path} at byte {damage.offset}"
    # Sound records before it may still be to come, so it settles no seq but in passing.
    return SplitResult(LostSeqs(damage.seq, upto_seq, reason, upto_seq - damage.seq + 1), 0)


def _stretch(
    files: SegmentFiles,
    split: SegmentSplit,
    entries: Entries,
    context: ReadContext,
    *,
    tolerant: bool,
) -> Iterator[SplitResult]:
    """Entries that are live or deleted, in batches."""
    wanted = _wanted(split.first_seq, entries, context)
    if not wanted.any():
        yield SplitResult(None, split.last_seq)
        return
    low, high = int(wanted.argmax()), len(wanted) - int(wanted[::-1].argmax())
    offsets = entries["offset"].astype(numpy.int64)
    sizes = entries["len"].astype(numpy.int64)
    limits = context.batch_rows_max, context.batch_bytes_max
    for part in portions(offsets[low:high], sizes[low:high], *limits):
        some = slice(low + part.start, low + part.stop)
        first, last = split.first_seq + some.start, split.first_seq + some.stop - 1
        slice_ = files.read(split.segment, first, last, entries[some])
        positions = offsets[some] - slice_.base
        faults = frame_faults(
            slice_.buffer, entries[some], first, slice_.base, checksums=context.verify
        )
        chosen = wanted[some]
        if faults.any():
            # Deleted in the data and live in the index: its owner is deleting it.
            chosen = chosen & (faults != FrameFault.DELETED)
            bad = numpy.flatnonzero(chosen & (faults != FrameFault.NONE))
            chosen = chosen & (faults == FrameFault.NONE)
            for position in bad.tolist():
                reason = FAULT_MEANING[FrameFault(int(faults[position]))]
                at = int(entries["offset"][some][position])
                damage = Damage(first + position, reason, slice_.path, at)
                yield _damage_result(damage, first + position, tolerant=tolerant)
        positions = positions if chosen.all() else positions[chosen]
        rows = FrameRows.of_segment(slice_.buffer, positions)
        yield SplitResult(rows if len(rows) else None, last)
    yield SplitResult(None, split.last_seq)


def _wanted(first_seq: int, entries: Entries, context: ReadContext) -> Mask:
    """Live, and not ruled out by its seq or its time."""
    wanted: Mask = index_flags(entries) & _DELETED == 0
    seqs = numpy.arange(first_seq, first_seq + len(entries), dtype=numpy.int64)
    for bounds, numbers in (
        (context.filters.seq, seqs),
        (context.filters.ts_us, entries["ts"].astype(numpy.int64) * 1_000),
    ):
        mask = bounds.mask(numbers)
        if mask is not None:
            wanted &= mask
    return wanted


def read_log_split(
    disk: Disk, split: LogSplit, topic_id: int, context: ReadContext
) -> Iterator[SplitResult]:
    """Records in a file of the log. They never change; the file as a whole may be gone."""
    view = map_file(disk, split.path)
    offsets = split.offsets.astype(numpy.int64)
    seqs = numpy.arange(split.first_seq, split.last_seq + 1, dtype=numpy.uint64)
    if int(offsets[-1]) + FRAME_BYTES_MIN > len(view):
        raise SegmentChangedError(f"{split.path} is not the file it was")
    heads = heads_at(view, FRAME, offsets)
    sizes = heads["frame_len"].astype(numpy.int64) + _LENGTH_BYTES
    lengths = heads["data_len"] + heads["node_len"].astype(numpy.int64) + heads["tag_len"]
    same = (heads["type"] == int(FrameType.APPEND)) & (heads["topic_id"] == topic_id)
    same &= (heads["seq"] == seqs) & (lengths + FRAME_BYTES_MIN == sizes)
    same &= offsets + sizes <= len(view)
    if not same.all():
        raise SegmentChangedError(f"{split.path} is not the file it was")
    if context.verify:
        borders = offsets + sizes - CHECKSUM_BYTES
        computed = hash_ranges(view, offsets + _LENGTH_BYTES, borders)
        wrong = computed != at_each_byte(view, "<u8")[borders]
        if wrong.any():
            position = int(wrong.argmax())
            raise DamageError(
                f"seq {split.first_seq + position}: checksum does not match",
                path=split.path,
                offset=int(offsets[position]),
                advice="see `headwater wal verify`",
            )
    for part in portions(offsets, sizes, context.batch_rows_max, context.batch_bytes_max):
        some = offsets[part]
        begin = int(some[0])
        end = int(some[-1]) + int(sizes[part][-1])
        rows = FrameRows.of_log(view[begin:end], some - begin)
        yield SplitResult(rows, split.first_seq + part.stop - 1)
