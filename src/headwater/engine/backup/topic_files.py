"""Topics in a backup: segments of a directory that its owner may be changing, the snapshot, and of
the log every whole group that a view has seen, with a CURRENT that fits to them.

A segment is copied as one pair: index first, then the data the index speaks of, then the index
again. When the two reads of the index differ in more than delete flags, the pair was rewritten in
between and is copied once more. A copy whose index is still the same later needs no second one.

`topic_facts` says what a topic holds, for the manifest and for the check of what was restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath

from headwater.core.arrays import numpy
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import FormatError
from headwater.disk import Buffer, Disk, OpenMode, opened, read_all, read_range
from headwater.engine.backup.archive import ArchiveWriter, read_chunks
from headwater.engine.read_only import DirectoryView
from headwater.engine.state.topic import Topic
from headwater.format.backup import BackupMember, BackupTopic
from headwater.format.checksum import checksum64
from headwater.format.log_state import Current, encode_current, encode_repairs
from headwater.format.names import CURRENT_NAME, REPAIRS_NAME, TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    Entries,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    bad_entries,
    segment_file_name,
    topic_directory_name,
)
from headwater.format.snapshot import META_DIRECTORY, decode_snapshot, snapshot_name
from headwater.model.topic import TopicLog
from headwater.recovery.topics.scan import FileScan
from headwater.recovery.topics.survey import ShardSurvey
from headwater.store.pair import end_of, whole_entries
from headwater.store.segment import Segment, SegmentChangedError, Tier

_DEAD = int(IndexFlag.DELETED | IndexFlag.LOST)
_RECORD = int(IndexFlag.HAS_TAG | IndexFlag.HAS_NODE | IndexFlag.HAS_META)
PAIR_TRIES_MAX = 5

Pair = tuple[BackupMember, BackupMember]


def topic_facts(topic: Topic, log: TopicLog) -> BackupTopic:
    """`log` is the topic's own, or what was just read from its files."""
    return BackupTopic(
        topic.name,
        topic.topic_id,
        log.epoch,
        log.visible_seq,
        log.earliest_seq,
        log.evict_floor,
        log.count,
        log.bytes,
        f"{_index_checksum(log):016x}",
    )


def _index_checksum(log: TopicLog) -> int:
    """Which records are alive, with their lengths, times and flags. What is in them is vouched for
    by the checksum of each record, which covers its seq."""
    base, end = log.index.base_seq, log.visible_seq
    if end < base:
        return checksum64(b"")
    entries = log.index.entries(base, end)
    alive = numpy.flatnonzero(entries["flags_check"] & _DEAD == 0)
    columns = (
        alive.astype("<i8") + base,
        entries["len"][alive].astype("<u4"),
        entries["ts"][alive].astype("<u8"),
        (entries["flags_check"][alive] & _RECORD).astype("<u4"),
    )
    return checksum64(b"".join(column.tobytes() for column in columns))


class StillClock:
    """A wall clock that stands still: a backup is read as of the moment it was made.

    With the machine's own clock, records that have expired since would be gone from a copy before
    a check could compare it, or a restore could go to an earlier time.
    """

    def __init__(self, clock: Clock, wall_ms: int) -> None:
        self._clock = clock
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        return self._clock.wait(doorbell, until_us)


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    index_checksum: int
    members: Pair


