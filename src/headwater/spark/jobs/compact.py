"""`compact`: give back what deleted records occupy in the cold tier.

A record that is deleted after its segment went cold stays in the cold store until the segment is
rewritten. A running owner does that one segment at a time; this job does it for a directory that
no process uses, all at once, and takes the owner's lock meanwhile: what is rewritten moves, and an
owner keeps positions in memory. What readers see does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from headwater.config.store import SegmentSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.disk import Disk, PosixDisk
from headwater.format.names import TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import parse_topic_directory_name, topic_directory_name
from headwater.recovery.directory import access_error
from headwater.spark.jobs.compact_segments import (
    ColdSegment,
    CompactedSegment,
    CompactionOutcome,
    CompactionTask,
    compact_segment,
    find_cold_segments,
)
from headwater.spark.jobs.job import NoProgress, Progress, Report
from headwater.spark.jobs.log_directories import owned
from headwater.spark.jobs.task_map import MapAll, SparkMap
from headwater.spark.jobs.task_progress import tasks_shown
from headwater.spark.jobs.topic_names import topic_ids
from headwater.store.object_store import shown_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    cold = options.cold
    try:
        if not disk.is_directory(directory / WAL_DIRECTORY):
            raise RequestError(
                f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it"
            )
        if "://" not in cold and not disk.is_directory(PurePath(cold)):
            raise RequestError(f"there is no directory {cold} for the cold tier; check the path")
    except OSError as error:
        raise access_error(directory, error) from error


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
