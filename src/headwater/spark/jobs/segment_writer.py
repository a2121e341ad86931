"""Writing one segment from where its bytes lie: the last step of a checkpoint in bulk.

Bytes are made by the engine's own `encode_run`, written under a temporary name, synced and renamed,
the index last. Names are made durable for all segments together, before the snapshot that makes
them count; until then every run compares what is there, byte for byte, and writes the rest. So a
task that is killed, or run twice, does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import numpy

from headwater.config.store import SegmentSettings
from headwater.core.errors import DamageError, FormatError
from headwater.disk import Buffer, Disk, read_all, read_range
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    FAULT_MEANING,
    Entries,
    FrameFault,
    FrameState,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    WalSlice,
    encode_run,
    first_checksum,
    frame_faults,
    identity_of,
    index_flags,
    salt_of,
    seal_checks,
    segment_file_name,
    topic_directory_name,
)
from headwater.format.segment.run import at_each_byte
from headwater.spark.jobs.log_files import MappedFiles
from headwater.spark.jobs.segment_plan import Base, SegmentItem, is_dead
from headwater.store.cold_index import cold_index_bytes, flagged_copy
from headwater.store.failures import file_work
from headwater.store.pair import create_file, end_of
from headwater.store.segment_stores import LocalSegmentStore, temporary_path
from headwater.store.topic_files import TopicFiles

_DEAD: Final = numpy.uint8(IndexFlag.DELETED | IndexFlag.LOST)
_ON_DISK: Final = numpy.uint32(0xFF & ~int(IndexFlag.IN_WAL | IndexFlag.DAMAGED))
_NOTHING = memoryview(b"")
_UNFINISHED_DELETES: Final = (FrameFault.DELETED, FrameFault.NOT_DELETED)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one item."""

    topic_id: int
    first_seq: int
    records: int
    """Live ones that came from the log."""
    dead: int
    taken_over: int
    """Records of a segment that was there already."""
    data_bytes: int
    skipped: bool
    """It was there, as it should be."""


def write_segment(disk: Disk, output: PurePath, item: SegmentItem) -> Written:
    directory = output / TOPICS_DIRECTORY / topic_directory_name(item.topic_id)
    if item.is_cold:
        return _point(disk, directory, item)
    wanted = expected_entries(disk, item)
    store = LocalSegmentStore(disk, directory)
    skipped = _is_there(store, item, wanted)
    if not skipped:
        data = _data(disk, item)
        if len(data) != end_of(wanted):
            raise DamageError(
                f"{len(data)} bytes were made of records that have {end_of(wanted)}",
                path=store.path_of(item.first_seq, SegmentPart.DATA),
                advice="the log was changed while it was read; run the job again",
            )
        _name(item, wanted, data)
        with file_work(directory):
            disk.make_directory(directory)
            for part, contents in ((SegmentPart.DATA, data), (SegmentPart.IDX, wanted.tobytes())):
                _replace(disk, store.path_of(item.first_seq, part), contents)
    return _written_of(item, end_of(wanted), skipped)


def _replace(disk: Disk, path: PurePath, contents: Buffer) -> None:
    """New bytes under this name. The bytes are durable on return, the name is not."""
    temporary = temporary_path(path)
    create_file(disk, temporary, contents)
    disk.rename(temporary, path)


def expected_entries(disk: Disk, item: SegmentItem) -> Entries:
    """The index of the segment as it must be, known before any payload is read."""
    new = item.entries.copy()
    flags = index_flags(new)
    flags = numpy.where(is_dead(new), flags & _DEAD, flags).astype(numpy.uint32) & _ON_DISK
    new["flags_check"] = flags
    if item.base is None:
        base, salt = new[:0], 0
    else:
        base, salt = _base_entries(disk, item.base), item.base.segment.salt
    ends = end_of(base) + numpy.cumsum(new["len"], dtype=numpy.int64)
    new["offset"] = ends - new["len"]
    seal_checks(new, item.first_seq + len(base), salt)
    return numpy.concatenate((base, new))


def _base_entries(disk: Disk, base: Base) -> Entries:
    """The index of a segment that is there, what was bad in it read again, deletes flagged."""
    files = TopicFiles(disk, PurePath(base.directory), SegmentSettings(), read_only=True)
    entries = files.index(base.segment)
    return flagged_copy(entries, base.segment, base.deleted)


