"""The engine: one data directory, opened, recovered and kept. For its owner only.

Callers use its APIs: `headwater.open` for threads, `headwater.open_async` for event
loops, and the server. All of them go through the same few calls here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock
from headwater.core.errors import PoisonedError
from headwater.core.results import Deleted, TopicState
from headwater.disk import DirectoryLock, Disk
from headwater.engine.machines.host import MachineHost
from headwater.engine.maintenance.checkpointer import Checkpointer
from headwater.engine.maintenance.housekeeping import Housekeeping, MaintenanceThread
from headwater.engine.maintenance.snapshotter import Snapshotter
from headwater.engine.operation import Operation
from headwater.engine.owner import LoopOwner, Owner
from headwater.engine.pressure import PressureControl
from headwater.engine.routers.copy_rounds import CopyRounds, ForwarderThread
from headwater.engine.routers.definitions import Routers
from headwater.engine.start.topic_recovery import RecoveryNotes, TopicRecovery
from headwater.engine.state.engine_core import EngineCore, ShardProgress
from headwater.engine.state.topic import TailCache, Topic
from headwater.engine.topics.appender import Appender
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.loader import install, load_once
from headwater.engine.topics.operations import deletion_operation
from headwater.engine.topics.publisher import Publisher
from headwater.engine.topics.reader import Reader
from headwater.format.names import TOPICS_DIRECTORY
from headwater.model.match import TagMatcher
from headwater.model.retention import RetentionClock
from headwater.observe.waits import WaitCause, Waits
from headwater.recovery.topics.repair import OpenWal, open_wal
from headwater.recovery.topics.report import WalReport
from headwater.recovery.topics.snapshots import retired_logs
from headwater.store.cold_tier import open_cold_tier, remember_cold_tier
from headwater.store.pair import RecordDamage
from headwater.wal.ceilings import SeqCeilings
from headwater.wal.committer import LogState
from headwater.wal.sharded import ShardedWal
from headwater.wal.ticket import Ticket

Progress = Callable[[float], None]


def _no_progress(_: float) -> None:
    """For callers that show no progress."""


class Engine:
    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: EngineSettings,
        clock: Clock,
        owner: Owner,
        progress: Progress = _no_progress,
        *,
        make_wal: type[ShardedWal] = ShardedWal,
        make_maintenance: type[MaintenanceThread] = MaintenanceThread,
        make_forwarder: type[ForwarderThread] = ForwarderThread,
        waits: Waits | None = None,
    ) -> None:
        """Open and recover. Takes as long as that takes; nothing is served before it is done."""
        waits = waits or Waits(clock, settings.wait_us_min)
        opened = open_wal(
            disk,
            directory,
            settings.wal,
            clock,
            self._tickets_resolved,
            make_wal=make_wal,
            waits=waits,
        )
        self._lock: DirectoryLock = opened.lock
        try:
            self._build(opened, disk, directory, settings, clock, owner, waits, make_maintenance)
            self.forwarder = make_forwarder(clock, self.copy_rounds, waits)
            self._recover(opened, progress)
        except BaseException:
            self._lock.release()
            raise

    def _build(
        self,
        opened: OpenWal,
        disk: Disk,
        directory: PurePath,
        settings: EngineSettings,
        clock: Clock,
        owner: Owner,
        waits: Waits,
        make_maintenance: type[MaintenanceThread],
    ) -> None:
        self.core = EngineCore(
            disk,
            directory,
            settings,
            clock,
            owner,
            waits,
            RetentionClock(clock.wall_ms(), clock.monotonic_us()),
            SeqCeilings(settings.wal.head_ahead),
            TailCache(settings.cache_bytes),
            None if not settings.cold_url else open_cold_tier(disk, settings.cold_url),
            wal=opened.wal,
        )
        self.core.topic_store = self
        self.find = self.core.registry.find
        self.topic = self.core.registry.get
        self.topics = Topics(self.core)
        self.pressure_control = PressureControl(self.core)
        self._publisher = Publisher(self.core, self.topics)
        appender = Appender(self.core, self.topics, self._publisher, self.pressure_control)
        self.append = appender.append
        self.append_turn = appender.append_turn
        self.reader = Reader(self.core, self.topics)
        self.plan = self.reader.plan
        self.routers = Routers(self.core, self.topics)
        self.machines = MachineHost(self.core, make_maintenance)
        self.copy_rounds: CopyRounds = CopyRounds(
            self.core,
            self.topics,
            self.reader,
            self.pressure_control.ready_set(forwards=True),
        )
        self._housekeeping = Housekeeping(
            self.core, self.topics, Checkpointer(self.core), Snapshotter(self.core)
        )
        self._maintenance = make_maintenance(clock, settings.checkpoint_interval_ms, self._maintain)
        self.core.wake_maintenance = self._maintenance.wake

    def _recover(self, opened: OpenWal, progress: Progress) -> None:
        core = self.core
        topics_directory = core.directory / TOPICS_DIRECTORY
        if not core.disk.is_directory(topics_directory):
            core.disk.make_directory(topics_directory)
            core.disk.sync_directory(core.directory)
        recovery = TopicRecovery(
            core, self.topics, opened.recovered.report.shards, known_snapshot=opened.snapshot
        )
        recovery.run(progress)
        self.notes: RecoveryNotes = recovery.notes
        self.wal_report: WalReport = opened.recovered.report
        core.retired = retired_logs(core.directory, opened.recovered.retired)
        core.shards = [
            ShardProgress(published_frame=position.next_frame - 1)
            for position in opened.recovered.positions
        ]
        if core.settings.cold_url:
            remember_cold_tier(core.disk, core.directory, core.settings.cold_url)
        if self.machines.directory_exists:
            self.machines.open_at_start()
        self._housekeeping.begin()
        opened.start()
        if isinstance(core.owner, LoopOwner):
            opened.wal.deliver_to(core.owner, self._take_effect)
        self._housekeeping.note_recovery(recovery.notes, recovery.filled)
        self.copy_rounds.catch_up()
        self._maintenance.start()
        core.wake_forwarder = self.forwarder.wake
        core.owner.call(self.copy_rounds.route_all)
        self.machines.start_feeder(self)

    # -- what callers do, as the owner

    def deletion(
        self, name: str, before_seq: int | None, matcher: TagMatcher | None
    ) -> Operation[Deleted]:
        return deletion_operation(self, name, before_seq, matcher)

    def listed(self, prefix: str, after: str | None) -> Iterator[Topic]:
        return self.topics.list(prefix, after)

    # -- what topics ask

    def read_index(self, topic: Topic) -> Callable[[], None]:
        return partial(install, topic, load_once(self.core, topic), self.core)

    def state(self, topic: Topic) -> TopicState:
        return self.topics.state(topic)

    def note_damage(self, topic: Topic, findings: Sequence[RecordDamage]) -> None:
        self.core.note_damage(topic, findings)

    @property
    def log_state(self) -> LogState:
        assert self.core.wal is not None
        return self.core.wal.state

    @property
    def poison(self) -> PoisonedError | None:
        assert self.core.wal is not None
        return self.core.wal.poison

    @property
    def last_error(self) -> Exception | None:
        """Why the last round of maintenance is not whole; the next round tries it again."""
        return self._maintenance.error or self.machines.last_error

    # -- answers of the log

    def _tickets_resolved(self, tickets: Sequence[Ticket]) -> None:
        """On a log's thread: one hand-over per batch of answers."""
        core, given_us = self.core, self.core.clock.monotonic_us()

        def take_effect() -> None:
            came_us = core.clock.monotonic_us()
            core.waits.note(WaitCause.ANSWERS, given_us, came_us, f"{len(tickets)} tickets")
            self._take_effect(tickets)

        core.owner.post(take_effect)

    def _take_effect(self, tickets: Sequence[Ticket]) -> None:
        self._publisher.take_effect(tickets)

    # -- maintenance

    def _maintain(self) -> None:
        """One round of the maintenance thread. Pressure falls also when no client writes any
        more."""
        self.core.owner.call(self.pressure_control.tick)
        self._housekeeping.round()

    def checkpoint(self) -> None:
        """A full checkpoint and a snapshot now. Not for the owner's own thread."""
        self._housekeeping.checkpoint_all()

    def close(self) -> None:
        """Stop the threads, checkpoint, close the log. Not for the owner's own thread."""
        if self.core.closing:
            return
        self.core.owner.call(self._begin_closing)
        self.machines.close()
        self.forwarder.stop()
        self._maintenance.stop()
        try:
            self._housekeeping.finish()
        finally:
            assert self.core.wal is not None
            self.core.wal.close()
            self._lock.release()

    def _begin_closing(self) -> None:
        self.core.closing = True
        for topic in self.core.registry:
            topic.wake()
        self.core.wake()
