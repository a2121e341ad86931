"""The log and the snapshot in a backup: every whole group that a view has seen, and a CURRENT that
fits to them."""

from __future__ import annotations

from headwater.core.errors import FormatError
from headwater.disk import Disk, OpenMode
from headwater.engine.backup.archive import ArchiveWriter, read_chunks
from headwater.engine.read_only import DirectoryView
from headwater.format.backup import BackupMember
from headwater.format.current import Current, encode_current
from headwater.format.names import CURRENT_NAME, REPAIRS_NAME, WAL_DIRECTORY
from headwater.format.repairs import encode_repairs
from headwater.format.snapshot import META_DIRECTORY, decode_snapshot, snapshot_name
from headwater.recovery.topics.scan import FileScan
from headwater.recovery.topics.survey import ShardSurvey
from headwater.store.pair import read_all
from headwater.store.segment import SegmentChangedError


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
    file = disk.open(scan.path, OpenMode.READ)
    try:
        name = f"{where}/{scan.path.name}"
        return archive.add(name, read_chunks(file, 0, scan.end), scan.end, scan.length)
    finally:
        file.close()
