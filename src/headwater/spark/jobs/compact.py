"""`compact`: give back what deleted records occupy in the cold tier.

A record that is deleted after its segment went cold stays in the cold store until the segment is
rewritten. A running owner does that one segment at a time; this job does it for a directory that
no process uses, all at once, and takes the owner's lock meanwhile: what is rewritten moves, and an
owner keeps positions in memory. What readers see does not change.

The way leads through the hot directory, by the steps an owner takes: the new pair is made beside
the index that points to the cold copy and swapped in; only then is the cold copy replaced, and the
pointer flipped back. Whatever a crash comes after, a start or the next run of this job finds one
whole copy and finishes (I7): a hot segment that has a cold copy is on its way there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from headwater.config.store import SegmentSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError, StorageError
from headwater.core.units import US_PER_S
from headwater.disk import Disk, PosixDisk, read_all
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    Entries,
    IndexFlag,
    SegmentFile,
    bad_entries,
    index_flags,
    parse_topic_directory_name,
    salt_of,
    topic_directory_name,
)
from headwater.spark.jobs.job import MapAll, NoProgress, Progress, Report, SparkMap, tasks_shown
from headwater.spark.jobs.log_directories import owned, require_cold, require_data_directory
from headwater.spark.jobs.log_files import topic_ids
from headwater.store import reclaim
from headwater.store.cold_tier import open_cold_tier, shown_address
from headwater.store.ownership import cold_identity, pair_identity, read_head
from headwater.store.pair import end_of, whole_entries
from headwater.store.reclaim import is_rewrite_due
from headwater.store.segment import Segment, Tier, file_work
from headwater.store.tier import cold_end
from headwater.store.topic_directory import COLD, HOT, TopicDirectory, finish_interrupted
from headwater.store.topic_files import TopicFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEE: str = "`headwater pipeline verify` reports more"


@dataclass(frozen=True, slots=True)
class CompactionTask:
    topic_id: int
    directory: str
    cold: str
    dead_ratio: float


@dataclass(frozen=True, slots=True)
class ColdSegment:
    topic: CompactionTask
    first_seq: int


class CompactionOutcome(Enum):
    KEPT = "kept"
    """Not enough of it is dead."""
    REWRITTEN = "rewritten"
    MOVED = "moved"
    """Found on its way back to the cold tier."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    topic_id: int
    first_seq: int
    outcome: CompactionOutcome
    bytes_before: int = 0
    bytes_after: int = 0
    reason: str = ""


def find_cold_segments(disk: Disk, topic: CompactionTask) -> list[ColdSegment]:
    """Finish what was interrupted, then list what is cold or should be. The caller owns it all."""
    directory = TopicDirectory(disk, PurePath(topic.directory))
    cold = open_cold_tier(disk, topic.cold).topic(topic.topic_id)

    def drop(first_seq: int) -> bool:
        cold.delete(first_seq)
        return True

    with file_work(directory.path):
        directory.scan()
        for first_seq, files in directory.segments.items():
            if SegmentFile.COLD in files or not files <= HOT:
                finish_interrupted(directory, first_seq, drop)
    there = frozenset(cold.list())
    return [
        ColdSegment(topic, first_seq)
        for first_seq, files in sorted(directory.segments.items())
        if files == COLD or (files == HOT and first_seq in there)
    ]


def compact_segment(disk: Disk, task: ColdSegment) -> CompactedSegment:
    """Rewrite the segment if that is worth it. Damage is left as it is, and reported."""
    topic, first_seq = task.topic, task.first_seq
    settings = SegmentSettings(rewrite_dead_ratio=topic.dead_ratio)
    store = open_cold_tier(disk, topic.cold).topic(topic.topic_id)
    files = TopicFiles(disk, PurePath(topic.directory), settings, cold=store)
    try:
        segment = _segment(disk, PurePath(topic.directory), first_seq)
        entries = files.index(segment)
        if (index_flags(entries) & IndexFlag.DAMAGED).any():
            return _refused(task, f"an index entry is damaged; {SEE}")
        outcome = CompactionOutcome.KEPT if segment.is_cold else CompactionOutcome.MOVED
        before = segment.data_bytes
        if is_rewrite_due(segment, entries, settings):
            segment = _rewrite(disk, files, segment, entries)
            outcome = CompactionOutcome.REWRITTEN
        if not segment.is_cold:
            files.copy_to_cold(segment)
            segment = files.drop_hot(segment)
    except StorageError as error:
        return _refused(task, str(error))
    return CompactedSegment(topic.topic_id, first_seq, outcome, before, segment.data_bytes)


def _rewrite(disk: Disk, files: TopicFiles, segment: Segment, entries: Entries) -> Segment:
    """Into the hot directory. The cold copy stays: its name says where the segment belongs."""
    whole = files.read(segment, segment.first_seq, segment.end_seq, entries)
    data, compacted = reclaim.compact(segment, entries, whole)
    directory = TopicDirectory(disk, files.directory)
    renewed = reclaim.identify(directory, segment, data, compacted)
    with file_work(files.directory):
        reclaim.prepare(directory, segment, data, compacted.tobytes())
        return reclaim.swap(directory, renewed, len(data))


def _refused(task: ColdSegment, reason: str) -> CompactedSegment:
    return CompactedSegment(
        task.topic.topic_id, task.first_seq, CompactionOutcome.REFUSED, reason=reason
    )


