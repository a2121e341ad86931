"""One scan of a whole data directory, file by file on any worker: logs, topics, segments.

The snapshot and the log say what a topic's segments must hold; where the log cannot be trusted,
segments are only checked for themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any, Final

import msgspec

from headwater.core.errors import StorageError
from headwater.disk import Disk
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    SegmentFile,
    parse_deleted_directory_name,
    parse_topic_directory_name,
    segment_file_name,
    topic_directory_name,
)
from headwater.format.snapshot import META_DIRECTORY, Snapshot
from headwater.recovery.stores import DEEP_KAFKA, DEEP_MACHINES, DIRECTORY_NAMES, MapSegments, gone
from headwater.recovery.topics.catalog import Catalog, KnownTopic
from headwater.recovery.topics.report import WalReport
from headwater.recovery.topics.snapshots import covered_frames, load_snapshot, snapshot_faults
from headwater.recovery.topics.survey import ShardSurvey
from headwater.spark.jobs.job import MapAll
from headwater.spark.jobs.log_files import LogRead, catalog_of, noted_log
from headwater.store.cold_tier import open_cold_tier, shown_address
from headwater.store.tier import TopicTier
from headwater.store.topic_directory import TopicDirectory
from headwater.store.verify import (
    Expected,
    FaultKind,
    SegmentRange,
    TopicSegmentCheck,
    VerifyFault,
    check_names,
    verify_cold_segment,
    verify_continuity,
    verify_segment,
)

UNKNOWN: Final = "not a name this software gives"


class DirectoryCounts(msgspec.Struct):
    """What a scan went through."""

    snapshots: int = 0
    topics: int = 0
    segments: int = 0
    records: int = 0
    """Seqs in segments."""
    data_bytes: int = 0
    """Bytes of segments and of the other logs whose checksums were checked."""
    kafka_segments: int = 0
    kafka_batches: int = 0
    machine_segments: int = 0
    machine_entries: int = 0


@dataclass(slots=True)
class DirectoryScan:
    wal: WalReport
    faults: list[VerifyFault] = field(default_factory=list)
    counts: DirectoryCounts = field(default_factory=DirectoryCounts)
    by_topic: dict[int, list[VerifyFault]] = field(default_factory=dict)
    """Faults of topics' files, by topic."""

    def all_faults(self) -> list[VerifyFault]:
        return [*self.faults, *(fault for of in self.by_topic.values() for fault in of)]


@dataclass(frozen=True, slots=True)
class ScanTask:
    topic_id: int
    path: str
    expected: Expected | None
    cold: str | None


@dataclass(frozen=True, slots=True)
class SegmentTask:
    topic: ScanTask
    first_seq: int


def scan_directory(
    disk: Disk,
    directory: PurePath,
    cold: str | None,
    map_all: MapAll,
    only: frozenset[int] | None = None,
) -> DirectoryScan:
    """Everything; or the log, and of the topics' files those of `only` these topics."""
    snapshot, unreadable = _snapshot(disk, directory)
    log = noted_log(disk, directory, snapshot, map_all, deep=True)
    scan = DirectoryScan(log.report)
    scan.faults += _strange_names(disk, directory)
    scan.faults += _bytes_behind(log)
    faults, scan.counts.snapshots = snapshot_faults(disk, directory)
    scan.faults += faults
    catalog = None
    if unreadable is not None:
        scan.faults.append(unreadable)
    elif not log.report.refusals:
        scan.faults += _beyond_reach(log.report.shards, directory, snapshot)
        catalog = catalog_of(log, snapshot)
        scan.counts.topics = len(catalog)
    _scan_topics(disk, directory, catalog, cold, map_all, only, scan)
    kafka = DEEP_KAFKA.run(disk, directory, _counting(map_all, scan))
    machines = DEEP_MACHINES.run(disk, directory, _counting(map_all, scan))
    scan.faults += [*kafka.faults, *machines.faults]
    scan.counts.kafka_segments, scan.counts.kafka_batches = kafka.segments, kafka.entries
    scan.counts.machine_segments, scan.counts.machine_entries = machines.segments, machines.entries
    return scan


