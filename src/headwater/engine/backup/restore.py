"""`headwater restore`: a data directory out of a backup, whole or not at all.

Everything is unpacked into `DIR.restoring`, each checksum is checked, the directory is read as a
start would read it, and every topic must hold what the manifest says. Only then does it get its
name. What an interrupted restore leaves bears the other name and a marker, and the next one
removes it.

Back to a point, what came after it is deleted for good in the restored directory. The seqs of what
is deleted stay used: head_seq is what it was, so nothing that a reader elsewhere still holds can
come back under a number it knows (I3).

`headwater backup --verify` does the same beside the file: a backup is good when it has been
restored, into a directory that is removed again, and every record was read with its checksum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Final

from headwater.config.engine import EngineSettings
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.config.wal import WalSettings
from headwater.core.arrays import numpy
from headwater.core.clock import Clock
from headwater.core.errors import DamageError, DiskFullError, RequestError
from headwater.core.records import Record
from headwater.core.units import MIB
from headwater.disk import Disk, File, OpenMode, opened, sync_file, sync_names, write_all
from headwater.engine.backup.archive import Advance, ArchiveReader
from headwater.engine.backup.backup import Begin
from headwater.engine.backup.kafka_files import check_kafka, read_every_batch
from headwater.engine.backup.machine_files import check_machines, read_every_entry
from headwater.engine.backup.topic_files import StillClock, topic_facts
from headwater.engine.engine import Engine
from headwater.engine.owner import BatonOwner
from headwater.engine.read_only import DirectoryView
from headwater.engine.state.topic import Topic
from headwater.engine.topics.reader import ReadFilter, read_records
from headwater.format.backup import BackupMember, Manifest
from headwater.format.checksum import RunningChecksum
from headwater.format.names import TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import IndexFlag
from headwater.format.snapshot import META_DIRECTORY
from headwater.model.idempotency import IdempotencyWindow
from headwater.model.loss import DAMAGED
from headwater.store.segment import file_work

_DEAD = int(IndexFlag.DELETED)
RESTORING_SUFFIX: Final = ".restoring"
MARKER_NAME: Final = "RESTORING"
VERIFYING_SUFFIX: Final = ".verify"
RECORDS_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 16 * MIB


@dataclass(frozen=True, slots=True)
class RestorePoint:
    seqs: Mapping[str, int] = field(default_factory=dict)
    """Topic -> the last seq to keep."""
    time_ms: int | None = None
    """The last commit time to keep, for every topic."""

    @property
    def is_the_end(self) -> bool:
        return not self.seqs and self.time_ms is None

    def refuse_unknown(self, names: set[str]) -> None:
        for name in self.seqs:
            if name not in names:
                raise RequestError(f"there is no topic {name!r} in the backup")


def cut_back(
    disk: Disk, directory: PurePath, shards: int, clock: Clock, point: RestorePoint
) -> int:
    """Delete what came after the point; gives how many records that were."""
    # The machines stay as they are: nothing is published or compacted before the first start.
    still = CompactionSettings(enabled=False)
    machines = MachineSettings(transitions_topic=None, compaction=still)
    settings = EngineSettings(wal=WalSettings(shards=shards), machines=machines)
    engine = Engine(disk, directory, settings, clock, BatonOwner())
    deleted = 0
    try:
        for topic in list(engine.core.registry):
            if point.time_ms is None and topic.name not in point.seqs:
                continue
            if not topic.loaded:
                installed = topic.read_index()
                installed()
            deleted += engine.core.owner.call(partial(_cut, engine, topic, point))
        engine.checkpoint()
    finally:
        engine.close()
    return deleted


def _cut(engine: Engine, topic: Topic, point: RestorePoint) -> int:
    log = topic.log
    base, head = log.index.base_seq, log.visible_seq
    if head < base:
        return 0
    entries = log.index.entries(base, head)
    seqs = numpy.arange(base, head + 1, dtype=numpy.int64)
    beyond = seqs > point.seqs.get(topic.name, head)
    if point.time_ms is not None:
        beyond |= entries["ts"] > max(point.time_ms, 0)
    to_delete = seqs[beyond & (entries["flags_check"] & _DEAD == 0)]
    if not len(to_delete):
        return 0
    _forget_keys(topic, int(to_delete[0]))
    log.delete_seqs(to_delete)
    topic.unflagged.append(to_delete)
    engine.core.dirty[topic.topic_id] = topic
    engine.core.shed(topic)
    engine.topics.touched(topic)
    return len(to_delete)


def _forget_keys(topic: Topic, first_gone: int) -> None:
    """A write that is gone may be made again under its key."""
    kept = IdempotencyWindow()
    for entry in topic.keys.entries():
        if entry.last_seq < first_gone:
            kept.remember(entry)
    topic.keys = kept


@dataclass(frozen=True, slots=True)
class RestoreReport:
    directory: PurePath
    manifest: Manifest
    records_deleted: int


def restore_backup(
    disk: Disk,
    path: PurePath,
    directory: PurePath,
    point: RestorePoint,
    clock: Clock,
    begin: Begin,
) -> RestoreReport:
    """Make `directory`, which must be new or empty, from the backup at `path`."""
    archive = ArchiveReader(disk, path)
    try:
        manifest = archive.manifest
        point.refuse_unknown({topic.name for topic in manifest.topics})
        with file_work(directory):
            _check_target(disk, directory)
        still = StillClock(clock, manifest.created_ms)
        with unpacked(disk, archive, directory, begin(manifest.file_bytes)) as staging:
            check_facts(DirectoryView(disk, staging, EngineSettings(), still), manifest, path)
            check_kafka(disk, staging)
            check_machines(disk, staging)
            deleted = 0
            if not point.is_the_end:
                deleted = cut_back(disk, staging, _shards(manifest), still, point)
            with file_work(directory):
                disk.unlink(staging / MARKER_NAME)
                sync_names(disk, staging)
                disk.rename(staging, directory)
                sync_names(disk, directory.parent)
        return RestoreReport(directory, manifest, deleted)
    finally:
        archive.close()


def _check_target(disk: Disk, directory: PurePath) -> None:
    if not disk.is_directory(directory.parent):
        raise RequestError(f"there is no directory {directory.parent} to restore into")
    if not disk.exists(directory):
        return
    if not disk.is_directory(directory):
        raise RequestError(f"{directory} is not a directory")
    if disk.list_directory(directory):
        raise RequestError(f"{directory} is not empty; restore into a new or empty directory")


def _shards(manifest: Manifest) -> int:
    """How many shards the log in the backup was written with; one when it lies flat."""
    paths = [member.name.split("/") for member in manifest.members]
    shards = {parts[1] for parts in paths if parts[0] == WAL_DIRECTORY and len(parts) == 3}
    return max(len(shards), 1)


def check_facts(view: DirectoryView, manifest: Manifest, path: PurePath) -> None:
    """Every topic holds exactly what it held when the backup was made."""
    restored = {}
    for topic in list(view.core.registry):
        log = topic.log if topic.loaded else view.load(topic).log
        restored[topic.name] = topic_facts(topic, log)
    for expected in manifest.topics:
        facts = restored.pop(expected.name, None)
        if facts != expected:
            raise DamageError(
                f"topic {expected.name!r} came back as {facts}, not as {expected}",
                path=path,
                advice="use another backup, and report this",
            )
    if restored:
        raise DamageError(f"the backup holds unknown topics: {sorted(restored)[:3]}", path=path)


@contextlib.contextmanager
def unpacked(
    disk: Disk, archive: ArchiveReader, directory: PurePath, advance: Advance
) -> Iterator[PurePath]:
    """The files of a backup in a directory beside the wanted one. Gone afterwards, unless it was
    given another name."""
    staging = directory.with_name(directory.name + RESTORING_SUFFIX)
    with file_work(staging):
        _make_staging(disk, staging, archive.manifest)
    try:
        with file_work(staging):
            _unpack(disk, archive, staging, advance)
        yield staging
    finally:
        with file_work(staging):
            if disk.is_directory(staging):
                remove_tree(disk, staging)


def _make_staging(disk: Disk, staging: PurePath, manifest: Manifest) -> None:
    if disk.exists(staging):
        if not disk.exists(staging / MARKER_NAME):
            raise RequestError(f"{staging} is in the way; move it elsewhere first")
        remove_tree(disk, staging)
    needed, free = manifest.file_bytes, disk.free_bytes(staging.parent)
    if free < needed:
        raise DiskFullError(
            f"restoring needs {needed // MIB + 1} MiB, and beside {staging} there are "
            f"{free // MIB} MiB free"
        )
    disk.make_directory(staging)
    disk.open(staging / MARKER_NAME, OpenMode.CREATE).close()
    sync_names(disk, staging)


def _unpack(disk: Disk, archive: ArchiveReader, staging: PurePath, advance: Advance) -> None:
    made = {staging}
    for name in (WAL_DIRECTORY, TOPICS_DIRECTORY, META_DIRECTORY):
        _make_directories(disk, staging / name, made)
    for member in archive.manifest.members:
        path = staging / member.name
        _make_directories(disk, path.parent, made)
        with opened(disk, path, OpenMode.CREATE) as file:
            _unpack_file(archive, member, file, advance)
    for directory in made:
        sync_names(disk, directory)


def _make_directories(disk: Disk, path: PurePath, made: set[PurePath]) -> None:
    if path not in made:
        _make_directories(disk, path.parent, made)
        disk.make_directory(path)
        made.add(path)


def _unpack_file(
    archive: ArchiveReader, member: BackupMember, file: File, advance: Advance
) -> None:
    offset = 0
    for chunk in archive.read(member):
        offset += write_all(file, offset, [chunk])
        advance(len(chunk))
    if member.file_bytes > offset:
        file.truncate(member.file_bytes)
    sync_file(file)


def remove_tree(disk: Disk, directory: PurePath) -> None:
    """A directory that an unfinished restore made, marker last."""
    for name in sorted(disk.list_directory(directory), key=lambda name: name == MARKER_NAME):
        path = directory / name
        if disk.is_directory(path):
            remove_tree(disk, path)
        else:
            disk.unlink(path)
    disk.remove_directory(directory)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    path: PurePath
    bytes: int
    manifest: Manifest
    records: int
    records_xxh3: str
    """Over seq, time, node, tag, data and meta of every record, topic by topic."""


def verify_backup(disk: Disk, path: PurePath, clock: Clock, begin: Begin) -> VerifyReport:
    archive = ArchiveReader(disk, path)
    try:
        manifest = archive.manifest
        beside = path.with_name(path.name + VERIFYING_SUFFIX)
        still = StillClock(clock, manifest.created_ms)
        with unpacked(disk, archive, beside, begin(manifest.file_bytes)) as staging:
            view = DirectoryView(disk, staging, EngineSettings(), still)
            check_facts(view, manifest, path)
            read_every_batch(disk, staging)
            check_machines(disk, staging)
            read_every_entry(disk, staging)
            checksum = RunningChecksum()
            records = sum(
                _read_all(view.topic(topic.name), checksum, path) for topic in manifest.topics
            )
        return VerifyReport(path, archive.bytes, manifest, records, f"{checksum.value():016x}")
    finally:
        archive.close()


def _read_all(topic: Topic, checksum: RunningChecksum, path: PurePath) -> int:
    """Read every live record of a topic and check its checksum."""
    if not topic.loaded:
        installed = topic.read_index()
        installed()
    cursor, records = topic.log.earliest_seq - 1, 0
    while True:
        plan = topic.plan(cursor, RECORDS_AT_ONCE, BYTES_AT_ONCE)
        fetched, findings = read_records(plan, ReadFilter())
        gap = plan.selection.tombstone
        if gap is not None and gap.reason == DAMAGED:
            what = f"the records at seqs {gap.gap_from} to {gap.gap_to} cannot be read"
            raise DamageError(f"topic {topic.name!r}: {what}", path=path)
        if findings or len(fetched) != len(plan.selection.seqs):
            what = str(findings[0]) if findings else f"records behind seq {cursor} are missing"
            raise DamageError(f"topic {topic.name!r}: {what}", path=path)
        for record in fetched:
            _take_in(checksum, record)
        records += len(fetched)
        cursor = plan.selection.next_from_seq
        if plan.selection.caught_up:
            return records


def _take_in(checksum: RunningChecksum, record: Record) -> None:
    heading = f"{record.seq} {record.ts} {record.node!r} {record.tag!r} {len(record.data_json)} "
    checksum.update(heading.encode("utf-8", "backslashreplace"))
    checksum.update(record.data_json)
    checksum.update(record.meta_json or b"")
