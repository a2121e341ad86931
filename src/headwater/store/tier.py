"""Moving a sealed segment from the hot directory to the cold store, whole at every moment (I7).

1. `copy_to_cold`: copy both parts, durable, and read them back. Repeating it is harmless.
2. `drop_hot`: write the index once more as `.cold`, durable, and remove `.idx`, durably. That is
   the pointer, flipped by one name: with `.idx` the segment is hot, without it cold. Then the hot
   `.data` goes.

An index stays in the hot directory: a start needs nothing from the cold store, and deletes in a
cold segment are flags in a local file, the only one that knows which records were deleted. The
frames in the cold store are not flipped when a record is deleted, so a damaged entry cannot be
read again from them: that might bring a deleted record back (I8). It is settled from two sides
instead: the index in the cold store knows everything but later deletes, and what is left of the
local entry says which of the two it was. Where it does not, the entry is DAMAGED and not served.

Without the data beside it, nothing says where the index should end. So it ends with one entry
more, for the seq after the last: its offset is the length of the data, its flags are no record's.
Where a record has its time, the end has whose segment it is; 0 for one that does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import InvariantError, StorageError
from headwater.disk import Disk, file_bytes, read_all, read_range, remove_files, replace_file
from headwater.format.checksum import checksum64
from headwater.format.segment import (
    ENTRY_BYTES,
    INDEX_ENTRY,
    MEMORY_FLAGS,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    Identity,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    bad_entries,
    index_flags,
    salt_of,
    seal_checks,
    unpack_identity,
)
from headwater.store.pair import RecordDamage, whole_entries
from headwater.store.segment import Segment, Tier, file_work
from headwater.store.segment_stores import SegmentStore
from headwater.store.topic_directory import TopicDirectory

_CHECK_SHIFT: Final = 8
_END_FLAGS: Final = MEMORY_FLAGS


def cold_index_bytes(
    entries: Entries, first_seq: int, data_bytes: int, identity: Identity | None
) -> bytes:
    """What a `.cold` file holds: the entries, and the end."""
    packed = 0 if identity is None else identity.pack()
    end = numpy.array(
        [(data_bytes, SEGMENT_FRAME_BYTES_MIN, packed, _END_FLAGS)], INDEX_ENTRY.dtype
    )
    seal_checks(end, first_seq + len(entries), salt_of(identity))
    return entries.tobytes() + end.tobytes()


@dataclass(frozen=True, slots=True)
class ColdEnd:
    """What the last entry of a `.cold` file says."""

    data_bytes: int
    identity: Identity | None


def cold_end(last: Entries, seq: int) -> ColdEnd | None:
    """The end, if this last entry of a `.cold` file is one that was written for this seq."""
    if not len(last) or int(index_flags(last)[0]) != _END_FLAGS:
        return None
    identity = unpack_identity(int(last["ts"][0]))
    if len(bad_entries(last, seq, salt_of(identity))):
        return None
    return ColdEnd(int(last["offset"][0]), identity)


def cold_bytes(disk: Disk, path: PurePath) -> int:
    """How much data the `.cold` file at `path` leads to, roughly: nothing in it is checked."""
    try:
        size = file_bytes(disk, path)
        last = whole_entries(read_range(disk, path, max(size - ENTRY_BYTES, 0), ENTRY_BYTES))
    except OSError:
        return 0
    return int(last["offset"][-1]) if len(last) else 0


def repair_cold_entries(
    local: Entries, stored: Entries, first_seq: int, path: PurePath, salt: int
) -> tuple[Entries, list[RecordDamage]]:
    """The local entries with the bad ones settled; `stored` is the index in the cold store."""
    live = stored.copy()
    deleted = stored.copy()
    deleted["flags_check"] |= numpy.uint32(IndexFlag.DELETED)
    seal_checks(deleted, first_seq, salt)
    unsound = set(bad_entries(stored, first_seq, salt).tolist())
    findings: list[RecordDamage] = []
    for row in bad_entries(local, first_seq, salt).tolist():
        was = None
        if row not in unsound:
            was = _which(local[row], live[row], deleted[row])
        if was is not None:
            local[row] = was
        else:
            fields = live[row] if row not in unsound else None
            local[row] = _damaged(fields)
        reason = "the index entry is damaged" + ("" if was is not None else ", and not clear")
        findings.append(
            RecordDamage(path, row * ENTRY_BYTES, first_seq + row, reason, was is not None)
        )
    return local, findings


def _which(local: numpy.void, live: numpy.void, deleted: numpy.void) -> numpy.void | None:
    """The one option whose check is there, or whose everything but the check is there."""
    options = [live] if live.tobytes() == deleted.tobytes() else [live, deleted]
    by_check = [each for each in options if _check(each) == _check(local)]
    if len(by_check) == 1:
        return by_check[0]
    by_fields = [each for each in options if each.tobytes()[:17] == local.tobytes()[:17]]
    return by_fields[0] if len(by_fields) == 1 else None


def _check(entry: numpy.void) -> int:
    return int(entry["flags_check"] >> _CHECK_SHIFT)


def _damaged(fields: numpy.void | None) -> tuple[int, int, int, int]:
    if fields is None:
        return 0, SEGMENT_FRAME_BYTES_MIN, 0, int(IndexFlag.DAMAGED)
    return int(fields["offset"]), int(fields["len"]), int(fields["ts"]), int(IndexFlag.DAMAGED)


def flagged_copy(whole: Entries, segment: Segment, seqs: NDArray[numpy.int64]) -> Entries:
    """The entries of a whole segment with these seqs deleted; damaged ones stay as they are."""
    first_seq, salt = segment.first_seq, segment.salt
    rows = numpy.setdiff1d(seqs - first_seq, bad_entries(whole, first_seq, salt))
    flagged = whole.copy()
    flagged["flags_check"] |= numpy.uint32(IndexFlag.DELETED)
    seal_checks(flagged, first_seq, salt)
    changed = whole.copy()
    changed[rows] = flagged[rows]
    return changed


class TopicTier(msgspec.Struct, frozen=True):
    hot: TopicDirectory
    cold: SegmentStore | None

    def resolve(self, first_seq: int) -> Tier | None:
        """Where the frames of a segment are; the hot copy is preferred when both are there."""
        if self.hot.disk.exists(self.hot.path_of(first_seq, SegmentFile.DATA)):
            return Tier.HOT
        if self.hot.disk.exists(self.hot.path_of(first_seq, SegmentFile.COLD)):
            return Tier.COLD
        if self.cold is not None and self.cold.exists(first_seq, SegmentPart.IDX):
            return Tier.COLD
        return None

    def copy_to_cold(self, segment: Segment) -> None:
        """The cold store has a whole, durable and verified copy on return."""
        cold = self._cold_store(segment)
        if not segment.sealed:
            raise InvariantError(f"segment {segment.first_seq} is still appended to")
        with file_work(self.hot.path):
            data = self._hot_bytes(segment, SegmentFile.DATA)
            idx = self._hot_bytes(segment, SegmentFile.IDX)
        # Also when a copy is there: the process that made it may have died before it was durable.
        cold.put(segment.first_seq, data, idx)
        if not self._is_copied(cold, segment, data, idx):
            raise StorageError(
                f"the cold copy of segment {segment.first_seq} reads back differently",
                path=self.hot.path,
                advice="check the cold store; the hot copy was kept",
            )

    def drop_hot(self, segment: Segment) -> Segment:
        """Point to the cold copy, durably, and remove the hot frames."""
        self._cold_store(segment)
        disk, hot = self.hot.disk, self.hot
        idx, cold, data = (
            hot.path_of(segment.first_seq, kind)
            for kind in (SegmentFile.IDX, SegmentFile.COLD, SegmentFile.DATA)
        )
        with file_work(hot.path):
            if disk.exists(idx):
                stored = whole_entries(read_all(disk, idx), segment.count)
                contents = cold_index_bytes(
                    stored, segment.first_seq, segment.data_bytes, segment.identity
                )
                replace_file(disk, cold, contents)
            remove_files(disk, [idx])
            remove_files(disk, [data])
        return replace(segment, tier=Tier.COLD)

    def orphans(self) -> list[int]:
        """Cold copies that no pointer leads to: left by a crash or by a rewrite into hot."""
        if self.cold is None:
            return []
        return [
            first_seq
            for first_seq in self.cold.list()
            if not self.hot.disk.exists(self.hot.path_of(first_seq, SegmentFile.COLD))
        ]

    def _cold_store(self, segment: Segment) -> SegmentStore:
        if self.cold is None:
            raise InvariantError(f"segment {segment.first_seq}: there is no cold tier to move to")
        return self.cold

    def _hot_bytes(self, segment: Segment, kind: SegmentFile) -> bytes:
        return read_all(self.hot.disk, self.hot.path_of(segment.first_seq, kind))

    @staticmethod
    def _is_copied(cold: SegmentStore, segment: Segment, data: bytes, idx: bytes) -> bool:
        for part, wanted in ((SegmentPart.IDX, idx), (SegmentPart.DATA, data)):
            if not cold.exists(segment.first_seq, part):
                return False
            if cold.len(segment.first_seq, part) != len(wanted):
                return False
            stored = cold.read_range(segment.first_seq, part, 0, len(wanted))
            if checksum64(stored) != checksum64(wanted):
                return False
        return True
