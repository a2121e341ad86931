"""Open a data directory's log: lock, recover, replay, write. The door for everything above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.errors import AccessError
from headwater.disk import DirectoryLock, Disk, sync_names
from headwater.format.names import WAL_DIRECTORY
from headwater.observe.waits import Waits
from headwater.recovery.directory import access_error
from headwater.recovery.topics.repair import RecoveredWal, recover
from headwater.recovery.topics.replay import FrameGroup, replay
from headwater.recovery.topics.snapshots import LatestSnapshot, find_snapshot
from headwater.wal.policy import SyncPolicy
from headwater.wal.sharded import ShardedWal
from headwater.wal.ticket import Listener, resolve_quietly


def claim_directory(disk: Disk, directory: PurePath) -> DirectoryLock:
    """Make the directory if its parent is there, and own it. One clear error otherwise."""
    try:
        if not disk.is_directory(directory):
            if disk.exists(directory):
                raise AccessError("not a directory", path=directory, advice="name a directory")
            disk.make_directory(directory)
        if not disk.is_directory(directory / WAL_DIRECTORY):
            # Nothing was ever written here: the name may be as new as the directory.
            sync_names(disk, directory.parent)
        return disk.lock_directory(directory)
    except OSError as error:
        raise access_error(directory, error) from error


@dataclass(slots=True)
class OpenWal:
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
        try:
            self.wal.start()
        except OSError as error:
            raise access_error(self.directory, error) from error

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
