"""Batches of a partition as they lie in files: which of them, their bytes, and whether they are
sound."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

import numpy

from headwater.core.errors import DamageError, FormatError, StorageError
from headwater.core.units import KIB, MIB, US_PER_MS
from headwater.disk import Disk, read_range
from headwater.format.kafka.batch import BatchError, BatchHeader, read_header, read_sound
from headwater.format.kafka.entry import HOLE_SEGMENT, PREFIX_BYTES
from headwater.format.kafka.names import log_name
from headwater.format.kafka.records import decode_records
from headwater.recovery.kafka.view import OwnedBatches

ADVICE: Final = "see `headwater verify`; failOnDataLoss=false reads around it and reports it"
_HOLE_BYTES_MAX: Final = 64 * KIB
"""Bytes of others that are read along between two batches, to save a read."""
_SPAN_BYTES_MAX: Final = 4 * MIB


class StoredBatch(NamedTuple):
    first_seq: int
    last_seq: int
    path: PurePath
    offset: int
    """Where its length prefix stands in the log."""
    bytes: memoryview
    """The prefix and the batch; fewer when the file ends before."""

    def sound(self, *, verify: bool) -> tuple[BatchHeader, memoryview]:
        """The batch, checked against its CRC. DamageError says where it is not what it was."""
        batch = self.bytes[PREFIX_BYTES:]
        try:
            header = read_sound(batch) if verify else read_header(batch)
        except FormatError as error:
            raise self.damage(error.reason) from error
        stands = int.from_bytes(self.bytes[:PREFIX_BYTES], "little") == len(batch)
        if not stands or header.record_count != self.last_seq - self.first_seq + 1:
            raise self.damage("the batch is not the one its entries point at")
        return header, batch

    def damage(self, reason: str) -> DamageError:
        what = f"seqs {self.first_seq} to {self.last_seq}: {reason}"
        return DamageError(what, path=self.path, offset=self.offset, advice=ADVICE)

    def unreadable(self, error: BatchError) -> StorageError:
        """Sound, and nevertheless without records that can be read: its producer's doing."""
        what = (
            f"seqs {self.first_seq} to {self.last_seq}: a sound batch without readable records "
            f"({error.reason})"
        )
        return StorageError(what, path=self.path, offset=self.offset, advice=ADVICE)


def between(batches: OwnedBatches, first_seq: int, last_seq: int) -> OwnedBatches:
    """Those that hold one of these seqs."""
    low = int(numpy.searchsorted(batches.offsets + batches.counts, first_seq, "left"))
    high = int(numpy.searchsorted(batches.offsets, last_seq, "left"))
    return OwnedBatches(*(column[low:high] for column in batches))


def stored_batches(disk: Disk, directory: PurePath, batches: OwnedBatches) -> Iterator[StoredBatch]:
    """Their bytes, neighbours in one read. FileNotFoundError when a log is gone by now."""
    entries = batches.entries
    if not len(entries):
        return
    begins = entries["physical_offset"].astype(numpy.int64)
    ends = begins + PREFIX_BYTES + entries["length"]
    apart = numpy.diff(entries["segment_id"].astype(numpy.int64)) != 0
    apart |= (begins[1:] < ends[:-1]) | (begins[1:] - ends[:-1] > _HOLE_BYTES_MAX)
    borders = [0, *(numpy.flatnonzero(apart) + 1).tolist(), len(entries)]
    numbers, offsets = entries["segment_id"].tolist(), batches.offsets.tolist()
    counts, starts, stops = batches.counts.tolist(), begins.tolist(), ends.tolist()
    for low, high in itertools.pairwise(borders):
        at = low
        while at < high:
            upto = at + 1
            while upto < high and stops[upto] - starts[at] <= _SPAN_BYTES_MAX:
                upto += 1
            path = directory / log_name(numbers[at])
            base = starts[at]
            span = memoryview(b"")  # a hole has no bytes, which is reported as damage
            if numbers[at] != HOLE_SEGMENT:
                span = memoryview(read_range(disk, path, base, stops[upto - 1] - base))
            for each in range(at, upto):
                first, last = offsets[each] + 1, offsets[each] + counts[each]
                part = span[starts[each] - base : stops[each] - base]
                yield StoredBatch(first, last, path, starts[each], part)
            at = upto


def first_not_older(
    disk: Disk,
    directory: PurePath,
    batches: OwnedBatches,
    first_seq: int,
    ts_us: int,
    *,
    tolerant: bool = False,
) -> int | None:
    """The first seq from `first_seq` on whose record is not older; None when all are.

    A batch whose header says that all are is not opened, as a server does not open it. With
    `tolerant` a batch that cannot be read may be the one sought, unless older records come
    behind it: the first of such batches is the answer, and reading on from it reports the loss.
    """
    doubtful: int | None = None
    for stored in stored_batches(disk, directory, batches):
        try:
            seq = _seq_in(stored, first_seq, ts_us)
        except StorageError:
            if not tolerant:
                raise
            if doubtful is None:
                doubtful = max(stored.first_seq, first_seq)
            continue
        if seq is not None:
            return seq if doubtful is None else doubtful
        doubtful = None
    return doubtful


def _seq_in(stored: StoredBatch, first_seq: int, ts_us: int) -> int | None:
    header, batch = stored.sound(verify=True)
    if header.max_timestamp * US_PER_MS < ts_us:
        return None
    try:
        records = decode_records(batch)
    except BatchError as error:
        raise stored.unreadable(error) from error
    for seq, record in enumerate(records, stored.first_seq):
        if seq >= first_seq and max(record.timestamp_ms, 0) * US_PER_MS >= ts_us:
            return seq
    return None
