"""The Kafka store: topics, batches, offsets of groups, all in one shared log.

Everything is called as the owner, except `close`, `checkpoint` and the reading of plans. A call
that writes to the log returns a `Pending`; what can be refused at once is raised.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from headwater.config.kafka import KafkaSettings
from headwater.core.clock import Clock
from headwater.disk import NO_ROOM, Disk, have_directory
from headwater.engine.kafka.batch_appender import BatchAppender
from headwater.engine.kafka.checkpointer import KafkaCheckpointer
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.fetch_plan import FetchPlanner
from headwater.engine.kafka.group_state import Committed, OffsetKey, rows_of, weight
from headwater.engine.kafka.housekeeping import KafkaHousekeeping
from headwater.engine.kafka.partition import KafkaTopic, PartitionCalls
from headwater.engine.kafka.partition_reads import plan_partition
from headwater.engine.kafka.recovered_state import restore
from headwater.engine.kafka.timestamps import NewestPlan, TimestampPlan
from headwater.engine.kafka.topics import KafkaTopics
from headwater.engine.maintenance.housekeeping import MaintenanceThread
from headwater.engine.owner import Owner, Pending
from headwater.format.kafka import events
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta
from headwater.observe.waits import Waits
from headwater.recovery.kafka.repair import TailCut, recover_kafka
from headwater.recovery.kafka.survey import KafkaReport
from headwater.store.kafka.files import KafkaSegmentFiles
from headwater.wal.batch_log import BatchLog
from headwater.wal.committer import LogState
from headwater.wal.counters import WalCounters
from headwater.wal.policy import ByClass
from headwater.wal.shard import Shard, switch_interval
from headwater.wal.ticket import Ticket

Progress = Callable[[float], None]


class KafkaStore:
    """`directory` is the `kafka` directory itself; its parent must be there."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: KafkaSettings,
        clock: Clock,
        owner: Owner,
        progress: Progress | None = None,
        *,
        make_shard: type[Shard] = Shard,
        make_maintenance: type[MaintenanceThread] = MaintenanceThread,
        waits: Waits | None = None,
    ) -> None:
        waits = waits or Waits(clock, 0)
        self.core = KafkaCore(
            disk, directory, settings, clock, owner, KafkaSegmentFiles(disk, directory)
        )
        self.counters = self.core.counters
        self.cut: TailCut | None = None
        """What recovery cut behind the last whole batch, if it did."""
        self.report = KafkaReport()
        """What recovery kept, cut and quarantined."""
        self._closed = False
        self._topics = KafkaTopics(self.core)
        self._batch_appender = BatchAppender(self.core)
        self.core.calls = PartitionCalls(
            append=self._batch_appender.append,
            refused=self._batch_appender.refused,
            plan=partial(plan_partition, clock),
            plan_fetch=FetchPlanner(self.core).plan,
            find_timestamp=partial(TimestampPlan, self.core),
            find_newest=partial(NewestPlan, self.core),
            delete_records=self._topics.delete_records,
            drop=self._topics.drop,
            grow=self._topics.add_partitions,
            alter=self._topics.alter_configs,
        )
        counters = WalCounters(waits=waits)
        self._log = BatchLog(
            disk, directory, settings, clock, counters, self._take_number, self._sealed, self._idle
        )
        policy = ByClass(settings.wal.disk_sync_interval_us)
        self.shard = make_shard(
            "headwater-kafka-log", self._log, policy, settings.wal, clock, self._listen, counters
        )
        self._checkpointer = KafkaCheckpointer(self.core, self._note_synced, self._log.note_saved)
        self._open(progress or (lambda _: None))
        self.core.shard = self.shard
        self._housekeeping = KafkaHousekeeping(
            self.core, self._topics, self._checkpointer, self._take_number, self._seal
        )
        self._maintenance_thread = make_maintenance(
            clock,
            settings.maintenance_interval_ms,
            waits.activity("maintenance of Kafka's log")(self._housekeeping.run),
        )
        self.core.wake_maintenance = self._maintenance_thread.wake
        self._settings = settings.wal
        if self._settings.switch_interval_us is not None:
            switch_interval.lower(self._settings.switch_interval_us)
        self.shard.start()
        self._maintenance_thread.start()

    # -- topics

    def topics(self, org: int) -> Iterable[KafkaTopic]:
        return self.core.registry.of(org)

    def topic(self, org: int, name: str) -> KafkaTopic | None:
        return self.core.registry.find(org, name)

    def is_taken(self, org: int, name: str) -> bool:
        """There is a topic of this name, or it is just being made."""
        return self._topics.is_taken(org, name)

    def topic_by_id(self, org: int, topic_id: bytes) -> KafkaTopic | None:
        topic = self.core.registry.by_id(topic_id)
        return topic if topic is not None and topic.org == org else None

    def check_new_topic(
        self, org: int, name: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        """Raise what would keep such a topic from being made."""
        self._topics.check_new(org, name, partitions, configs)

    def create_topic(
        self, org: int, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> Pending[KafkaTopic]:
        return self._topics.create(org, name, partitions, configs or {})

    # -- consumer groups and producers

    def commit_offsets(
        self, org: int, group: str, offsets: Mapping[OffsetKey, Committed]
    ) -> Pending[bool]:
        rows = tuple(rows_of(offsets))
        return self._log_event(events.OffsetsCommitted(org, group, rows))

    def committed(self, org: int, group: str) -> Mapping[OffsetKey, Committed]:
        return self.core.offsets.of(org, group)

    def groups_with_offsets(self, org: int) -> list[str]:
        return self.core.offsets.groups(org)

    def forget_group(self, org: int, group: str) -> Pending[bool]:
        return self._log_event(events.GroupForgotten(org, group))

    def memberships(self) -> tuple[events.GroupMembership, ...]:
        """Groups with members, as of their last complete round."""
        return self.core.memberships.all()

    def has_membership(self, org: int, group: str) -> bool:
        return self.core.memberships.has(org, group)

    def fits_membership(self, event: events.GroupMembership) -> bool:
        """Whether that many members may outlive a restart: checkpoints hold all of them."""
        settings, memberships = self.core.settings, self.core.memberships
        return (
            weight(event) <= settings.membership_bytes_max
            and memberships.bytes_with(event) <= settings.memberships_bytes_max
        )

    def log_membership(self, event: events.GroupMembership) -> Pending[bool]:
        """On a full disk only small ones may use the reserve, which deletes live on."""
        small = weight(event) <= self.core.settings.reserve_bytes // 4
        return self._topics.log_event(event, essential=small)

    def forget_offsets(self, org: int, group: str, keys: Sequence[OffsetKey]) -> Pending[bool]:
        return self._log_event(events.OffsetsForgotten(org, group, tuple(keys)))

    def new_producer_id(self) -> Pending[int]:
        return self._topics.new_producer_id()

    # -- life

    @property
    def state(self) -> LogState:
        return self.shard.state

    @property
    def last_error(self) -> Exception | None:
        """Why the last round of maintenance failed; None after a good one."""
        return self._maintenance_thread.error

    def checkpoint(self) -> KafkaCheckpoint:
        """Write a checkpoint now. Not as the owner."""
        return self._checkpointer.run()

    def housekeep(self) -> None:
        """A full round of maintenance now: retention, space, a checkpoint. Not as the owner."""
        self._housekeeping.run(thorough=True)

    def close(self) -> None:
        """Serve what was accepted, sync, write the closing checkpoint. Not as the owner."""
        if self._closed:
            return
        self._closed = True
        self.core.owner.call(self._stop_taking)
        self._maintenance_thread.stop()
        self.shard.close()
        if self._settings.switch_interval_us is not None:
            switch_interval.restore(self._settings.switch_interval_us)
        try:
            if self.shard.state is not LogState.POISONED:
                self._checkpointer.run(clean=True)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # Everything is synced; the next start reads a little more of the log.
        finally:
            self.core.files.clear()

    def _stop_taking(self) -> None:
        self.core.closing = True

    def _log_event(self, event: events.AnyEvent) -> Pending[bool]:
        return self._topics.log_event(event, essential=True)

    def _open(self, progress: Progress) -> None:
        core = self.core
        have_directory(core.disk, core.directory)
        recovered = recover_kafka(core.disk, core.directory, lambda part: progress(part / 2))
        if recovered is None:
            self._numbers = itertools.count()
            self._checkpointer.write(KafkaCheckpoint())
        else:
            self.cut, self.report = recovered.cut, recovered.report
            self._numbers = itertools.count(recovered.next_number)
        if recovered is None or not recovered.segments:
            first = self._log.begin(0)
            core.set_segments([], first.number, 0)
        else:
            *sealed, active = recovered.segments
            core.set_segments(sealed, active.number, active.base_id)
            restore(core, recovered, lambda part: progress(0.5 + part / 2))
            core.files.clear()  # all indexes were read, and most are not needed soon
            core.applied_id = active.base_id + active.entries
            core.unsaved_bytes = len(recovered.tail)
            core.save_soon = True
            core.reclaim_soon()
            self._log.go_on(active, recovered.checksum)
        progress(1.0)

    # -- called by the log's thread

    def _take_number(self) -> int:
        return next(self._numbers)

    def _listen(self, tickets: Sequence[Ticket]) -> None:
        if tickets:
            self.core.owner.post(partial(self._batch_appender.take_effect, tuple(tickets)))

    def _sealed(self, meta: SegmentMeta, active_number: int) -> None:
        def note() -> None:
            core = self.core
            core.set_segments([*core.sealed, meta], active_number, meta.base_id + meta.entries)
            core.save_soon = True
            core.reclaim_soon()

        self.core.owner.post(note)
        self.core.wake_maintenance()

    def _idle(self) -> None:
        self.core.save_soon = True
        self.core.wake_maintenance()

    def _seal(self, number: int) -> bool:
        future: Any = self.shard.call(partial(self._log.seal, number))
        sealed: bool = future.result()
        return sealed

    def _note_synced(self) -> SegmentMeta:
        if self._closed:
            return self._log.synced_meta()
        future: Any = self.shard.call(self._log.synced_meta)
        meta: SegmentMeta = future.result()
        return meta
