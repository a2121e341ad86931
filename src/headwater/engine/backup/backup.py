"""`headwater backup`: one consistent file from a directory that may be in use.

1. Take a view and copy every segment. Most bytes are copied here, and nothing has to fit yet.
2. Take another view: its log and snapshot, then again every segment it knows. Those whose index is
   what was copied are not copied again, so this is short. What the owner removes meanwhile was
   copied in step 1. Should something be missing all the same, step 2 begins again, some times.

So the backup holds what was acknowledged before it began, and every topic as it was at the second
view, except that records deleted while it was made may be deleted in it already.

No lock is taken and nothing is written to the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from headwater.config.engine import EngineSettings
from headwater.core.arrays import NDArray, numpy
from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import (
    DiskFullError,
    FormatError,
    NewerFormatError,
    RequestError,
    StorageError,
    UnavailableError,
)
from headwater.core.units import MIB, US_PER_MS
from headwater.disk import Disk
from headwater.engine.backup.archive import Advance, ArchiveWriter
from headwater.engine.backup.kafka_files import copy_kafka, kafka_bytes
from headwater.engine.backup.machine_files import MachineCopier, machine_bytes
from headwater.engine.backup.topic_files import (
    SegmentCopier,
    StillClock,
    copy_log,
    copy_snapshot,
    topic_facts,
)
from headwater.engine.read_only import DirectoryView
from headwater.engine.state.topic import Topic
from headwater.format.backup import BACKUP_VERSION, BackupMember, BackupTopic, Manifest
from headwater.format.segment import IndexFlag, index_flags
from headwater.model.topic import TopicLog
from headwater.store.segment import file_work

PASSES_MAX = 8
PAUSE_MS = 20
_MAY_PASS = (UnavailableError, StorageError, FormatError, FileNotFoundError)
_DEAD = int(IndexFlag.DELETED)
_BYTES_BESIDE_PAYLOAD = 60
"""Of a record, in frame and index entry."""

Begin = Callable[[int], Advance]
"""Called with the expected number of bytes; returns the callback for progress."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    path: PurePath
    bytes: int
    manifest: Manifest
    passes: int

    @property
    def records(self) -> int:
        return sum(topic.count for topic in self.manifest.topics)


def make_backup(
    disk: Disk,
    directory: PurePath,
    path: PurePath,
    settings: EngineSettings,
    clock: Clock,
    begin: Begin,
) -> BackupReport:
    """Write a backup of `directory` to `path`. On any error there is no file, not even a part."""
    with file_work(path):
        _check_target(disk, directory, path)
    created_ms = clock.wall_ms()
    source = _Source(disk, directory, settings, StillClock(clock, created_ms))
    first = source.view()
    expected = _expected_bytes(first) + kafka_bytes(disk, directory)
    expected += machine_bytes(disk, directory)
    with file_work(path):
        free = disk.free_bytes(path.parent)
    if free < expected:
        raise DiskFullError(
            f"a backup of {directory} needs about {expected // MIB + 1} MiB, "
            f"and beside {path} there are {free // MIB} MiB free"
        )
    archive = ArchiveWriter(disk, path, created_ms, begin(expected))
    try:
        return _Backup(source, archive, path, created_ms).run(first)
    except BaseException:
        with contextlib.suppress(StorageError, UnavailableError):
            archive.discard()
        raise


def _check_target(disk: Disk, directory: PurePath, path: PurePath) -> None:
    if not disk.is_directory(directory):
        raise RequestError(f"there is no directory {directory}; check the path")
    if disk.exists(path):
        raise RequestError(f"{path} is there already; choose another name or remove it")
    if not disk.is_directory(path.parent):
        raise RequestError(f"there is no directory {path.parent} to write {path.name} to")
    if path.is_relative_to(directory):
        raise RequestError(f"{path} is inside of {directory}; keep a backup somewhere else")