def _name(item: SegmentItem, entries: Entries, data: bytes | bytearray) -> None:
    """Seal the entries with whose segment it is. One that grows has it already, or never had."""
    if item.base is None:
        identity = identity_of(item.topic_id, first_checksum(data))
        seal_checks(entries, item.first_seq, salt_of(identity))


def _is_there(store: LocalSegmentStore, item: SegmentItem, wanted: Entries) -> bool:
    """Whole and the same: the index byte for byte, every frame by its checksum."""
    first_seq = item.first_seq
    if not store.exists(first_seq, SegmentPart.IDX) or not store.exists(
        first_seq, SegmentPart.DATA
    ):
        return False
    if store.len(first_seq, SegmentPart.IDX) != len(wanted) * ENTRY_BYTES:
        return False
    if store.len(first_seq, SegmentPart.DATA) != end_of(wanted):
        return False
    data = store.read_range(first_seq, SegmentPart.DATA, 0, end_of(wanted))
    _name(item, wanted, data)
    idx = store.read_range(first_seq, SegmentPart.IDX, 0, len(wanted) * ENTRY_BYTES)
    if idx != wanted.tobytes():
        return False
    return not frame_faults(data, wanted, first_seq).any()


def _data(disk: Disk, item: SegmentItem) -> bytearray:
    data = bytearray()
    if item.base is not None:
        data += _base_data(disk, item.base)
    if len(item.entries):
        mapped = MappedFiles(disk)
        slices = [
            WalSlice(_NOTHING if source.path is None else mapped.view(source.path), source.offsets)
            for source in item.sources
        ]
        dead = numpy.where(is_dead(item.entries), index_flags(item.entries) & _DEAD, 0)
        first_seq = item.first_seq + (0 if item.base is None else item.base.segment.count)
        try:
            made, _ = encode_run(slices, first_seq, dead.astype(numpy.uint8), item.entries["ts"])
        except FormatError as error:
            path = next(source.path for source in item.sources if source.path is not None)
            raise DamageError(error.reason, path=path, offset=error.offset) from error
        data += made
    return data


def _base_data(disk: Disk, base: Base) -> bytearray:
    """The frames that are there, those of deleted records flagged. Damage is not taken over."""
    segment = base.segment
    path = PurePath(base.directory) / segment_file_name(segment.first_seq, SegmentFile.DATA)
    with file_work(path):
        data = bytearray(read_range(disk, path, 0, segment.data_bytes))
    entries = _base_entries(disk, base)
    ends = entries["offset"].astype(numpy.int64) + entries["len"]
    inside = base.deleted[ends[base.deleted - segment.first_seq] <= len(data)]
    at_each_byte(data, "<u1")[ends[inside - segment.first_seq] - 1] = FrameState.DELETED
    faults = frame_faults(data, entries, segment.first_seq)
    faults[numpy.isin(faults, _UNFINISHED_DELETES)] = FrameFault.NONE
    if faults.any():
        position = int(faults.argmax())
        meaning = FAULT_MEANING[FrameFault(int(faults[position]))]
        raise DamageError(
            f"seq {segment.first_seq + position}: {meaning}",
            path=path,
            offset=int(entries["offset"][position]),
            advice="`headwater pipeline verify` lists everything; restore a backup",
        )
    return data


def _point(disk: Disk, directory: PurePath, item: SegmentItem) -> Written:
    """A segment of the cold tier stays there; the index that points at it is taken over."""
    assert item.base is not None
    segment = item.base.segment
    entries = _base_entries(disk, item.base)
    contents = cold_index_bytes(entries, segment.first_seq, segment.data_bytes, segment.identity)
    path = directory / segment_file_name(segment.first_seq, SegmentFile.COLD)
    with file_work(path):
        skipped = disk.exists(path) and read_all(disk, path) == contents
        if not skipped:
            disk.make_directory(directory)
            _replace(disk, path, contents)
    return _written_of(item, 0, skipped)


def _written_of(item: SegmentItem, data_bytes: int, skipped: bool) -> Written:
    dead = int(is_dead(item.entries).sum())
    base = 0 if item.base is None else item.base.segment.count
    return Written(
        item.topic_id,
        item.first_seq,
        len(item.entries) - dead,
        dead,
        base,
        data_bytes,
        skipped,
    )
