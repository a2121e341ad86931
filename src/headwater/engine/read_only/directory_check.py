"""The whole data directory, read and compared with itself: log, segments, Kafka, machines.

Works beside an owner. What is really there is there the second time as well, so a fault counts when
two scans in a row agree on it. Nothing is locked and nothing is written.

A cold store that does not answer is no damage: it is reported once, and its segments stay
unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock
from headwater.core.errors import FormatError, RequestError, StorageError, UnavailableError
from headwater.disk import Disk, file_bytes
from headwater.engine.read_only import DirectoryView
from headwater.engine.state.topic import Topic
from headwater.format.kafka.names import KAFKA_DIRECTORY
from headwater.format.machines.names import MACHINES_DIRECTORY
from headwater.format.names import TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import (
    SegmentPart,
    parse_deleted_directory_name,
    parse_topic_directory_name,
    segment_file_name,
    topic_directory_name,
)
from headwater.recovery.directory import accessing
from headwater.recovery.stores import DEEP_KAFKA, DEEP_MACHINES, DIRECTORY_NAMES, MapSegments, gone
from headwater.recovery.topics.report import WalReport, inspect_until_stable
from headwater.recovery.topics.snapshots import snapshot_faults
from headwater.store.cold_tier import find_cold_tier, remembered_cold_tier, shown_address
from headwater.store.segment import SegmentChangedError
from headwater.store.segment_stores import ColdTier, SegmentStore
from headwater.store.tier import cold_bytes
from headwater.store.verify import (
    Advance,
    Expected,
    FaultKind,
    TopicSegmentCheck,
    VerifyFault,
    verify_cold_segment,
    verify_segments,
)

UNKNOWN: Final = "its frames were not checked: name the cold tier with --cold"
SCANS_MAX: Final = 6
Begin = Callable[[int], Advance]


class ColdCheck:
    """`location` is where the caller says the tier is; without it, what the directory remembers."""

    def __init__(self, disk: Disk, directory: PurePath, location: str | None) -> None:
        self._disk = disk
        self._location = location or remembered_cold_tier(disk, directory)
        self._tier: ColdTier | None = None
        self._away: VerifyFault | None = None
        self.unchecked: list[VerifyFault] = []
        """Why frames were not read: none of it is damage."""

    def source(self, path: PurePath, topic_id: int) -> ColdTopic:
        """How to read one topic, whose directory is `path`."""
        return ColdTopic(self, self._disk, path, topic_id)

    def store_of(self, topic_id: int) -> SegmentStore | None:
        """None while the tier is not known or does not answer; `unchecked` has the reason then."""
        if self._tier is None and self._location is not None and self._away is None:
            try:
                self._tier = find_cold_tier(self._disk, self._location)
            except (UnavailableError, StorageError, RequestError) as error:
                self.is_away(error)
        return None if self._tier is None else self._tier.topic(topic_id)

    def shown(self, topic_id: int) -> PurePath:
        shown = shown_address(self._location or "")
        return PurePath(shown, TOPICS_DIRECTORY, topic_directory_name(topic_id))

    def is_away(self, error: Exception) -> None:
        what = f"the cold tier cannot be read, cold segments stay unchecked: {error}"
        self._away = VerifyFault(PurePath(shown_address(self._location or "")), None, what, False)
        self._tier = None
        self.unchecked.append(self._away)

    def is_unknown(self, pointer: PurePath) -> None:
        if self._location is None:
            self.unchecked.append(VerifyFault(pointer, None, UNKNOWN, False, FaultKind.COLD))


class ColdTopic:
    """A `ColdSource` for one topic."""

    def __init__(self, check: ColdCheck, disk: Disk, path: PurePath, topic_id: int) -> None:
        self._check = check
        self._disk = disk
        self._path = path
        self._topic_id = topic_id

    def check(self, first_seq: int, pointer: PurePath) -> TopicSegmentCheck | None:
        store = self._check.store_of(self._topic_id)
        if store is None:
            self._check.is_unknown(pointer)
            return None
        location = self._check.shown(self._topic_id)
        try:
            return verify_cold_segment(self._disk, self._path, first_seq, store, location)
        except (UnavailableError, StorageError) as error:
            self._check.is_away(error)
            return None

    def stored(self) -> dict[int, PurePath]:
        store = self._check.store_of(self._topic_id)
        if store is None:
            return {}
        location = self._check.shown(self._topic_id)
        try:
            names = {each: segment_file_name(each, SegmentPart.DATA) for each in store.list()}
        except (UnavailableError, StorageError) as error:
            self._check.is_away(error)
            return {}
        return {first_seq: location / name for first_seq, name in names.items()}


@dataclass(slots=True)
class DirectoryReport:
    wal: WalReport
    faults: list[VerifyFault] = field(default_factory=list)
    topics: int = 0
    segments: int = 0
    snapshots: int = 0
    kafka_segments: int = 0
    kafka_batches: int = 0
    machine_segments: int = 0
    machine_entries: int = 0
    unchecked: list[VerifyFault] = field(default_factory=list)
    """What could not be read, and is no damage for that: a cold tier that does not answer."""

    @property
    def bad(self) -> list[VerifyFault]:
        return [fault for fault in self.faults if fault.bad]


@dataclass(frozen=True, slots=True)
class VerifyScope:
    """What is verified: one directory, and the cold tier that belongs to it."""

    disk: Disk
    directory: PurePath
    clock: Clock
    deep: bool
    cold: str | None
    """Where the tier is; None for what the directory remembers."""


def verify_directory(
    disk: Disk,
    directory: PurePath,
    clock: Clock,
    begin: Begin,
    *,
    deep: bool = False,
    cold: str | None = None,
) -> DirectoryReport:
    """Two scans that agree, or one that found nothing."""
    scope = VerifyScope(disk, directory, clock, deep, cold)
    with accessing(directory):
        advance = begin(_data_bytes(disk, directory))
        report = _scan(scope, advance)
        agreed = report.faults
        for _ in range(SCANS_MAX):
            if all(fault.kind is FaultKind.UNNAMED for fault in report.faults):
                return report
            earlier = frozenset(report.faults)
            report = _scan(scope, lambda _: None)
            agreed = [fault for fault in report.faults if fault in earlier]
            if {fault for fault in report.faults if fault.bad} <= earlier:
                break
    report.faults = agreed
    return report


def _scan(scope: VerifyScope, advance: Advance) -> DirectoryReport:
    disk, directory = scope.disk, scope.directory
    wal = inspect_until_stable(disk, directory / WAL_DIRECTORY, deep=scope.deep)
    report = DirectoryReport(wal)
    cold = ColdCheck(disk, directory, scope.cold)
    for name in disk.list_directory(directory):
        if name not in DIRECTORY_NAMES:
            report.faults.append(_unknown(directory / name))
    faults, report.snapshots = snapshot_faults(disk, directory)
    report.faults += faults
    topics = None if wal.refusals else _topics(disk, directory, scope.clock, report)
    root = directory / TOPICS_DIRECTORY
    report.faults += _topic_faults(disk, root, topics, report, cold, advance)
    report.unchecked += cold.unchecked
    kafka = DEEP_KAFKA.run(disk, directory, _in_turn(advance))
    machines = DEEP_MACHINES.run(disk, directory, _in_turn(advance))
    report.faults += [*kafka.faults, *machines.faults]
    report.kafka_segments, report.kafka_batches = kafka.segments, kafka.entries
    report.machine_segments, report.machine_entries = machines.segments, machines.entries
    return report


def _in_turn(advance: Advance) -> MapSegments:
    def check_all(check: Callable[[Any], Any], segments: Sequence[Any]) -> list[Any]:
        checks = []
        for segment in segments:
            checks.append(check(segment))
            advance(checks[-1].data_bytes)
        return checks

    return check_all


def _unknown(path: PurePath) -> VerifyFault:
    return VerifyFault(path, None, "not a name this software gives", False, FaultKind.NAME)


def _topics(
    disk: Disk, directory: PurePath, clock: Clock, report: DirectoryReport
) -> dict[int, Topic] | None:
    """What snapshot and log say of each topic; None when they cannot be read together."""
    failure: Exception | None = None
    for _ in range(SCANS_MAX):
        try:
            view = DirectoryView(disk, directory, EngineSettings(), clock)
        except (UnavailableError, StorageError, FormatError, FileNotFoundError) as error:
            failure = error
        else:
            report.topics = len(view.core.registry)
            return {topic.topic_id: topic for topic in view.core.registry}
    if isinstance(failure, SegmentChangedError):  # a writer never pauses: no damage
        what = f"the topics could not be compared with the log: {failure}, each time; try again"
        report.faults.append(VerifyFault(directory, None, what, bad=False))
    elif isinstance(failure, StorageError):
        path = PurePath(failure.path) if failure.path is not None else directory
        report.faults.append(VerifyFault(path, failure.offset, failure.what, bad=True))
    else:
        report.faults.append(VerifyFault(directory, None, str(failure), bad=True))
    return None


def _topic_faults(
    disk: Disk,
    root: PurePath,
    topics: dict[int, Topic] | None,
    report: DirectoryReport,
    cold: ColdCheck,
    advance: Advance,
) -> Iterator[VerifyFault]:
    seen: set[int] = set()
    for name in disk.list_directory(root) if disk.is_directory(root) else []:
        path = root / name
        topic_id = parse_topic_directory_name(name)
        if parse_deleted_directory_name(name) is not None:
            what = "a dropped topic whose files still have to go"
            yield VerifyFault(path, None, what, False, FaultKind.UNFINISHED)
        elif topic_id is None:
            yield _unknown(path)
        elif topics is not None and topic_id not in topics:
            yield VerifyFault(path, None, "belongs to no topic", bad=False)
        else:
            seen.add(topic_id)
            report.segments += sum(n.endswith((".idx", ".cold")) for n in _names(disk, path))
            yield from _segments_of(disk, path, topics, topic_id, cold, advance)
    for topic_id in (topics or {}).keys() - seen:
        path = root / topic_directory_name(topic_id)
        yield from _segments_of(disk, path, topics, topic_id, cold, advance)


def _segments_of(
    disk: Disk,
    path: PurePath,
    topics: dict[int, Topic] | None,
    topic_id: int,
    cold: ColdCheck,
    advance: Advance,
) -> Iterator[VerifyFault]:
    expected = None if topics is None else _expected(topics[topic_id])
    try:
        source = cold.source(path, topic_id)
        yield from verify_segments(disk, path, expected, advance, source)
    except FileNotFoundError as error:
        yield gone(path, error)


def _expected(topic: Topic) -> Expected:
    stored = topic.stored
    earliest = max(stored.earliest_seq, stored.evict_floor, stored.delete_below)
    logged = topic.log.settings.durability.is_logged
    checkpointed = topic.checkpointed_seq if logged else 0
    return Expected(earliest, checkpointed, stored.active_first_seq, stored.flagged)


def _data_bytes(disk: Disk, directory: PurePath) -> int:
    """Only for the bar: files may come and go meanwhile."""
    total = 0
    root = directory / TOPICS_DIRECTORY
    paths = [root / topic for topic in _names(disk, root)]
    paths += [directory / KAFKA_DIRECTORY, directory / MACHINES_DIRECTORY / WAL_DIRECTORY]
    for path in paths:
        for name in _names(disk, path):
            if name.endswith((".data", ".log", ".wal")):
                try:
                    total += file_bytes(disk, path / name)
                except OSError:
                    continue
            elif name.endswith(".cold"):
                total += cold_bytes(disk, path / name)
    return total


def _names(disk: Disk, path: PurePath) -> list[str]:
    try:
        return disk.list_directory(path) if disk.is_directory(path) else []
    except OSError:
        return []
