"""The segment files of one topic, behind one class.

It keeps no list of segments: the owner of the topic does, and hands in the segment meant. So
nothing here is shared between threads but the maps, and a call for one topic never waits for
another. Writing calls come from one thread at a time; reading ones from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from headwater.config.store import SegmentSettings
from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import (
    ColdTierUnknownError,
    DamageError,
    HeadwaterError,
    InvariantError,
    StorageError,
)
from headwater.disk import Buffer, Disk, cut_file, map_file, read_range, replace_file
from headwater.disk.residence import is_resident
from headwater.format.segment import (
    ENTRY_BYTES,
    Entries,
    SegmentFile,
    SegmentPart,
    bad_entries,
    checksum_span,
)
from headwater.store import appender, reclaim
from headwater.store.loader import Loader
from headwater.store.maps import MapKey, Mapped, SegmentMaps
from headwater.store.ownership import Wrong, foreign_data, is_older, older_than
from headwater.store.pair import RecordDamage, readable_span, repair_entries, whole_entries
from headwater.store.segment import (
    Segment,
    SegmentChangedError,
    SegmentMissingError,
    SegmentSlice,
    UnreadableSegmentError,
    file_work,
)
from headwater.store.segment_stores import SegmentStore
from headwater.store.tier import TopicTier, cold_index_bytes, flagged_copy, repair_cold_entries
from headwater.store.topic_directory import TopicDirectory

PROBE_BYTES: Final = 4096
"""How much of a copy in the cold tier is read to see whose it is; a long record takes more."""


class TopicFiles:
    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: SegmentSettings,
        *,
        maps: SegmentMaps | None = None,
        cold: SegmentStore | None = None,
        report: Callable[[RecordDamage], None] | None = None,
        read_only: bool = False,
    ) -> None:
        self._disk = disk
        self._directory = TopicDirectory(disk, directory)
        self._settings = settings
        self._maps = maps
        self._cold = cold
        self._report = report
        self._read_only = read_only
        self._rewritten: dict[int, int] = {}
        """First seq -> the length a rewrite gave it: tells stale segments from damaged files."""
        self._torn: Segment | None = None
        """The active segment while it is written to: behind its end may be what failed."""
        self._known_copies: dict[int, Segment] = {}
        """Copies in the cold tier that were found to be the right ones."""
        self._has_directory = False
        self._begun: list[int] = []
        """First seqs of segments that a failed append began."""

    @property
    def directory(self) -> PurePath:
        return self._directory.path

    @property
    def tier(self) -> TopicTier:
        return TopicTier(self._directory, self._cold)

    # After a start.

    def load(
        self,
        checkpointed_seq: int,
        active_first_seq: int = 0,
        active_data_bytes: int = 0,
        earliest_seq: int = 0,
    ) -> list[Segment]:
        """The segments, oldest first, exactly up to the checkpoint.

        `active_first_seq` is 0 when the checkpoint knew of no segment that was still appended to.
        When everything is dead, below `earliest_seq`, that one may have been sealed and dropped.
        Files that are missing or too short are a DamageError with file and offset.
        """
        loader = Loader(self._directory, self._note, self._drop_cold, self._cold, self._read_only)
        with file_work(self.directory):
            return loader.load(checkpointed_seq, active_first_seq, active_data_bytes, earliest_seq)

    def index(self, segment: Segment) -> Entries:
        """The entries of a segment; bad ones read again from the data, reported and written back.

        An entry whose frame is not sound either comes back with the flag DAMAGED.
        """
        kind = SegmentFile.COLD if segment.is_cold else SegmentFile.IDX
        path = self._directory.path_of(segment.first_seq, kind)
        with file_work(path):
            contents = read_range(self._disk, path, 0, segment.count * ENTRY_BYTES)
        if len(contents) < segment.count * ENTRY_BYTES:
            raise StorageError("the index ends too early", path=path, offset=len(contents))
        entries = whole_entries(contents)
        if len(bad_entries(entries, segment.first_seq, segment.salt)):
            entries = self._repair(segment, entries, path)
        return entries

    def refuse_older(self, segment: Segment, entries: Entries, flagged: int | None) -> None:
        """ForeignFileError when the files do not have the delete of the seq `flagged`."""
        if is_older(entries, segment.first_seq, flagged):
            kind = SegmentFile.COLD if segment.is_cold else SegmentFile.IDX
            path = self._directory.path_of(segment.first_seq, kind)
            raise Wrong(path, older_than(flagged)).error()

    # Writing.

    def append_run(
        self,
        active: Segment | None,
        first_seq: int,
        data: Buffer,
        entries: Entries,
        now_ms: int,
    ) -> list[Segment]:
        """Write a run behind the active segment, in new ones as they fill up.

        Returns the segments changed or made, in order; all of it is durable on return, names too.
        `entries` is changed in place: each offset is then the one in its segment's file. After an
        error nothing counts, and the same call may be made again.
        """
        with file_work(self.directory):
            if active is None and not self._has_directory:
                appender.make_directories(self._disk, self.directory)
                self._has_directory = True
            self._clean_up()
            self._torn = active
            changed = appender.append_run(
                self._disk,
                self.directory,
                self._settings,
                active,
                first_seq,
                data,
                entries,
                now_ms,
                self._begun,
            )
        self._torn = None
        self._begun.clear()
        return changed

    def take_back(
        self, active: Segment | None, written: Iterable[Segment], *, at_once: bool = False
    ) -> None:
        """What was appended never came to count: it goes before anything is written again."""
        begun = [each.first_seq for each in written]
        if active is not None and not active.sealed:
            self._torn = active
            begun = [first_seq for first_seq in begun if first_seq != active.first_seq]
        self._begun.extend(each for each in begun if each not in self._begun)
        if at_once:  # the room is needed now
            with suppress(OSError):
                self._clean_up()

    def seal(self, segment: Segment) -> Segment:
        """The segment, with nothing behind its end, for good."""
        with file_work(self.directory):
            self._clean_up()
        return replace(segment, sealed=True)

    def seal_if_due(self, segment: Segment, now_ms: int) -> Segment:
        """The segment, sealed if its age or size says so. That is a matter of memory alone."""
        if segment.sealed:
            return segment
        with file_work(self.directory):
            self._clean_up()
        full = appender.is_full(segment, self._settings)
        due = full or appender.is_old(segment, self._settings, now_ms)
        return replace(segment, sealed=True) if due else segment

    def flag_deleted(self, segment: Segment, entries: Entries, seqs: NDArray[numpy.int64]) -> None:
        """Make deletes durable in the files. `entries` are those of seqs[0] up to seqs[-1].

        `seqs` ascend; records between them are not touched. Frames of a cold segment stay as they
        are until it is rewritten: its index is local and says that they are deleted.
        """
        if not len(seqs):
            return
        reclaim.check_seqs(segment, entries, seqs)
        if segment.is_cold:
            self._flag_cold(segment, seqs)
            return
        with file_work(self.directory):
            path = self._directory.path_of(segment.first_seq, SegmentFile.DATA)
            reclaim.flag_frames(self._disk, path, entries, seqs - seqs[0])
            path = self._directory.path_of(segment.first_seq, SegmentFile.IDX)
            reclaim.flag_entries(self._disk, path, segment, entries, seqs)

    def rewrite(self, segment: Segment, entries: Entries) -> tuple[Segment, Entries]:
        """Let the bytes of dead records go. `entries` are all of the segment's.

        Returns the segment and its entries as they are now; a cold segment comes back hot. Readers
        of the old segment go on reading the old bytes or get a SegmentChangedError; `forget` the
        old segment when no reader looks it up any more.
        """
        whole = self.read(segment, segment.first_seq, segment.end_seq, entries)
        data, compacted = reclaim.compact(segment, entries, whole)
        renewed = reclaim.identify(self._directory, segment, data, compacted)
        with file_work(self.directory):
            reclaim.prepare(self._directory, segment, data, compacted.tobytes())
            self._rewritten[segment.first_seq] = len(data)
            changed = reclaim.swap(self._directory, renewed, len(data))
        if segment.is_cold:
            self._drop_cold(segment.first_seq)
        return changed, compacted

    def drop(self, *segments: Segment) -> None:
        """Remove segments from both tiers, durably. Repeating it after a crash is harmless."""
        if segments:
            cold = self._cold if any(segment.is_cold for segment in segments) else None
            reclaim.drop_segments(self._directory, segments, cold)
            for segment in segments:
                self._rewritten.pop(segment.first_seq, None)
                self._known_copies.pop(segment.first_seq, None)
                self.forget(segment)

    def copy_to_cold(self, segment: Segment) -> None:
        """First half of a relocation; see `tier`."""
        self.tier.copy_to_cold(segment)

    def drop_hot(self, segment: Segment) -> Segment:
        """Second half of a relocation; see `tier`."""
        moved = self.tier.drop_hot(segment)
        self.forget(segment)
        return moved

    # Reading.

    def read(
        self, segment: Segment, first_seq: int, last_seq: int, entries: Entries
    ) -> SegmentSlice:
        """The bytes of these records. `entries` are those of first_seq up to last_seq.

        Nothing is checked: `checked.good_positions` says which of the records may be served.
        """
        if len(entries) != last_seq - first_seq + 1:
            raise InvariantError(f"{len(entries)} entries for seqs {first_seq} to {last_seq}")
        begin, end = readable_span(entries)
        end = min(end, segment.data_bytes)
        known = self._mapped(segment)
        if known is not None:
            return SegmentSlice(known.view[begin:end], begin, known.path)
        path = self._directory.path_of(segment.first_seq, SegmentFile.DATA)
        if segment.is_cold:
            pointer = self._directory.path_of(segment.first_seq, SegmentFile.COLD)
            return SegmentSlice(self._read_cold(segment, begin, end), begin, pointer)
        with file_work(path):
            try:
                if segment.sealed:
                    return SegmentSlice(self._map(segment, path)[begin:end], begin, path)
                contents = read_range(self._disk, path, begin, end - begin)
                return SegmentSlice(memoryview(contents), begin, path)
            except FileNotFoundError as error:
                if self._cold is not None and self.tier.resolve(segment.first_seq):
                    return SegmentSlice(self._read_cold(segment, begin, end), begin, path)
                raise SegmentMissingError(path) from error

    def at_hand(self, segment: Segment, entries: Entries) -> SegmentSlice | None:
        """What `read` gives, if reading it is likely to wait for no disk."""
        known = self._mapped(segment)
        if known is None or not len(entries):
            return None
        begin, end = readable_span(entries)
        view = known.view[begin : min(end, segment.data_bytes)]
        return SegmentSlice(view, begin, known.path) if is_resident(view) else None

    def checked(self, segment: Segment) -> NDArray[numpy.bool_] | None:
        """Which records of a sealed segment were found sound since its file was mapped.

        A sealed file does not change, so a frame is checked once for each mapping and not once for
        each reader. None where nothing is mapped: the active segment, cold ones, no maps.
        """
        if self._maps is None or segment.is_cold or not segment.sealed:
            return None
        return self._maps.checked(self._map_key(segment), segment.count)

    def _map_key(self, segment: Segment) -> MapKey:
        return self._directory.path, segment.first_seq, segment.data_bytes

    def _mapped(self, segment: Segment) -> Mapped | None:
        """The map of a sealed segment, if there is one: only of those that are hot."""
        if self._maps is None or segment.is_cold or not segment.sealed:
            return None
        return self._maps.find(self._map_key(segment))

    def _map(self, segment: Segment, path: PurePath) -> memoryview:
        view = map_file(self._disk, path)
        self._refuse_stale(segment)
        if self._maps is not None:
            self._maps.keep(self._map_key(segment), Mapped(view, path))
        return view

    def _read_cold(self, segment: Segment, begin: int, end: int) -> memoryview:
        """What is there of these bytes: a reader reports the frames that are not."""
        cold, first_seq = self._cold_store(segment), segment.first_seq
        try:
            self._refuse_foreign(cold, segment)
            try:
                contents = cold.read_range(first_seq, SegmentPart.DATA, begin, end - begin)
            except DamageError:
                there = cold.len(first_seq, SegmentPart.DATA)
                begin, end = min(begin, there), min(end, there)
                contents = cold.read_range(first_seq, SegmentPart.DATA, begin, end - begin)
        except DamageError as error:
            path = self._directory.path_of(first_seq, SegmentFile.COLD)
            raise UnreadableSegmentError(
                f"the copy in the cold tier: {error.what}", path=error.path or path
            ) from error
        finally:
            self._refuse_stale(segment)
        return memoryview(contents)

    def _refuse_foreign(self, cold: SegmentStore, segment: Segment) -> None:
        """Once: is the copy in the cold tier the one that the index leads to?"""
        if self._known_copies.get(segment.first_seq) == segment:
            return
        begin, wanted = b"", PROBE_BYTES
        there = cold.len(segment.first_seq, SegmentPart.DATA)
        while len(begin) < (wanted := min(wanted, there)):
            begin = cold.read_range(segment.first_seq, SegmentPart.DATA, 0, wanted)
            span = checksum_span(begin)
            wanted = wanted if span is None else max(wanted, span[1] + 1)
        what = foreign_data(begin, segment.first_seq, segment.identity)
        if what is not None:
            raise DamageError(what)
        self._known_copies[segment.first_seq] = segment

    def _clean_up(self) -> None:
        """Remove what a failed append left, before it can be taken for something that counts."""
        if self._torn is not None:
            for kind, length in (
                (SegmentFile.DATA, self._torn.data_bytes),
                (SegmentFile.IDX, self._torn.count * ENTRY_BYTES),
            ):
                path = self._directory.path_of(self._torn.first_seq, kind)
                cut_file(self._disk, path, length)
            self._torn = None
        while self._begun:
            for kind in (SegmentFile.IDX, SegmentFile.DATA):
                path = self._directory.path_of(self._begun[-1], kind)
                if self._disk.exists(path):
                    self._disk.unlink(path)
            self._begun.pop()

    def _cold_store(self, segment: Segment) -> SegmentStore:
        if self._cold is None:
            raise ColdTierUnknownError(
                f"segment {segment.first_seq} is in the cold tier, and there is none",
                path=self.directory,
                advice="name the cold directory or store it was moved to",
            )
        return self._cold

    def _refuse_stale(self, segment: Segment) -> None:
        if self._rewritten.get(segment.first_seq, segment.data_bytes) != segment.data_bytes:
            raise SegmentChangedError(f"segment {segment.first_seq} was rewritten")

    def _flag_cold(self, segment: Segment, seqs: NDArray[numpy.int64]) -> None:
        """A torn entry could not be read again from the cold frames, so the file is replaced."""
        path = self._directory.path_of(segment.first_seq, SegmentFile.COLD)
        with file_work(path):
            index = read_range(self._disk, path, 0, segment.count * ENTRY_BYTES)
            if len(index) < segment.count * ENTRY_BYTES:
                raise StorageError("the index ends too early", path=path, offset=len(index))
            changed = flagged_copy(whole_entries(index), segment, seqs)
            contents = cold_index_bytes(
                changed, segment.first_seq, segment.data_bytes, segment.identity
            )
            replace_file(self._disk, path, contents)

    def _repair(self, segment: Segment, entries: Entries, path: PurePath) -> Entries:
        first_seq = segment.first_seq
        if segment.is_cold:
            stored = self._cold_store(segment).read_range(
                first_seq, SegmentPart.IDX, 0, segment.count * ENTRY_BYTES
            )
            entries, findings = repair_cold_entries(
                entries, whole_entries(stored), first_seq, path, segment.salt
            )
        else:
            data_path = self._directory.path_of(first_seq, SegmentFile.DATA)
            with file_work(data_path):
                data = memoryview(read_range(self._disk, data_path, 0, segment.data_bytes))
            entries, findings = repair_entries(entries, first_seq, data, path, segment.salt)
        for finding in findings:
            self._note(finding)
        if not self._read_only and all(finding.repaired for finding in findings):
            contents = entries.tobytes()
            if segment.is_cold:
                contents = cold_index_bytes(
                    entries, first_seq, segment.data_bytes, segment.identity
                )
            with file_work(path):
                replace_file(self._disk, path, contents)
        return entries

    def _drop_cold(self, first_seq: int) -> bool:
        """Remove a cold copy that nothing points to. False when the store did not answer."""
        if self._cold is None:
            return True
        try:
            self._cold.delete(first_seq)
        except HeadwaterError:
            return False
        return True

    def forget(self, segment: Segment) -> None:
        """Let the map of a segment go; slices of it that readers hold stay readable."""
        if self._maps is not None:
            self._maps.forget(self._map_key(segment))

    def report_missing(self, first_seq: int, last_seq: int) -> None:
        """These seqs should be in a segment, and there is none that has them."""
        path = self._directory.path_of(first_seq, SegmentFile.DATA)
        reason = "no segment has these seqs"
        if self._has_copy(first_seq):
            path = self._directory.path_of(first_seq, SegmentFile.COLD)
            reason = "missing; the cold tier has the frames, but not which of them were deleted"
        self._note(RecordDamage(path, 0, first_seq, reason, last_seq=last_seq))

    def _has_copy(self, first_seq: int) -> bool:
        """Only for the message: a cold tier that does not answer has none."""
        try:
            return self._cold is not None and self._cold.exists(first_seq, SegmentPart.DATA)
        except HeadwaterError:
            return False

    def _note(self, finding: RecordDamage) -> None:
        if self._report is not None:
            self._report(finding)