def _expected_bytes(view: DirectoryView) -> int:
    """Roughly: a topic that was not loaded has only the sum of what is alive."""
    log = sum(scan.end for shard in view.shards for scan in shard.files)
    states = [view.state(topic) for topic in view.core.registry]
    return log + sum(state.bytes + _BYTES_BESIDE_PAYLOAD * state.count for state in states)


@dataclass(frozen=True, slots=True)
class _Source:
    disk: Disk
    directory: PurePath
    settings: EngineSettings
    clock: Clock

    def view(self) -> DirectoryView:
        for _ in range(PASSES_MAX - 1):
            try:
                return self._view()
            except NewerFormatError:
                raise
            except _MAY_PASS:
                self.pause()
        return self._view()

    def _view(self) -> DirectoryView:
        return DirectoryView(self.disk, self.directory, self.settings, self.clock)

    def pause(self) -> None:
        self.clock.wait(Doorbell(), self.clock.monotonic_us() + PAUSE_MS * US_PER_MS)


class _Backup:
    def __init__(
        self, source: _Source, archive: ArchiveWriter, path: PurePath, created_ms: int
    ) -> None:
        self._source = source
        self._archive = archive
        self._path = path
        self._created_ms = created_ms
        self._segments = SegmentCopier(source.disk, archive)
        self._machines = MachineCopier(source.disk, archive, source.directory)

    def run(self, view: DirectoryView) -> BackupReport:
        for topic in list(view.core.registry):
            try:
                self._copy_topic(view, topic)
            except _MAY_PASS:
                if self._archive.failed:
                    raise
        failures: list[Exception] = []
        for number in range(1, PASSES_MAX + 1):
            self._machines.copy_before(self._source.pause)
            view = self._source.view()
            try:
                members, topics = self._copy_all(view)
            except _MAY_PASS as error:
                if self._archive.failed:
                    raise
                failures.append(error)
                self._source.pause()
                continue
            manifest = Manifest(BACKUP_VERSION, self._created_ms, tuple(members), tuple(topics))
            return BackupReport(self._path, self._archive.finish(manifest), manifest, number)
        last = failures[-1]
        if str(last) == str(failures[-2]):
            raise last  # always the same: not the owner's doing
        raise UnavailableError(
            f"{self._source.directory} was changed by its owner each of {PASSES_MAX} times; "
            f"try again (last: {last})"
        ) from last

    def _copy_all(self, view: DirectoryView) -> tuple[list[BackupMember], list[BackupTopic]]:
        members = copy_snapshot(self._source.disk, self._archive, view)
        members += copy_log(self._source.disk, self._archive, view)
        members += copy_kafka(self._source.disk, self._archive, self._source.directory)
        members += self._machines.copy_after()
        topics = []
        for topic in list(view.core.registry):
            copied, facts = self._copy_topic(view, topic)
            members += copied
            topics.append(facts)
        return members, sorted(topics, key=lambda topic: topic.name)

    def _copy_topic(
        self, view: DirectoryView, topic: Topic
    ) -> tuple[list[BackupMember], BackupTopic]:
        log, segments = topic.log, topic.segments
        if not topic.loaded:
            loaded = view.load(topic)
            log, segments = loaded.log, loaded.segments
        members: list[BackupMember] = []
        # Deletes in the backup's log are applied later: a start expects what was alive at the
        # checkpoint, and takes what it misses for lost.
        needed = topic.stored.first_needed
        for segment in segments:
            if segment.end_seq >= needed or segment.first_seq == topic.stored.active_first_seq:
                pair, entries = self._segments.copy(topic, segment)
                members += pair
                _delete(log, numpy.flatnonzero(index_flags(entries) & _DEAD) + segment.first_seq)
        return members, topic_facts(topic, log)


def _delete(log: TopicLog, dead: NDArray[numpy.int64]) -> None:
    """What the copied index marks deleted is deleted in the backup, also when the log does not
    know of it yet."""
    dead = dead[dead >= log.earliest_seq]
    if len(dead):
        log.delete_seqs(dead)
