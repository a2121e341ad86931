"""All shards of one data directory: routing, starting, closing.

A topic belongs to the shard its id hashes to, so its order is the order of one log. The number of
shards may change between runs: recovery reads whatever is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.errors import PoisonedError
from headwater.disk import Disk
from headwater.format.checksum import checksum64
from headwater.format.names import shard_directory_name
from headwater.observe.waits import Waits
from headwater.wal.committer import LogState
from headwater.wal.compiled_groups import LoopedOwner
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import LogPosition
from headwater.wal.file_room import Preparer
from headwater.wal.frame_log import FrameLog
from headwater.wal.policy import ByClass, SyncPolicy
from headwater.wal.shard import Shard, switch_interval
from headwater.wal.ticket import Listener, Ticket, resolve_quietly


def shard_of(topic_id: int, shards: int) -> int:
    return checksum64(topic_id.to_bytes(8, "little")) % shards


def shard_directory(wal_directory: PurePath, shard: int, shards: int) -> PurePath:
    """Flat for a single shard, `shard-NN/` for several."""
    return wal_directory if shards == 1 else wal_directory / shard_directory_name(shard)


class ShardedWal:
    def __init__(
        self,
        disk: Disk,
        directories: Sequence[PurePath],
        positions: Sequence[LogPosition],
        settings: WalSettings,
        clock: Clock,
        listener: Listener = resolve_quietly,
        policy: SyncPolicy | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._settings = settings
        waits = waits or Waits(clock, 0)
        self._preparer = Preparer(clock, waits)
        self._started = False
        self._closed = False
        self.logs: list[FrameLog] = []
        self.shards: list[Shard] = []
        for index, (directory, position) in enumerate(zip(directories, positions, strict=True)):
            counters = WalCounters(waits=waits)
            log = FrameLog(
                disk, directory, settings, clock, position, counters, self._preparer.request
            )
            self.logs.append(log)
            self.shards.append(
                Shard(
                    f"headwater-wal-{index:02d}",
                    log,
                    policy or ByClass(settings.disk_sync_interval_us),
                    settings,
                    clock,
                    listener,
                    counters,
                )
            )

    def start(self) -> None:
        """Have a file open in every shard, then let the writers run."""
        for log in self.logs:
            log.open()
        self._started = True
        if self._settings.switch_interval_us is not None:
            switch_interval.lower(self._settings.switch_interval_us)
        self._preparer.start()
        for shard in self.shards:
            shard.start()

    def deliver_to(self, watcher: LoopedOwner, take_effect: Listener) -> None:
        """Have an owner with a loop take the answers itself, instead of the listener."""
        for shard in self.shards:
            shard.deliver_to(watcher, take_effect)

    def submit(self, topic_id: int, ticket: Ticket) -> None:
        self.shards[shard_of(topic_id, len(self.shards))].submit(ticket)

    @property
    def state(self) -> LogState:
        """The worst of the shards."""
        states = {shard.state for shard in self.shards}
        for state in (LogState.POISONED, LogState.FULL):
            if state in states:
                return state
        return LogState.WRITABLE

    @property
    def poison(self) -> PoisonedError | None:
        return next((shard.poison for shard in self.shards if shard.poison is not None), None)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._started:
            for log in self.logs:
                log.close()
            return
        self._preparer.stop()  # first, so that nothing is made ahead for a log that closes
        for shard in self.shards:
            shard.close()
        if self._settings.switch_interval_us is not None:
            switch_interval.restore(self._settings.switch_interval_us)
