"""Moving a sealed segment from the hot directory to the cold store, whole at every moment (I7).

1. `copy_to_cold`: copy both parts, durable, and read them back. Repeating it is harmless.
2. `drop_hot`: write the index once more as `.cold`, durable, and remove `.idx`, durably. That is
   the pointer, flipped by one name: with `.idx` the segment is hot, without it cold. Then the hot
   `.data` goes.

An index stays in the hot directory: a start needs nothing from the cold store, and deletes in a
cold segment are flags in a local file.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from headwater.core.errors import InvariantError, StorageError
from headwater.disk import read_all, remove_files, replace_file
from headwater.format.checksum import checksum64
from headwater.format.segment import SegmentFile, SegmentPart
from headwater.store.cold_index import cold_index_bytes
from headwater.store.pair import whole_entries
from headwater.store.segment import Segment, Tier, file_work
from headwater.store.segment_stores import SegmentStore
from headwater.store.topic_directory import TopicDirectory


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
