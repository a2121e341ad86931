"""State machines: definitions, instances and their log, in one directory. For its owner only.

Every changing call returns a `Pending` that is answered once the fsync policy is satisfied; what
the rules refuse is raised at once, as MachineError, and changed nothing. Reads see what is
committed. Plans are carried out by any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import WatchFilter
from headwater.config.machines import FsyncKind, MachineSettings
from headwater.core.clock import Clock
from headwater.core.errors import ClosedError, PoisonedError
from headwater.disk import DirectoryLock, Disk
from headwater.engine.machines.answers import (
    BatchDone,
    Compacted,
    Flushed,
    InstancesListed,
    InstanceSnapshot,
    MachineVersion,
    MachineVersions,
    WalStats,
)
from headwater.engine.machines.archive import Archive
from headwater.engine.machines.book import BestEffort, Book, all_answers, check_batch
from headwater.engine.machines.event_batcher import EventBatcher, PendingEvent
from headwater.engine.machines.log_reader import (
    CommittedLog,
    HistoryPlan,
    ReadCounters,
    WalReadPlan,
)
from headwater.engine.machines.maintenance import Compactor, MachineMaintenance
from headwater.engine.machines.positions import WATCH_HELD_BYTES_MAX
from headwater.engine.machines.recovery import (
    make_directories,
    recover,
    shard_settings,
    snapshots_directory,
    sync_policy,
    wal_directory,
)
from headwater.engine.machines.snapshots import SnapshotFiles
from headwater.engine.machines.tables import EntryEffect
from headwater.engine.machines.watchers import CatchUpPlan, Watcher, Watchers
from headwater.engine.maintenance.housekeeping import MaintenanceThread
from headwater.engine.owner import Owner, Pending
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.format.machines.names import (
    HISTORY_DIRECTORY,
    global_offset,
    segment_of,
    within_segment,
)
from headwater.model.machines.definition import check_machine_name, check_version
from headwater.model.machines.errors import (
    INSTANCE_NOT_FOUND,
    MachineError,
    bad_request,
)
from headwater.model.machines.instance import Instance
from headwater.model.machines.values import checked_offset, checked_text, checked_whole
from headwater.model.retention import MACHINES_LOG, HoldOwner, RetentionHold
from headwater.observe.waits import Waits
from headwater.wal.committer import LogState
from headwater.wal.counters import WalCounters
from headwater.wal.entry_log import EntryLog
from headwater.wal.shard import Shard, switch_interval
from headwater.wal.ticket import Ticket

LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 1_000
WAL_READ_LIMIT_MAX: Final = 10_000
_CLOSED: Final = "closing; nothing was written"

Progress = Callable[[float], None]
Listener = Callable[[Sequence[EntryEffect]], None]


def _no_progress(_: float) -> None:
    """The caller follows no progress."""


class MachineStore:
    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: MachineSettings,
        clock: Clock,
        owner: Owner,
        progress: Progress = _no_progress,
        *,
        holds: RetentionHolds | None = None,
        make_shard: type[Shard] = Shard,
        make_maintenance: type[MaintenanceThread] = MaintenanceThread,
        waits: Waits | None = None,
    ) -> None:
        """Open and recover. One process at a time has a directory. `holds`: consumers that need
        old log are in there already, because compaction may begin before this returns."""
        self.settings = settings
        self._disk, self.directory = disk, directory
        self._clock, self._owner = clock, owner
        self.holds = holds if holds is not None else RetentionHolds(clock)
        make_directories(disk, directory)
        self._lock: DirectoryLock = disk.lock_directory(directory)
        try:
            opened = recover(disk, directory, settings, progress)
            self.report = opened.report
            self.tables = opened.tables
            self._build(make_shard, make_maintenance, waits or Waits(clock, 0))
        except BaseException:
            self._lock.release()
            raise

    def _build(
        self, make_shard: type[Shard], make_maintenance: type[MaintenanceThread], waits: Waits
    ) -> None:
        settings, clock = self.settings, self._clock
        position = self.report.log.position
        self._read_counters = ReadCounters()
        self._watches_held = 0
        self._watchers = Watchers(settings.watch_buffer_events)
        self.listeners: list[Listener] = []
        """Called with all committed effects, in order. As the owner."""
        self._closing = False
        self.book = Book(
            self.tables,
            clock,
            self.report.log,
            segment_bytes=settings.wal_segment_bytes,
            versions_max=settings.versions_max,
            published=self._published,
            plain_entries=not settings.entry_header_checksum,
        )
        self.batcher = EventBatcher(self.book, self._owner, settings.queue_submissions_max)
        counters = WalCounters(waits=waits)
        self._log = self.book.log = EntryLog(
            self._disk,
            wal_directory(self.directory),
            position,
            counters,
            segment_bytes=settings.wal_segment_bytes,
            reserve_bytes=settings.reserve_bytes,
            zero_chunk_bytes=settings.zero_chunk_bytes,
            syncs_when_idle=settings.fsync_policy.kind is not FsyncKind.NEVER,
            writes_at_risk=settings.fsync_policy.writes_at_risk,
        )
        self.shard = self.book.shard = make_shard(
            "headwater-machines",
            self._log,
            sync_policy(settings.fsync_policy),
            shard_settings(settings),
            clock,
            self._tickets_resolved,
            counters,
        )
        self._files = SnapshotFiles(self._disk, snapshots_directory(self.directory))
        self.compactor = Compactor(
            self._disk, self._files, self.book, self.shard, self._owner, clock,
            settings.compaction, self.report.damaged_entries, self.holds,
        )  # fmt: skip
        history_directory = self.directory / HISTORY_DIRECTORY
        self._archive = Archive(self._disk, history_directory, settings.history)
        self.compactor.before_release = self._keep_history
        self.compactor.started_from(self.report.snapshot)
        self.maintenance = MachineMaintenance(
            self.book, self.compactor, self._files, self._owner, clock, settings
        )
        self._maintenance_thread = make_maintenance(
            clock,
            settings.keep_interval_ms,
            waits.activity("maintenance of machines")(self.maintenance.round),
        )
        self._log.open()
        if settings.switch_interval_us is not None:
            switch_interval.lower(settings.switch_interval_us)
        self.shard.start()
        self._maintenance_thread.start()

    def submit(self, request: requests.Request, sees: requests.Sees | None = None) -> Pending[Any]:
        """One change of any kind. Deletes are taken even when the disk is full."""
        if self._closing:
            raise ClosedError(_CLOSED)
        essential = type(request) is requests.DeleteInstance
        return self.book.submit((request,), sees=sees, essential=essential)

    def submit_event(self, event: PendingEvent) -> None:
        """One event, along with others that come in the same turn of the owner's loop."""
        if self._closing:
            raise ClosedError(_CLOSED)
        self.batcher.add(event)

    # -- machines

    def get_machine(self, name: str, version: int | None = None) -> MachineVersion:
        if version is not None:
            check_version(version)
        definition = self.tables.definition(check_machine_name(name), version)
        return MachineVersion(
            definition.machine, definition.version, definition.canonical, definition.checksum
        )

    def list_machines(self) -> list[MachineVersions]:
        machines = self.tables.machines
        return [MachineVersions(name, sorted(machines[name])) for name in sorted(machines)]

    # -- instances

    def get_instance(self, instance_id: str) -> Instance:
        """As it is committed. `is_doubtful` is true when damage may have taken something of it."""
        instance = self.tables.instances.get(checked_text(instance_id, "the instance id"))
        if instance is None or 0 < instance.expires_at <= self.book.now_ms():
            raise MachineError(INSTANCE_NOT_FOUND, f"there is no instance {instance_id!r}")
        return instance

    def is_doubtful(self, instance: Instance) -> bool:
        """True when entries about it were lost to damage, or may have been."""
        return self.tables.is_doubtful(instance)

    def list_instances(
        self,
        machine: str | None = None,
        state: str | None = None,
        limit: int = LIST_LIMIT_DEFAULT,
        offset: int = 0,
    ) -> InstancesListed:
        """In the order of ids. An instance whose time is up counts until it is deleted."""
        checked_whole(limit, "limit", 1)
        checked_whole(offset, "offset", 0)
        limit = min(limit, LIST_LIMIT_MAX)
        ids, total = self.tables.listing.page(machine, state, offset, limit)
        instances = self.tables.instances
        return InstancesListed([instances[name] for name in ids], total, offset + len(ids) < total)

    def batch(
        self,
        operations: Sequence[requests.Request],
        mode: str = "atomic",
        sees: requests.Sees | None = None,
    ) -> Pending[BatchDone]:
        """`atomic`: all or nothing, one group in the log. `best_effort`: each for itself."""
        check_batch(operations, mode)
        if self._closing:
            raise ClosedError(_CLOSED)
        if mode == "best_effort":
            return BestEffort(self.book, operations, sees).start()
        return self.book.submit(operations, shape=all_answers, sees=sees)

    def flush_all(self) -> Pending[Flushed]:
        if not self.settings.allow_flush_all:
            raise bad_request("flush_all is off; the setting machine_allow_flush_all turns it on")
        return self.submit(requests.FlushAll())

    # -- reading the log

    def history(self, instance_id: str, limit: int = 1_000) -> HistoryPlan:
        """The newest `limit` entries of an instance; carry it out with `read`, in any thread."""
        checked_whole(limit, "limit", 1)
        instance = self.get_instance(instance_id)
        doubtful = self.tables.is_doubtful(instance)
        kept_max = self.settings.history.transitions_max
        return HistoryPlan(
            self._committed_log(), instance.last_wal_offset, limit, doubtful, kept_max
        )

    def read_wal(
        self,
        from_offset: int = 0,
        limit: int = 100,
        *,
        newest: bool = False,
        bytes_max: int | None = None,
    ) -> WalReadPlan:
        checked_offset(from_offset, "from_offset")
        checked_whole(limit, "limit", 1)
        limit = min(limit, WAL_READ_LIMIT_MAX)
        return WalReadPlan(self._committed_log(), from_offset, limit, newest, bytes_max)

    def watch(
        self, wanted: WatchFilter, from_offset: int | None = None, *, held: bool = True
    ) -> Watcher:
        """Live from now on; with `from_offset` the watcher's `catch_up` is to be read first. The
        log is kept for it until then, unless its owner holds it already."""
        catch_up = None
        if from_offset is not None:
            checked_offset(from_offset, "from_offset")
            catch_up = CatchUpPlan(self._committed_log(), from_offset, wanted)
            if held:
                catch_up = replace(catch_up, keep=self._hold_for_watch(catch_up))
        return self._watchers.add(wanted, catch_up)

    def _hold_for_watch(self, plan: CatchUpPlan) -> Callable[[int | None], None]:
        self._watches_held += 1
        hold = self.holds.take(
            f"watch {self._watches_held}",
            HoldOwner.WATCH,
            max(plan.start, plan.log.begin),
            durable=False,
            bytes_max=WATCH_HELD_BYTES_MAX,
        )

        def keep(start: int | None) -> None:
            if start is None:
                self.holds.release(hold)
            else:
                self.holds.move(hold, start)

        return keep

    def retention_holds(self) -> list[RetentionHold]:
        """Who needs old log, the one that is furthest behind first."""
        return self.holds.of(MACHINES_LOG, self.compactor)

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)

    def catch_up(self, wanted: WatchFilter, from_offset: int) -> CatchUpPlan:
        """Transitions from an offset on to what is committed now: what a watcher missed."""
        return CatchUpPlan(self._committed_log(), from_offset, wanted)

    def _committed_log(self) -> CommittedLog:
        return CommittedLog(
            self._disk,
            wal_directory(self.directory),
            self.book.committed_offset,
            self.book.committed_sequence,
            min(self.book.oldest_segment, segment_of(self.book.committed_offset)),
            lambda: self.book.oldest_segment,
            dict(self.book.first_sequence),
            self._read_counters,
        )

    @property
    def committed_offset(self) -> int:
        """Everything before this is committed: watching from here on misses nothing."""
        return self.book.committed_offset

    def position_within(self, position: int | None) -> int | None:
        """A consumer's position as its file has it. One beyond the end at this start is of a
        log that was cut since: what is written there now is new to the consumer."""
        recovered = self.report.log.position
        end = global_offset(recovered.segment, recovered.offset)
        return position if position is None else min(position, end)

    def wal_stats(self) -> WalStats:
        """What the log counts about itself."""
        book, reading, counters = self.book, self._read_counters, self.shard.counters
        end = book.committed_offset
        newest, oldest = segment_of(end), min(book.oldest_segment, segment_of(end))
        first = book.first_sequence.get(oldest, book.committed_sequence)
        return WalStats(
            end,
            book.latest_offset,
            newest - oldest + 1,
            (newest - oldest) * book.segment_bytes + within_segment(end),
            oldest,
            newest,
            book.committed_sequence - first,
            self.report.damaged_entries,
            counters.bytes_written,
            reading.bytes_read,
            counters.groups,
            reading.reads,
            counters.syncs,
            self.shard.state.value,
        )

    @property
    def log_state(self) -> LogState:
        return self.shard.state

    @property
    def last_error(self) -> Exception | None:
        """Why expiries or the last compaction failed; it is tried again."""
        return self.compactor.error or self._maintenance_thread.error

    @property
    def poison(self) -> PoisonedError | None:
        return self.shard.poison

    # -- care; not for the owner's own thread

    def compact(self) -> Compacted:
        """Snapshot, then delete the segments it makes unnecessary."""
        return self.compactor.compact()

    def snapshot_instance(self, instance_id: str) -> InstanceSnapshot:
        """One instance in a file of its own."""

        def read() -> tuple[Instance, Any]:
            instance = self.get_instance(instance_id)
            return instance, self.tables.definition(instance.machine, instance.version)

        instance, made_by = self._owner.call(read)
        made = self._files.write_instance(instance, made_by, self._clock.wall_ms())
        note = requests.NoteSnapshot(made.snapshot, instance.last_wal_offset, instance_id)
        self._owner.call(lambda: self.submit(note))
        return made

    def snapshot_count(self) -> int:
        """Files of snapshots, those of single instances among them."""
        return self._files.count()

    def _keep_history(self, before: int) -> None:
        """Segments before this one are about to be deleted."""
        log, now_ms = self._owner.call(lambda: (self._committed_log(), self.book.now_ms()))
        segments = range(log.oldest, before)
        self._archive.keep(log, segments, self._owner, self._living, now_ms)
        self._archive.prune(now_ms)

    def _living(self, ids: Sequence[str]) -> list[str]:
        instances = self.tables.instances
        return [name for name in ids if name in instances]

    def sync(self) -> None:
        """Everything committed so far is on stable storage on return, whatever the policy."""
        self.shard.call(self._log.sync).result()
        if self.shard.poison is not None:
            raise self.shard.poison

    def close(self) -> None:
        """Serve what was accepted and stop. May be called twice."""
        if self._closing:
            return
        self._owner.call(self._begin_closing)
        self._maintenance_thread.stop()
        self.shard.close()
        if self.settings.switch_interval_us is not None:
            switch_interval.restore(self.settings.switch_interval_us)
        self._lock.release()

    def _begin_closing(self) -> None:
        self.batcher.send()
        self._closing = True
        self._watchers.close()

    # -- answers of the log

    def _tickets_resolved(self, tickets: Sequence[Ticket]) -> None:
        """On the log's thread: one hand-over per batch of answers."""
        if tickets:
            self._owner.post(lambda: self.book.take(tickets))

    def _published(self, effects: Sequence[EntryEffect]) -> None:
        if len(self._watchers):
            self._watchers.publish(effects)
        for listener in self.listeners:
            listener(effects)