def _counting(map_all: MapAll, scan: DirectoryScan) -> MapSegments:
    def check_all(check: Callable[[Any], Any], segments: Sequence[Any]) -> list[Any]:
        checks = map_all(check, segments)
        scan.counts.data_bytes += sum(each.data_bytes for each in checks)
        return checks

    return check_all


def _snapshot(disk: Disk, directory: PurePath) -> tuple[Snapshot | None, VerifyFault | None]:
    try:
        return load_snapshot(disk, directory, []), None
    except StorageError as error:
        path = directory / META_DIRECTORY if error.path is None else PurePath(error.path)
        return None, VerifyFault(path, error.offset, error.what, True, FaultKind.SNAPSHOT)


def _strange_names(disk: Disk, directory: PurePath) -> Iterator[VerifyFault]:
    for name in disk.list_directory(directory):
        if name not in DIRECTORY_NAMES:
            yield VerifyFault(directory / name, None, UNKNOWN, False, FaultKind.NAME)


def _bytes_behind(log: LogRead) -> Iterator[VerifyFault]:
    """Of an earlier file no reader uses what is behind its end; but no writer changes it either."""
    for shard in log.report.shards:
        for scan in shard.files[:-1]:
            result = log.files.get(scan.path)
            if result is not None and not result.ends_in_zeros and not scan.abandoned:
                what = "bytes behind the last group of the file; no reader uses them"
                yield VerifyFault(scan.path, scan.end, what, False, FaultKind.BEYOND)
            if scan.groups and scan.length < scan.file_bytes:
                what = f"shorter than the {scan.file_bytes} bytes it was made with; nothing is lost"
                yield VerifyFault(scan.path, scan.length, what, False, FaultKind.BEYOND)


def _beyond_reach(
    shards: Sequence[ShardSurvey], directory: PurePath, snapshot: Snapshot | None
) -> Iterator[VerifyFault]:
    """The log must begin no later than where the snapshot ends."""
    covered = {} if snapshot is None else covered_frames(directory, snapshot, list(shards))
    for shard in shards:
        ends = covered.get(shard.directory, 0)
        if shard.files and shard.files[0].number > ends + 1:
            what = (
                f"the log begins at frame {shard.files[0].number}, but the newest readable "
                f"snapshot ends at frame {ends}"
            )
            yield VerifyFault(shard.files[0].path, 0, what, True, FaultKind.CONTINUITY)


def _scan_topics(
    disk: Disk,
    directory: PurePath,
    catalog: Catalog | None,
    cold: str | None,
    map_all: MapAll,
    only: frozenset[int] | None,
    scan: DirectoryScan,
) -> None:
    root = directory / TOPICS_DIRECTORY
    known = {} if catalog is None else {topic.topic_id: topic for topic in catalog}
    there: set[int] = set()
    for name in disk.list_directory(root) if disk.is_directory(root) else []:
        topic_id = parse_topic_directory_name(name)
        if parse_deleted_directory_name(name) is not None:
            what = "a dropped topic whose files still have to go"
            scan.faults.append(VerifyFault(root / name, None, what, False, FaultKind.UNFINISHED))
        elif topic_id is None:
            scan.faults.append(VerifyFault(root / name, None, UNKNOWN, False, FaultKind.NAME))
        elif catalog is not None and topic_id not in known:
            what = "belongs to no topic"
            scan.faults.append(VerifyFault(root / name, None, what, False, FaultKind.TOPIC))
        else:
            there.add(topic_id)
    topics = [
        ScanTask(
            topic_id,
            str(root / topic_directory_name(topic_id)),
            None if catalog is None else _expected(known[topic_id]),
            cold,
        )
        for topic_id in sorted(there | known.keys())
        if only is None or topic_id in only
    ]
    _scan_segments(disk, topics, known, map_all, scan)


def _expected(topic: KnownTopic) -> Expected:
    stored = topic.stored
    checkpointed = topic.checkpointed_seq if topic.now.durability.is_logged else 0
    return Expected(stored.first_needed, checkpointed, stored.active_first_seq, stored.flagged)