class SegmentCopier:
    def __init__(self, disk: Disk, archive: ArchiveWriter) -> None:
        self._disk = disk
        self._archive = archive
        self._copied: dict[tuple[int, int], CopiedSegment] = {}
        """By topic id and first seq."""

    def copy(self, topic: Topic, segment: Segment) -> tuple[Pair, Entries]:
        """Have a copy of the segment as it is now; gives the entries that were copied too."""
        if segment.is_cold:
            return self._copy_cold(topic, segment)
        try:
            return self._copy_whole(topic, segment)
        except FileNotFoundError:
            if topic.files.tier.resolve(segment.first_seq) is not Tier.COLD:
                raise
            # It moved since the view was taken, as others will: no reason to begin again.
            return self._copy_cold(topic, replace(segment, tier=Tier.COLD))

    def _copy_whole(self, topic: Topic, segment: Segment) -> tuple[Pair, Entries]:
        path = topic.files.directory / segment_file_name(segment.first_seq, SegmentFile.IDX)
        for _ in range(PAIR_TRIES_MAX):
            entries = self._index(path, segment)
            known = self._known(topic, segment, entries)
            if known is not None:
                return known, entries
            pair = self._copy_hot(topic, segment, entries)
            if _have_the_same_offsets(entries, self._index(path, segment)):
                self._remember(topic, segment, entries, pair)
                return pair, entries
        raise SegmentChangedError(f"{path} is being rewritten")

    def _index(self, path: PurePath, segment: Segment) -> Entries:
        size = segment.count * ENTRY_BYTES
        contents = read_range(self._disk, path, 0, size)
        entries = whole_entries(contents)
        if len(contents) < size or len(bad_entries(entries, segment.first_seq, segment.salt)):
            # An owner reads a damaged index again from the data; a backup must not freeze it.
            raise SegmentChangedError(f"the index {path} is not sound")
        return entries

    def _known(self, topic: Topic, segment: Segment, entries: Entries) -> Pair | None:
        known = self._copied.get((topic.topic_id, segment.first_seq))
        if known is None or known.index_checksum != checksum64(entries.tobytes()):
            return None
        return known.members

    def _remember(self, topic: Topic, segment: Segment, entries: Entries, pair: Pair) -> None:
        copied = CopiedSegment(checksum64(entries.tobytes()), pair)
        self._copied[topic.topic_id, segment.first_seq] = copied

    def _copy_hot(self, topic: Topic, segment: Segment, entries: Entries) -> Pair:
        path = topic.files.directory / segment_file_name(segment.first_seq, SegmentFile.DATA)
        size = end_of(entries)
        with opened(self._disk, path, OpenMode.READ) as file:
            if file.size() < size:
                raise SegmentChangedError(f"{path} is shorter than its index says")
            return self._add(topic, segment, read_chunks(file, 0, size), size, entries)

    def _copy_cold(self, topic: Topic, segment: Segment) -> tuple[Pair, Entries]:
        """A restored segment is hot: a backup is whole without the cold tier."""
        entries = topic.files.index(segment)
        known = self._known(topic, segment, entries)
        if known is not None:
            return known, entries
        contents = topic.files.read(segment, segment.first_seq, segment.end_seq, entries)
        pair = self._add(topic, segment, [contents.buffer], len(contents.buffer), entries)
        self._remember(topic, segment, entries, pair)
        return pair, entries

    def _add(
        self,
        topic: Topic,
        segment: Segment,
        chunks: Iterable[Buffer],
        size: int,
        entries: Entries,
    ) -> Pair:
        where = f"{TOPICS_DIRECTORY}/{topic_directory_name(topic.topic_id)}"
        names = {
            part: f"{where}/{segment_file_name(segment.first_seq, part)}" for part in SegmentPart
        }
        data = self._archive.add(names[SegmentPart.DATA], chunks, size)
        index = entries.tobytes()
        return data, self._archive.add(names[SegmentPart.IDX], [index], len(index))


def _have_the_same_offsets(one: Entries, other: Entries) -> bool:
    return bool((one["offset"] == other["offset"]).all() and (one["len"] == other["len"]).all())


def copy_snapshot(disk: Disk, archive: ArchiveWriter, view: DirectoryView) -> list[BackupMember]:
    number = view.notes.snapshot_number
    if not number:
        return []
    name = f"{META_DIRECTORY}/{snapshot_name(number)}"
    contents = read_all(disk, view.core.directory / name)
    try:
        decode_snapshot(contents)
    except FormatError as error:
        raise SegmentChangedError(f"{name} was changed: {error.reason}") from error
    return [archive.add(name, [contents], len(contents))]


def copy_log(disk: Disk, archive: ArchiveWriter, view: DirectoryView) -> list[BackupMember]:
    members: list[BackupMember] = []
    root = view.core.directory / WAL_DIRECTORY
    for shard in view.shards:
        if shard.chain.log_id is None or not shard.files:
            continue  # made, and never written to
        where = "/".join((WAL_DIRECTORY, *shard.directory.relative_to(root).parts))
        needed = _needed_files(shard, view.covered_frame(shard.directory))
        members += [_copy_file(disk, archive, where, scan) for scan in needed]
        last = needed[-1]
        current = encode_current(
            Current(last.number, last.length, last.end, needed[0].number, shard.chain.log_id)
        )
        members.append(archive.add(f"{where}/{CURRENT_NAME}", [current], len(current)))
        if shard.repairs.skips:
            repairs = encode_repairs(shard.repairs)
            members.append(archive.add(f"{where}/{REPAIRS_NAME}", [repairs], len(repairs)))
    return members


def _needed_files(shard: ShardSurvey, covered_frame: int) -> list[FileScan]:
    """Without the oldest ones, of which the snapshot has every frame."""
    first = 0
    while first + 1 < len(shard.files) and shard.files[first + 1].number <= covered_frame + 1:
        first += 1
    return shard.files[first:]


def _copy_file(disk: Disk, archive: ArchiveWriter, where: str, scan: FileScan) -> BackupMember:
    """Up to the end of the last whole group; the rest of the file is zeros."""
    with opened(disk, scan.path, OpenMode.READ) as file:
        name = f"{where}/{scan.path.name}"
        return archive.add(name, read_chunks(file, 0, scan.end), scan.end, scan.length)