def _segment(disk: Disk, directory: PurePath, first_seq: int) -> Segment:
    """A sealed segment as its files have it; StorageError when they do not agree."""
    topic = TopicDirectory(disk, directory)
    pointer = topic.path_of(first_seq, SegmentFile.COLD)
    with file_work(directory):
        is_cold = disk.exists(pointer)
        path = pointer if is_cold else topic.path_of(first_seq, SegmentFile.IDX)
        contents = read_all(disk, path)
        entries = whole_entries(contents)
        if is_cold:
            identity = cold_identity(topic, first_seq, entries[:-1], entries[-1:])
            end = cold_end(entries[-1:], first_seq + len(entries) - 1)
            data_bytes = None if end is None else end.data_bytes
            entries = entries[:-1]
        else:
            head = read_head(disk, topic.path_of(first_seq, SegmentFile.DATA))
            identity = pair_identity(topic, first_seq, head, entries)
            is_sound = not len(bad_entries(entries, first_seq, salt_of(identity)))
            data_bytes = head.size if head.size == end_of(entries) and is_sound else None
    if data_bytes is None or not len(entries) or len(contents) % ENTRY_BYTES:
        raise StorageError("the index does not say where it ends", path=path, advice=SEE)
    tier = Tier.COLD if is_cold else Tier.HOT
    created_ms = int(entries["ts"][0])
    return Segment(first_seq, len(entries), data_bytes, True, created_ms, tier, identity)


_DEFAULT_RATIO = SegmentSettings().rewrite_dead_ratio


class CompactOptions(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """A data directory that no process uses."""
    cold: str
    """Its cold tier: a directory or the URL of an object store."""
    topics: tuple[str, ...] = ()
    """These only; all when none is named."""
    dead_ratio: float = _DEFAULT_RATIO
    """A segment is rewritten when this share of its bytes is dead."""


class RefusedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was left as it is, and why."""

    segment: str
    reason: str


class CompactReport(Report, frozen=True, kw_only=True):
    source: str
    cold: str
    topics: int
    """Topics with anything in the cold tier."""
    segments: int
    """Their segments that are cold,"""
    rewritten: int
    """those of them that were rewritten,"""
    moved: int
    """and those that an earlier run had left on their way back."""
    bytes_before: int
    bytes_after: int
    bytes_freed: int
    refused: tuple[RefusedSegment, ...]
    seconds: float


def run(
    spark: SparkSession, options: CompactOptions, progress: Progress | None = None
) -> CompactReport:
    """Compact with the tasks of a session."""
    with tasks_shown(spark, progress):
        return compact(PosixDisk(), SystemClock(), SparkMap(spark), options, progress)


def compact(
    disk: Disk,
    clock: Clock,
    map_all: MapAll,
    options: CompactOptions,
    progress: Progress | None = None,
) -> CompactReport:
    """The same with any way to map a function over items."""
    say = (progress or NoProgress()).say
    directory = PurePath(options.path)
    began_us = clock.monotonic_us()
    _check(disk, directory, options)
    with owned(disk, [directory], writing=True):
        say("listing cold segments")
        topics = _topics(disk, directory, options, map_all)
        segments_by_topic = map_all(partial(find_cold_segments, disk), topics)
        tasks: list[ColdSegment] = [task for of_topic in segments_by_topic for task in of_topic]
        say("rewriting segments")
        done = map_all(partial(compact_segment, disk), tasks)
    seconds = (clock.monotonic_us() - began_us) / US_PER_S
    with_cold = sum(1 for of_topic in segments_by_topic if of_topic)
    return _report(options, done, with_cold, seconds)


def _check(disk: Disk, directory: PurePath, options: CompactOptions) -> None:
    if not 0 < options.dead_ratio <= 1:
        raise RequestError("the share of dead bytes must be above 0 and at most 1")
    require_data_directory(disk, directory)
    require_cold(disk, options.cold)


def _topics(
    disk: Disk, directory: PurePath, options: CompactOptions, map_all: MapAll
) -> list[CompactionTask]:
    root = directory / TOPICS_DIRECTORY
    wanted = topic_ids(disk, directory, options.topics, map_all) if options.topics else None
    names = disk.list_directory(root) if disk.is_directory(root) else []
    ids = [topic_id for topic_id in map(parse_topic_directory_name, names) if topic_id is not None]
    return [
        CompactionTask(
            topic_id, str(root / topic_directory_name(topic_id)), options.cold, options.dead_ratio
        )
        for topic_id in ids
        if wanted is None or topic_id in wanted
    ]


def _report(
    options: CompactOptions,
    done: Sequence[CompactedSegment],
    topics: int,
    seconds: float,
) -> CompactReport:
    refused = [each for each in done if each.outcome is CompactionOutcome.REFUSED]
    before, after = sum(each.bytes_before for each in done), sum(each.bytes_after for each in done)
    return CompactReport(
        ok=not refused,
        source=options.path,
        cold=shown_address(options.cold),
        topics=topics,
        segments=len(done),
        rewritten=sum(each.outcome is CompactionOutcome.REWRITTEN for each in done),
        moved=sum(each.outcome is CompactionOutcome.MOVED for each in done),
        bytes_before=before,
        bytes_after=after,
        bytes_freed=before - after,
        refused=tuple(
            RefusedSegment(
                segment=f"{topic_directory_name(each.topic_id)}/{each.first_seq}",
                reason=each.reason,
            )
            for each in refused
        ),
        seconds=round(seconds, 3),
    )
