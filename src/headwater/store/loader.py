"""A topic's segments as they are after a start: what was interrupted is finished, what is beyond
the last checkpoint is cut, and what should be there and is not is refused with file and offset.

The checkpoint says how far the files were known to be durable. Whatever they hold beyond that is
still in the log, so it is cut and written again (I1, I4). Less than that is damage (I5).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from headwater.core.errors import DamageError, FormatError, UnavailableError
from headwater.disk import OpenMode, cut_file, map_file, opened, read_all, replace_file
from headwater.format.segment import (
    ENTRY_BYTES,
    Entries,
    Identity,
    SegmentFile,
    SegmentPart,
    bad_entries,
    identity_of,
    salt_of,
)
from headwater.store.ownership import DataHead, cold_identity, pair_identity, read_head
from headwater.store.pair import RecordDamage, end_of, extend_entries, repair_entries, whole_entries
from headwater.store.segment import Segment, Tier
from headwater.store.segment_stores import SegmentStore
from headwater.store.tier import cold_end
from headwater.store.topic_directory import COLD, HOT, TopicDirectory, finish_interrupted

REPAIR: Final = "restore a backup"

Report = Callable[[RecordDamage], None]


class _Numbers(msgspec.Struct, frozen=True):
    """What the first and the last entry of an index say."""

    count: int
    end: int
    created_ms: int
    identity: Identity | None


class Loader(msgspec.Struct, frozen=True):
    directory: TopicDirectory
    report: Report
    drop_cold: Callable[[int], bool] | None
    cold: SegmentStore | None
    read_only: bool

    def load(
        self,
        checkpointed_seq: int,
        active_first_seq: int,
        active_data_bytes: int,
        earliest_seq: int = 0,
    ) -> list[Segment]:
        directory = self.directory
        directory.scan()
        for first_seq in sorted(directory.segments):
            if first_seq > checkpointed_seq:
                self._remove_beyond(first_seq)
            elif self.read_only:
                self._overlook_unfinished(first_seq)
            else:
                finish_interrupted(directory, first_seq, self.drop_cold)
        segments: list[Segment] = []
        for first_seq, files in sorted(directory.segments.items()):
            if not files or SegmentFile.DROPPED in files:
                continue
            is_active = first_seq == active_first_seq and files == HOT
            active = (checkpointed_seq, active_data_bytes) if is_active else None
            segment = self._present(first_seq, active)
            if segment is not None:
                segments.append(segment)
        live = earliest_seq <= checkpointed_seq
        self._check_ranges(segments, checkpointed_seq, active_first_seq if live else 0)
        return segments

    def _present(self, first_seq: int, active: tuple[int, int] | None) -> Segment | None:
        """The segment; beside an owner, looked up once more when it moved at this very moment.

        None for one that was dropped: its floor is in the log, and a caller finds the gap.
        """
        try:
            return self._one(first_seq, active)
        except FileNotFoundError:
            if not self.read_only:
                raise
        self.directory.rescan(first_seq)
        files = self.directory.segments[first_seq]
        self._overlook_unfinished(first_seq)
        if not files or SegmentFile.DROPPED in files:
            return None
        return self._one(first_seq, active if files == HOT else None)

    def _one(self, first_seq: int, active: tuple[int, int] | None) -> Segment:
        return self._sealed(first_seq) if active is None else self._active(first_seq, *active)

    def _remove_beyond(self, first_seq: int) -> None:
        files = self.directory.segments[first_seq]
        if not self.read_only:
            self.directory.remove(first_seq, *files)
        files.clear()

    def _overlook_unfinished(self, first_seq: int) -> None:
        """Read what `settle` would keep. Only between the two renames of a rewrite is there no
        pair of files under the names of a pair."""
        files = self.directory.segments[first_seq]
        if SegmentFile.DROPPED in files:
            return
        if SegmentFile.NEW_IDX in files and SegmentFile.NEW_DATA not in files:
            raise UnavailableError(
                f"segment {first_seq} in {self.directory.path} is being changed; try again, "
                "or open the data once for writing if its owner has crashed"
            )
        files.intersection_update(HOT | COLD)
        if SegmentFile.COLD in files:
            files.discard(SegmentFile.COLD if SegmentFile.IDX in files else SegmentFile.DATA)

    def _check_ranges(
        self, segments: list[Segment], checkpointed_seq: int, active_first_seq: int
    ) -> None:
        expected = 0 < active_first_seq <= checkpointed_seq
        if expected and not any(each.first_seq == active_first_seq for each in segments):
            path = self.directory.path_of(active_first_seq, SegmentFile.DATA)
            raise DamageError("a file that must be there is missing", path=path, advice=REPAIR)
        for one, next_one in pairwise(segments):
            if one.end_seq >= next_one.first_seq:
                path = self.directory.path_of(next_one.first_seq, SegmentFile.IDX)
                raise DamageError(
                    f"seq {next_one.first_seq} is in two segments", path=path, offset=0
                )
        last = segments[-1] if segments else None
        if last is not None and last.end_seq > checkpointed_seq:
            raise DamageError(
                f"holds seq {last.end_seq}; the last checkpoint ended at {checkpointed_seq}",
                path=self.directory.path_of(last.first_seq, SegmentFile.IDX),
                offset=(checkpointed_seq - last.first_seq + 1) * ENTRY_BYTES,
                advice=REPAIR,
            )

    # The segment that was still appended to.

    def _active(self, first_seq: int, checkpointed_seq: int, data_bytes: int) -> Segment:
        """Cut back to the checkpoint, unless it was sealed and rewritten since."""
        disk, directory = self.directory.disk, self.directory
        count = checkpointed_seq - first_seq + 1
        idx, data = (
            directory.path_of(first_seq, kind) for kind in (SegmentFile.IDX, SegmentFile.DATA)
        )
        index = read_all(disk, idx)
        if len(index) < count * ENTRY_BYTES:
            raise DamageError(
                "the index is shorter than at its last checkpoint",
                path=idx,
                offset=len(index),
                advice=REPAIR,
            )
        entries = whole_entries(index, count)
        head = read_head(disk, data)
        there = head.size
        identity = pair_identity(directory, first_seq, head, entries)
        if there < data_bytes and not _was_rewritten(index, entries, first_seq, there, identity):
            raise DamageError(
                "the data is shorter than at its last checkpoint",
                path=data,
                offset=there,
                advice=REPAIR,
            )
        if there < data_bytes:
            return self._segment(first_seq, entries, there, identity, sealed=True)
        if not self.read_only:
            if there > data_bytes:
                cut_file(disk, data, data_bytes)
            if len(index) > count * ENTRY_BYTES:
                cut_file(disk, idx, count * ENTRY_BYTES)
        return self._segment(first_seq, entries, data_bytes, identity, sealed=False)

    # All others.

    def _sealed(self, first_seq: int) -> Segment:
        directory = self.directory
        files = directory.segments[first_seq]
        if files == COLD:
            return self._in_cold(first_seq)
        for kind in (SegmentFile.DATA, SegmentFile.IDX):
            if kind not in files:
                raise DamageError(
                    "a file that must be there is missing",
                    path=directory.path_of(first_seq, kind),
                    advice=REPAIR,
                )
        head = read_head(directory.disk, directory.path_of(first_seq, SegmentFile.DATA))
        own = identity_of(directory.topic_id, head.checksum)
        numbers = self._numbers(first_seq, own)
        there = head.size
        if numbers is None or there != numbers.end:
            identity, entries = self._repair(first_seq, head)
            return self._segment(first_seq, entries, there, identity, sealed=True)
        return Segment(
            first_seq, numbers.count, there, True, numbers.created_ms, identity=numbers.identity
        )

    def _in_cold(self, first_seq: int) -> Segment:
        """The numbers from the local index; where it cannot say, from the cold store."""
        path = self.directory.path_of(first_seq, SegmentFile.COLD)
        index = read_all(self.directory.disk, path)
        count = max(len(index) // ENTRY_BYTES - 1, 0)
        entries = whole_entries(index[: count * ENTRY_BYTES])
        last = whole_entries(index[count * ENTRY_BYTES :][:ENTRY_BYTES])
        identity = cold_identity(self.directory, first_seq, entries, last)
        end = cold_end(last, first_seq + count)
        if end is not None and not len(index) % ENTRY_BYTES and count:
            data_bytes = end.data_bytes
        else:
            if self.cold is None:
                raise DamageError("the index is damaged", path=path, advice="name the cold tier")
            if len(index) != self.cold.len(first_seq, SegmentPart.IDX) + ENTRY_BYTES:
                raise DamageError(
                    "entries are missing", path=path, offset=len(index), advice=REPAIR
                )
            data_bytes = self.cold.len(first_seq, SegmentPart.DATA)
        created_ms = int(entries["ts"][0])
        return Segment(first_seq, count, data_bytes, True, created_ms, Tier.COLD, identity)

    def _numbers(self, first_seq: int, own: Identity | None) -> _Numbers | None:
        """None when the first and the last entry do not say, or belong to something else."""
        path = self.directory.path_of(first_seq, SegmentFile.IDX)

        with opened(self.directory.disk, path, OpenMode.READ) as file:
            size = file.size()
            count = size // ENTRY_BYTES
            if not count or size != count * ENTRY_BYTES:
                return None
            first = whole_entries(file.read(0, ENTRY_BYTES))
            last = whole_entries(file.read((count - 1) * ENTRY_BYTES, ENTRY_BYTES))
            for identity in (own, None):
                salt = salt_of(identity)
                bad = len(bad_entries(first, first_seq, salt))
                if not bad + len(bad_entries(last, first_seq + count - 1, salt)):
                    return _Numbers(count, end_of(last), int(first["ts"][0]), identity)
            return None

    def _repair(self, first_seq: int, head: DataHead) -> tuple[Identity | None, Entries]:
        """An index that does not end where its data ends, read again from the data."""
        directory = self.directory
        idx = directory.path_of(first_seq, SegmentFile.IDX)
        path = directory.path_of(first_seq, SegmentFile.DATA)
        data = map_file(directory.disk, path)
        entries = whole_entries(read_all(directory.disk, idx))
        identity = pair_identity(directory, first_seq, head, entries)
        salt = salt_of(identity)
        entries, findings = repair_entries(entries, first_seq, data, idx, salt)
        if end_of(entries) > head.size:
            raise DamageError(
                "the data ends before its index does", path=path, offset=head.size, advice=REPAIR
            )
        try:
            entries, more = extend_entries(entries, first_seq, data, idx, salt)
        except FormatError as error:
            raise DamageError(
                f"neither the index nor the data says what is here: {error.reason}",
                path=path,
                offset=error.offset,
                advice=REPAIR,
            ) from error
        findings += more
        for finding in findings:
            self.report(finding)
        if not self.read_only and all(finding.repaired for finding in findings):
            replace_file(directory.disk, idx, entries.tobytes())
        return identity, entries

    def _segment(
        self,
        first_seq: int,
        entries: Entries,
        data_bytes: int,
        identity: Identity | None,
        *,
        sealed: bool,
    ) -> Segment:
        created_ms = int(entries["ts"][0])
        return Segment(first_seq, len(entries), data_bytes, sealed, created_ms, identity=identity)


def _was_rewritten(
    index: bytes, entries: Entries, first_seq: int, there: int, identity: Identity | None
) -> bool:
    """True for a sealed segment that was made smaller after the checkpoint that knew it as active.

    Its index is whole and ends exactly where the data ends, which no cut file's does.
    """
    return (
        len(index) == len(entries) * ENTRY_BYTES
        and end_of(entries) == there
        and not len(bad_entries(entries, first_seq, salt_of(identity)))
    )
