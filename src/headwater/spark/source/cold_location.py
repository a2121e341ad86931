"""A cold tier by itself, without the data directory it belongs to: an archive of sealed segments.

There are no names in it, so topics are called by their numbers, as their directories are. And
there is no log: what was deleted after a segment was moved is known to the data directory alone.
To read cold segments as their owner does, name the data directory and give the tier as `cold`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Final, TypeVar

from headwater.core.errors import RequestError, StorageError
from headwater.disk import Disk, PosixDisk
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    Entries,
    SegmentPart,
    bad_entries,
    checksum_span,
    identity_of,
    parse_topic_directory_name,
    salt_of,
    segment_file_name,
    shared_shift,
    topic_directory_name,
)
from headwater.spark.source.directory import cold_tier
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import (
    ColdSlice,
    LocationSnapshot,
    LostSeqs,
    LostSplit,
    ReadContext,
    SegmentSplit,
    SentLocation,
    Split,
    TopicFacts,
    clip,
    portions,
)
from headwater.spark.source.split_reader import read_segment_split
from headwater.store.cold_tier import URL_START
from headwater.store.ownership import BEGIN_BYTES, Wrong, seq_of_first
from headwater.store.pair import repair_entries, whole_entries
from headwater.store.segment import Segment, SegmentSlice, Tier
from headwater.store.segment_stores import ColdTier, SegmentStore
from headwater.wire.frame_rows import RecordColumns

T = TypeVar("T")

NOT_COLD: Final = "not_cold"
"""The reason of a gap: these seqs are not in the cold tier; the data directory may have them."""


class ColdFiles:
    """The segments of one topic in a cold tier, as `split_reader` reads files."""

    def __init__(self, store: SegmentStore, directory: PurePath) -> None:
        self._store = store
        self._directory = directory

    @property
    def directory(self) -> PurePath:
        return self._directory

    def segments(self) -> list[Segment]:
        segments = []
        for first_seq in self._store.list():
            if not self._store.exists(first_seq, SegmentPart.IDX):
                continue  # the index is written last: without it nothing is whole yet
            count = self._store.len(first_seq, SegmentPart.IDX) // ENTRY_BYTES
            data_bytes = self._store.len(first_seq, SegmentPart.DATA)
            segments.append(Segment(first_seq, count, data_bytes, True, 0, Tier.COLD))
        return segments

    def index(self, segment: Segment) -> Entries:
        first_seq, size = segment.first_seq, segment.count * ENTRY_BYTES
        entries = whole_entries(self._store.read_range(first_seq, SegmentPart.IDX, 0, size))
        salt = self._salt(first_seq, entries)
        if len(bad_entries(entries, first_seq, salt)):
            data = self._store.read_range(first_seq, SegmentPart.DATA, 0, segment.data_bytes)
            entries, _ = repair_entries(entries, first_seq, memoryview(data), self._directory, salt)
        return entries

    def _salt(self, first_seq: int, entries: Entries) -> int:
        """That of the index; an index or data of another topic's or range's is refused."""
        begin = self._store.read_range(first_seq, SegmentPart.DATA, 0, BEGIN_BYTES)
        span = checksum_span(begin)
        if span is None:
            return shared_shift(entries, first_seq) or 0
        checksum = self._store.read_range(first_seq, SegmentPart.DATA, span[0], span[1] - span[0])
        topic_id = parse_topic_directory_name(self._directory.name)
        salt = salt_of(identity_of(topic_id, int.from_bytes(checksum, "little")))
        shift = shared_shift(entries, first_seq)
        if len(entries) > 1 and shift not in (None, 0, salt):
            begin = self._store.read_range(first_seq, SegmentPart.DATA, 0, span[1] + 1)
            if seq_of_first(begin) is not None:
                path = self._directory / segment_file_name(first_seq, SegmentPart.IDX)
                raise Wrong(path, "this or its data is of another segment").error()
            return shift or 0
        return salt if shift is None else shift

    def read(
        self, segment: Segment, first_seq: int, last_seq: int, entries: Entries
    ) -> SegmentSlice:
        begin = int(entries["offset"][0])
        end = min(int(entries["offset"][-1]) + int(entries["len"][-1]), segment.data_bytes)
        data = self._store.read_range(segment.first_seq, SegmentPart.DATA, begin, end - begin)
        return SegmentSlice(memoryview(data), begin, self._directory)


@dataclass(slots=True)
class ColdSnapshot(LocationSnapshot):
    location: ColdLocation
    _known: dict[str, list[Split]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return [topic_directory_name(each) for each in self.location.tier.topic_ids()]

    def facts(self, name: str) -> TopicFacts | None:
        splits = self._splits(name)
        if not splits:
            return None
        return TopicFacts(name, 0, splits[0].first_seq, splits[-1].last_seq)

    def slices(
        self, facts: TopicFacts, first_seq: int, last_seq: int, filters: Filters
    ) -> list[ColdSlice]:
        low, high = max(first_seq, filters.seq.low), min(last_seq, filters.seq.high)
        kept = [
            split
            for split in clip(self._splits(facts.topic), low, high)
            if filters.seq.meets(split.first_seq, split.last_seq)
        ]
        return [
            ColdSlice(facts.topic, some)
            for some in portions(kept, self.location.rows_max, self.location.bytes_max)
        ]

    def seq_at(self, facts: TopicFacts, ts_us: int, *, tolerant: bool = False) -> int:
        files = self.location.files_of(facts.topic)
        for split in self._splits(facts.topic):
            if isinstance(split, SegmentSplit):
                young = files.index(split.segment)["ts"].astype("int64") * 1_000 >= ts_us
                if young.any():
                    return split.first_seq + int(young.argmax())
        return facts.head_seq + 1

    def _splits(self, name: str) -> list[Split]:
        if name not in self._known:
            splits: list[Split] = []
            for segment in self.location.files_of(name).segments():
                if splits and segment.first_seq > splits[-1].last_seq + 1:
                    before = splits[-1].last_seq + 1
                    splits.append(LostSplit(before, segment.first_seq - 1, NOT_COLD))
                splits.append(SegmentSplit(segment, segment.first_seq, segment.end_seq))
            self._known[name] = splits
        return self._known[name]


@dataclass
class ColdLocation(SentLocation):
    path: str = field(repr=False)
    rows_max: int
    bytes_max: int

    @cached_property
    def tier(self) -> ColdTier:
        return cold_tier(PosixDisk(), self.path)

    def files_of(self, name: str) -> ColdFiles:
        topic_id = parse_topic_directory_name(name)
        if topic_id is None:
            raise RequestError(
                f"a cold tier by itself knows topics by number, such as 0000002A, not {name!r}; "
                "to read topics by name give the data directory as path and the tier as cold"
            )
        directory = PurePath(shown(self.path)) / TOPICS_DIRECTORY / name
        return ColdFiles(self.tier.topic(topic_id), directory)

    def now(self, work: Callable[[ColdSnapshot], T]) -> T:
        return work(ColdSnapshot(self))

    def read(
        self, slices: list[ColdSlice], context: ReadContext
    ) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
        for each in slices:
            files = self.files_of(each.topic)
            for split in each.splits:
                for rows in self._read_split(files, split, context):
                    yield each.topic, rows

    def _read_split(
        self, files: ColdFiles, split: Split, context: ReadContext
    ) -> Iterator[RecordColumns | LostSeqs]:
        if not isinstance(split, SegmentSplit):
            assert isinstance(split, LostSplit)
            yield split.gap
            return
        at = split.first_seq
        tolerant = not context.fail_on_data_loss
        try:
            for result in read_segment_split(files, split, context, tolerant=tolerant):
                if result.what is not None:
                    yield result.what
                at = max(at, result.upto_seq + 1)
        except StorageError:
            # Gone since it was planned is a loss; there and not readable is damage.
            if any(each.first_seq == split.segment.first_seq for each in files.segments()):
                raise
            yield LostSplit(at, split.last_seq, NOT_COLD).gap


def shown(address: str) -> str:
    """An address as messages have it: without what opens the store."""
    if not address.startswith(URL_START):
        return address
    return address.removeprefix(URL_START).partition("?")[0].rpartition("@")[2]


def is_cold_tier(disk: Disk, path: str) -> bool:
    """True for a directory that has topics and no log."""
    return disk.is_directory(PurePath(path) / TOPICS_DIRECTORY)
