"""From a directory after any crash to a log that a writer goes on with.

Survey every shard, decide by the table, refuse before anything is touched, then the few repairs
that lose nothing: an unfinished rotation or trim is finished, a torn tail is quarantined and
overwritten with zeros. Doing it once, twice or after another crash in the middle gives the same
log (I4).

`open_wal` is all of it for the engine: lock, recover, replay, write.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import PurePath

import msgspec

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.errors import AccessError
from headwater.disk import (
    NO_ROOM,
    DirectoryLock,
    Disk,
    OpenMode,
    opened,
    remove_files,
    sync_file,
    sync_names,
)
from headwater.format.names import WAL_DIRECTORY
from headwater.observe.waits import Waits
from headwater.recovery.directory import access_error, accessing
from headwater.recovery.repair import cut_tail, write_again
from headwater.recovery.topics.replay import FrameGroup, replay
from headwater.recovery.topics.report import WalReport, inspect_wal
from headwater.recovery.topics.scan import FileScan
from headwater.recovery.topics.snapshots import LatestSnapshot, find_snapshot
from headwater.recovery.topics.survey import ShardSurvey
from headwater.recovery.topics.table import FileVerdict
from headwater.wal.dialect import LogPosition, OpenFile
from headwater.wal.policy import SyncPolicy
from headwater.wal.sharded import ShardedWal, shard_directory
from headwater.wal.ticket import Listener, resolve_quietly

LogIdSource = Callable[[], int]


class RecoveredWal(msgspec.Struct, frozen=True):
    directories: list[PurePath]
    """One per shard that will be written to, in order."""
    positions: list[LogPosition]
    report: WalReport
    run: int

    @property
    def retired(self) -> list[ShardSurvey]:
        """Shards of an earlier layout: still to be replayed, never written to again."""
        return [shard for shard in self.report.shards if shard.directory not in self.directories]


def recover(
    disk: Disk,
    wal_directory: PurePath,
    settings: WalSettings,
    new_log_id: LogIdSource = lambda: secrets.randbits(64),
) -> RecoveredWal:
    """Make the log ready to be replayed and written. The caller holds the directory lock."""
    report = inspect_wal(disk, wal_directory)
    report.raise_if_refused()
    directories = [
        shard_directory(wal_directory, index, settings.shards) for index in range(settings.shards)
    ]
    with accessing(wal_directory):
        _make_directories(disk, [wal_directory, *directories])
        for shard in report.shards:
            _repair(disk, shard)
    run = 1 + max((shard.chain.run for shard in report.shards), default=0)
    surveys = {shard.directory: shard for shard in report.shards}
    positions = [_position(surveys.get(path), run, new_log_id) for path in directories]
    return RecoveredWal(directories, positions, report, run)


def _make_directories(disk: Disk, directories: list[PurePath]) -> None:
    for directory in dict.fromkeys(directories):
        if not disk.is_directory(directory):
            disk.make_directory(directory)
        # Also when it was there: who made it may have been killed before this line.
        sync_names(disk, directory.parent)


def _repair(disk: Disk, shard: ShardSurvey) -> None:
    last = shard.last
    if last is not None:
        if last.verdict is FileVerdict.TORN:
            cut_tail(disk, last.path, last.end)
        _rewrite_and_sync(disk, last)
    # First what is kept, CURRENT among it, and only then what CURRENT says may go.
    sync_names(disk, shard.directory)
    remove_files(disk, [*shard.untrimmed, *shard.leftovers])


def _rewrite_and_sync(disk: Disk, scan: FileScan) -> None:
    """What an earlier process left in the page cache is about to be believed: make it durable."""
    with opened(disk, scan.path, OpenMode.UPDATE) as file:
        try:
            write_again(file, scan.witnessed, scan.end)
        except OSError as error:
            if error.errno not in NO_ROOM:  # where overwriting needs room, reading must go on
                raise
        sync_file(file)


def _position(shard: ShardSurvey | None, run: int, new_log_id: LogIdSource) -> LogPosition:
    if shard is None or shard.last is None:
        return LogPosition(1, 0, new_log_id(), run, oldest=None, open_file=None)
    last = shard.last
    chain = shard.chain
    log_id = new_log_id() if chain.log_id is None else chain.log_id
    oldest = shard.files[0].number
    if not last.abandoned and last.length >= last.file_bytes:
        frame = chain.next_frame if last.end else last.number
        open_file = OpenFile(last.number, last.length, last.end)
        return LogPosition(frame, chain.chain, log_id, run, oldest, open_file)
    # Behind a loss, a new file; its number must be above every file that is there.
    frame = max(chain.next_frame, last.number + 1)
    return LogPosition(frame, chain.chain, log_id, run, oldest, open_file=None)


def claim_directory(disk: Disk, directory: PurePath) -> DirectoryLock:
    """Make the directory if its parent is there, and own it. One clear error otherwise."""
    with accessing(directory):
        if not disk.is_directory(directory):
            if disk.exists(directory):
                raise AccessError("not a directory", path=directory, advice="name a directory")
            disk.make_directory(directory)
        if not disk.is_directory(directory / WAL_DIRECTORY):
            # Nothing was ever written here: the name may be as new as the directory.
            sync_names(disk, directory.parent)
        return disk.lock_directory(directory)


class OpenWal(msgspec.Struct):
    """A recovered, locked log. Replay first, then `start`, then submit."""

    disk: Disk
    directory: PurePath
    lock: DirectoryLock
    recovered: RecoveredWal
    wal: ShardedWal
    snapshot: LatestSnapshot

    def replay(self) -> Iterator[FrameGroup]:
        return replay(self.disk, self.recovered.report.shards)

    def start(self) -> None:
        with accessing(self.directory):
            self.wal.start()

    def close(self) -> None:
        try:
            self.wal.close()
        finally:
            self.lock.release()


def open_wal(
    disk: Disk,
    directory: PurePath,
    settings: WalSettings,
    clock: Clock,
    listener: Listener = resolve_quietly,
    policy: SyncPolicy | None = None,
    make_wal: type[ShardedWal] = ShardedWal,
    waits: Waits | None = None,
) -> OpenWal:
    lock = claim_directory(disk, directory)
    try:
        # First, because it may be refused: what is refused leaves everything as it was.
        snapshot = find_snapshot(disk, directory)
        recovered = recover(disk, directory / WAL_DIRECTORY, settings)
        wal = make_wal(
            disk,
            recovered.directories,
            recovered.positions,
            settings,
            clock,
            listener,
            policy,
            waits,
        )
    except OSError as error:
        lock.release()
        raise access_error(directory, error) from error
    except BaseException:
        lock.release()
        raise
    return OpenWal(disk, directory, lock, recovered, wal, snapshot)