def _scan_segments(
    disk: Disk,
    topics: Sequence[ScanTask],
    known: Mapping[int, KnownTopic],
    map_all: MapAll,
    scan: DirectoryScan,
) -> None:
    faults: dict[int, list[VerifyFault]] = defaultdict(list)
    ranges: dict[int, list[SegmentRange]] = defaultdict(list)
    tasks: list[SegmentTask] = []
    for task, named in zip(topics, map_all(partial(scan_topic_names, disk), topics), strict=True):
        faults[task.topic_id] += named.faults
        tasks += [SegmentTask(task, first_seq) for first_seq in named.first_seqs]
    for each, result in zip(tasks, map_all(partial(scan_segment, disk), tasks), strict=True):
        faults[each.topic.topic_id] += result.faults
        scan.counts.segments += 1
        scan.counts.data_bytes += result.data_bytes
        if result.range is not None:
            ranges[each.topic.topic_id].append(result.range)
            scan.counts.records += result.range.end_seq - result.range.first_seq + 1
    for task in topics:
        of_topic = ranges[task.topic_id]
        faults[task.topic_id] += verify_continuity(PurePath(task.path), of_topic, task.expected)
        topic = known.get(task.topic_id)
        if topic is not None:
            faults[task.topic_id] += _miscounted(PurePath(task.path), topic, of_topic)
    scan.by_topic = {topic_id: some for topic_id, some in faults.items() if some}


def _miscounted(
    path: PurePath, topic: KnownTopic, ranges: Sequence[SegmentRange]
) -> Iterator[VerifyFault]:
    """Where nothing happened since, the segments hold what the snapshot counted."""
    meta = topic.meta
    if meta is None or topic.changed or not topic.now.durability.is_logged:
        return
    counted = (sum(each.live for each in ranges), sum(each.live_bytes for each in ranges))
    if counted != (meta.count, meta.bytes):
        what = (
            f"{counted[0]} records of {counted[1]} bytes are in segments, and the snapshot counts "
            f"{meta.count} of {meta.bytes}"
        )
        yield VerifyFault(path, None, what, True, FaultKind.CONTINUITY)


@dataclass(frozen=True, slots=True)
class NamesScan:
    faults: list[VerifyFault]
    first_seqs: list[int]


def scan_topic_names(disk: Disk, task: ScanTask) -> NamesScan:
    """The names of one topic's files, and what in the cold tier nothing leads to."""
    path = PurePath(task.path)
    try:
        faults, first_seqs = check_names(disk, path, task.expected)
        if task.cold is not None:
            tier = TopicTier(
                TopicDirectory(disk, path), open_cold_tier(disk, task.cold).topic(task.topic_id)
            )
            for first_seq in tier.orphans():
                copy = _cold_directory(task) / segment_file_name(first_seq, SegmentFile.DATA)
                what = "nothing leads to this copy; left by work that was interrupted"
                faults.append(VerifyFault(copy, None, what, False, FaultKind.UNFINISHED))
    except FileNotFoundError as error:
        return NamesScan([gone(path, error)], [])
    return NamesScan(faults, first_seqs)


def scan_segment(disk: Disk, task: SegmentTask) -> TopicSegmentCheck:
    """Every frame and entry of one segment, in both tiers."""
    topic = task.topic
    path = PurePath(topic.path)
    try:
        scan = verify_segment(disk, path, task.first_seq, topic.expected)
        pointer = path / segment_file_name(task.first_seq, SegmentFile.COLD)
        index = path / segment_file_name(task.first_seq, SegmentFile.IDX)
        if not disk.exists(pointer) or disk.exists(index):
            return scan
        if topic.cold is None:
            what = "its frames were not checked: the cold tier was not named"
            scan.faults.append(VerifyFault(pointer, None, what, True, FaultKind.COLD))
            return scan
        store = open_cold_tier(disk, topic.cold).topic(topic.topic_id)
        cold_scan = verify_cold_segment(disk, path, task.first_seq, store, _cold_directory(topic))
    except FileNotFoundError as error:
        return TopicSegmentCheck([gone(path, error)])
    scan.faults += cold_scan.faults
    scan.data_bytes += cold_scan.data_bytes
    return scan


def _cold_directory(topic: ScanTask) -> PurePath:
    assert topic.cold is not None
    return PurePath(
        shown_address(topic.cold), TOPICS_DIRECTORY, topic_directory_name(topic.topic_id)
    )
