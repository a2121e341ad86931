"""The engine: one data directory, opened, recovered and kept. For its owner only.

What callers use are its faces: `headwater.open` for threads, `headwater.open_async` for event
loops, and the server. All of them go through the same few calls here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock
from headwater.core.errors import PoisonedError
from headwater.disk import DirectoryLock, Disk
from headwater.engine.appending import Appender
from headwater.engine.checkpoint import Checkpointer
from headwater.engine.core import EngineCore, ShardProgress
from headwater.engine.housekeeping import Housekeeping
from headwater.engine.input import EncodedRecords
from headwater.engine.keeper import Keeper
from headwater.engine.loading import Loaded, load_once
from headwater.engine.losses import RecoveryNotes
from headwater.engine.owner import Owner
from headwater.engine.pending import Change, Write
from headwater.engine.reading import Reader, ReadPlan
from headwater.engine.recovering import TopicRecovery
from headwater.engine.snapshots import Snapshotter
from headwater.engine.tail import TailCache
from headwater.engine.topic import Topic
from headwater.engine.topics import Topics, TopicState
from headwater.format.names import TOPICS_DIRECTORY
from headwater.model.match import TagMatcher
from headwater.model.retention_clock import RetentionClock
from headwater.recovery.opening import OpenWal, open_wal
from headwater.recovery.report import WalReport
from headwater.recovery.snapshots import retired_logs
from headwater.store.checked import Finding
from headwater.store.object_store import open_cold_tier
from headwater.wal.ceilings import SeqCeilings
from headwater.wal.committer import LogState
from headwater.wal.sharded import ShardedWal
from headwater.wal.ticket import Ticket

Progress = Callable[[float], None]


def _no_progress(_: float) -> None:
    """For callers who do not show any."""


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
        make_keeper: type[Keeper] = Keeper,
    ) -> None:
        """Open and recover. Takes as long as that takes; nothing is served before it is done."""
        opened = open_wal(
            disk, directory, settings.wal, clock, self._tickets_resolved, make_wal=make_wal
        )
        self._lock: DirectoryLock = opened.lock
        try:
            self._build(opened, disk, directory, settings, clock, owner, make_keeper)
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
        make_keeper: type[Keeper],
    ) -> None:
        self.core = EngineCore(
            disk,
            directory,
            settings,
            clock,
            owner,
            RetentionClock(clock.wall_ms(), clock.monotonic_us()),
            SeqCeilings(settings.wal.head_ahead),
            TailCache(settings.cache_bytes),
            None if not settings.cold_url else open_cold_tier(disk, settings.cold_url),
            wal=opened.wal,
        )
        self.topics = Topics(self.core)
        self._appender = Appender(self.core, self.topics)
        self._reader = Reader(self.core, self.topics)
        self._housekeeping = Housekeeping(
            self.core, self.topics, Checkpointer(self.core), Snapshotter(self.core)
        )
        self._keeper = make_keeper(clock, settings.checkpoint_interval_ms, self._housekeeping.round)
        self.core.wake_keeper = self._keeper.wake

    def _recover(self, opened: OpenWal, progress: Progress) -> None:
        core = self.core
        topics_directory = core.directory / TOPICS_DIRECTORY
        if not core.disk.is_directory(topics_directory):
            core.disk.make_directory(topics_directory)
            core.disk.sync_directory(core.directory)
        recovery = TopicRecovery(core, self.topics, opened.recovered.report.shards)
        recovery.run(progress)
        self.notes: RecoveryNotes = recovery.notes
        self.wal_report: WalReport = opened.recovered.report
        core.retired = retired_logs(core.directory, opened.recovered.retired)
        core.shards = [
            ShardProgress(published_frame=position.next_frame - 1)
            for position in opened.recovered.positions
        ]
        self._housekeeping.begin()
        opened.start()
        self._housekeeping.note_losses(recovery.filled)
        self._keeper.start()

    # -- what callers do, as the owner

    def append(
        self,
        name: str,
        records: EncodedRecords,
        *,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Write:
        return self._appender.append(
            name,
            records,
            idempotency_key=idempotency_key,
            expect_head_seq=expect_head_seq,
            create=create,
            settings=settings,
        )

    def create(self, name: str, settings: Mapping[str, Any]) -> Change:
        return self.topics.create(name, settings)

    def delete(self, topic: Topic, before_seq: int | None, matcher: TagMatcher | None) -> Change:
        return self.topics.delete(topic, before_seq, matcher)

    def drop(self, topic: Topic, *, if_empty: bool = False) -> Change:
        return self.topics.drop(topic, if_empty=if_empty)

    def find(self, name: str) -> Topic | None:
        return self.core.registry.find(name)

    def topic(self, name: str) -> Topic:
        return self.core.registry.get(name)

    def load(self, topic: Topic) -> Loaded:
        """Anywhere: the index files of a topic nobody has asked for until now."""
        return load_once(self.core, topic)

    def state(self, topic: Topic) -> TopicState:
        return self.topics.state(topic)

    def plan(self, topic: Topic, from_seq: int, limit: int, bytes_max: int) -> ReadPlan:
        return self._reader.plan(topic, from_seq, limit, bytes_max)

    def note_damage(self, plan: ReadPlan, findings: Sequence[Finding]) -> bool:
        """Bad frames were met. True when the plan was merely out of date; otherwise they count."""
        if not plan.is_current:
            return True
        for finding in findings:
            self.core.note(finding)
        return False

    @property
    def reader(self) -> Reader:
        return self._reader

    @property
    def log_state(self) -> LogState:
        assert self.core.wal is not None
        return self.core.wal.state

    @property
    def poison(self) -> PoisonedError | None:
        assert self.core.wal is not None
        return self.core.wal.poison

    # -- what the log says

    def _tickets_resolved(self, tickets: Sequence[Ticket]) -> None:
        """On a log's thread: one hand-over per batch of answers."""
        self.core.owner.post(lambda: self._take_effect(tickets))

    def _take_effect(self, tickets: Sequence[Ticket]) -> None:
        broken: Exception | None = None
        for ticket in tickets:
            try:
                self._take_one(ticket)
            except Exception as error:  # whoever is behind it is answered all the same (I15)
                broken = broken or error
            ticket.taken = True
        for shard in self.core.shards:
            shard.settle()
        self._harden()
        if broken is not None:
            raise broken

    def _take_one(self, ticket: Ticket) -> None:
        context, error = ticket.context, ticket.error
        if isinstance(context, Write):
            if error is None:
                self._note_sync(context, ticket)
                self._appender.published(context)
            else:
                self._appender.failed(context, error)
        elif isinstance(context, Change):
            if error is None:
                context.carry_out()
            else:
                context.refuse(error)

    def _note_sync(self, write: Write, ticket: Ticket) -> None:
        """How long the sync took that an ack waited for, or that there is one still to come."""
        assert self.core.wal is not None
        topic = write.topic
        if ticket.durability.waits_for_sync:
            write.sync_us = self.core.wal.shards[topic.shard].counters.sync_us_last
            return
        if not topic.unsynced_writes:
            topic.hardened_seq = write.first_seq - 1
        topic.unsynced_writes += 1
        unsynced = self.core.shards[topic.shard].unsynced
        unsynced.append((ticket.last_frame, topic, write.last_seq))

    def _harden(self) -> None:
        """What was visible before its sync has it now: tell those who waited for that."""
        assert self.core.wal is not None
        for shard, progress in zip(self.core.wal.shards, self.core.shards, strict=True):
            synced_frame = shard.synced_frame
            while progress.unsynced and progress.unsynced[0][0] <= synced_frame:
                _, topic, last_seq = progress.unsynced.popleft()
                topic.hardened_seq = last_seq
                topic.unsynced_writes -= 1
                if self.core.on_hardened is not None:
                    self.core.on_hardened(topic)

    # -- care

    def checkpoint(self) -> None:
        """Absorb everything and take a snapshot now. Not for the owner's own thread."""
        self._housekeeping.absorb_everything()

    def close(self) -> None:
        """Stop the keeper, absorb what is there, close the log. Not for the owner's own thread."""
        if self.core.closing:
            return
        self.core.owner.call(self._begin_closing)
        self._keeper.stop()
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
