"""Reading back: the newest snapshot that can be read, which logs it speaks of, which are bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import NamedTuple

from headwater.core.errors import DamageError, FormatError, NewerFormatError
from headwater.disk import Disk, read_all
from headwater.disk.whole_files import TEMPORARY_SUFFIX
from headwater.format.frame import UnknownFrameError
from headwater.format.names import COLD_ADDRESS_NAME, WAL_DIRECTORY
from headwater.format.snapshot import (
    META_DIRECTORY,
    ShardMeta,
    Snapshot,
    decode_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from headwater.recovery.topics.scan import CoveredFrames
from headwater.recovery.topics.survey import ShardSurvey
from headwater.store.verify import FaultKind, VerifyFault


def covered_logs(directory: PurePath, snapshot: Snapshot) -> dict[PurePath, CoveredFrames]:
    """What the snapshot covers, for those who read the logs after it."""
    root = directory / WAL_DIRECTORY
    return {
        root / meta.directory if meta.directory else root: CoveredFrames(
            meta.log_id, meta.covered_frame
        )
        for meta in snapshot.shards
    }


def covered_frames(
    directory: PurePath, snapshot: Snapshot, shards: list[ShardSurvey]
) -> dict[PurePath, int]:
    """The last frame the snapshot covers, for each log directory that is there.

    A directory may have been emptied and given a new log since, after a change of the number of
    shards: what the snapshot knows of the log before says nothing about this one.
    """
    known = {shard.directory: shard.chain.log_id for shard in shards}
    return {
        path: covered.frame
        for path, covered in covered_logs(directory, snapshot).items()
        if known.get(path) in (None, covered.log_id)
    }


def refuse_missing_frames(shards: Iterable[ShardSurvey], covered: Mapping[PurePath, int]) -> None:
    """A log must begin no later than where the snapshot ends."""
    for shard in shards:
        ended = covered.get(shard.directory, 0)
        if shard.files and shard.files[0].number > ended + 1:
            raise DamageError(
                f"the log begins at frame {shard.files[0].number}, but the newest readable "
                f"snapshot ends at frame {ended}",
                path=shard.directory,
                advice="restore the missing snapshot or a backup",
            )


def retired_logs(directory: PurePath, retired: list[ShardSurvey]) -> dict[str, ShardMeta]:
    """Log directories that are not written to any more, each with its last frame."""
    root = directory / WAL_DIRECTORY
    logs = {}
    for shard in retired:
        name = "" if shard.directory == root else shard.directory.name
        logs[name] = ShardMeta(name, shard.chain.next_frame - 1, shard.chain.log_id or 0)
    return logs


def snapshot_numbers(disk: Disk, directory: PurePath) -> list[int]:
    """Which snapshots there are, the newest first."""
    meta = directory / META_DIRECTORY
    if not disk.is_directory(meta):
        return []
    numbers = [parse_snapshot_name(name) for name in disk.list_directory(meta)]
    return sorted((number for number in numbers if number is not None), reverse=True)


class LatestSnapshot(NamedTuple):
    """The newest snapshot that can be read, None when there is none at all, and what is wrong with
    newer ones."""

    snapshot: Snapshot | None
    unreadable: list[str]


def find_snapshot(disk: Disk, directory: PurePath) -> LatestSnapshot:
    unreadable: list[str] = []
    return LatestSnapshot(load_snapshot(disk, directory, unreadable), unreadable)


def load_snapshot(disk: Disk, directory: PurePath, unreadable: list[str]) -> Snapshot | None:
    """The newest snapshot that can be read; None when there is none at all."""
    meta = directory / META_DIRECTORY
    for number in snapshot_numbers(disk, directory):
        path = meta / snapshot_name(number)
        try:
            return decode_snapshot(read_all(disk, path))
        except UnknownFrameError as error:
            raise NewerFormatError(error.reason, path=path) from error
        except FormatError as error:
            unreadable.append(f"{path}: {error.reason}")
    if unreadable:
        raise DamageError(
            f"no snapshot can be read ({unreadable[0]})",
            path=meta,
            advice="restore a backup",
        )
    return None


def snapshot_faults(disk: Disk, directory: PurePath) -> tuple[list[VerifyFault], int]:
    """What is wrong in the directory of the snapshots, and how many there are."""
    meta = directory / META_DIRECTORY
    faults: list[VerifyFault] = []
    count = 0
    for name in disk.list_directory(meta) if disk.is_directory(meta) else []:
        path, number = meta / name, parse_snapshot_name(name)
        if name == COLD_ADDRESS_NAME:
            continue
        if name.endswith(TEMPORARY_SUFFIX):
            what = "left by work that was interrupted or goes on"
            faults.append(VerifyFault(path, None, what, False, FaultKind.UNFINISHED))
        elif number is None:
            what = "not a name this software gives"
            faults.append(VerifyFault(path, None, what, False, FaultKind.NAME))
        else:
            count += 1
            faults += _faults_of(disk, path, number)
    return faults, count


def _faults_of(disk: Disk, path: PurePath, number: int) -> list[VerifyFault]:
    try:
        snapshot = decode_snapshot(read_all(disk, path))
    except FileNotFoundError:
        return []  # replaced by a newer one just now
    except FormatError as error:
        return [VerifyFault(path, error.offset, error.reason, True, FaultKind.SNAPSHOT)]
    if snapshot.number != number:
        what = f"holds snapshot {snapshot.number}, under the name of another one"
        return [VerifyFault(path, None, what, True, FaultKind.SNAPSHOT)]
    return []
