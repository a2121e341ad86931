"""The three stores on one disk, opened without threads: what a life on the fake disk works with.

Groups are committed when the test steps, housekeeping when called. The production code is used as
it is. Four of its parts have a stepped twin: the owner, who commits what was submitted once no
caller works as the owner any more; the log, whose shards have no thread; the maintenance thread and
the forwarder, who never come by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import PurePath, PurePosixPath
from random import Random
from typing import Any, Final, TypeVar

from headwater.config.engine import EngineSettings
from headwater.config.kafka import KafkaSettings
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.durability import Durability
from headwater.engine.database import Database
from headwater.engine.drivers import BlockingDriver
from headwater.engine.engine import Engine
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.machines.positions import restore_holds
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.transition_feeder import TransitionFeeder
from headwater.engine.maintenance.housekeeping import MaintenanceThread
from headwater.engine.owner import Pending
from headwater.engine.routers.copy_rounds import ForwarderThread
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.records import NewRecord, decode_records, encode_batch
from headwater.testing.clock import ManualClock
from headwater.testing.fake_disk import FakeDisk
from headwater.testing.torture.kafka_ledger import PartitionReading
from headwater.wal.dialect import LogPosition
from headwater.wal.queue import QueuedGroups
from headwater.wal.shard import Shard
from headwater.wal.sharded import ShardedWal

T = TypeVar("T")


class SteppedShard(Shard):
    """A shard whose thread is the test that steps it."""

    def start(self) -> None:
        """There is no thread to start."""

    def step(self) -> bool:
        """Commit what waits as one group. False when nothing did."""
        assert isinstance(self._groups, QueuedGroups), "who steps brings a clock of their own"
        group = self._groups.take()
        if group:
            self._committer.commit(group)
        return bool(group)

    def tick(self) -> None:
        self._committer.tick()

    def call(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self._groups.close()
        while self.step():
            continue
        self._committer.finish()


class SteppedWal(ShardedWal):
    """A log whose files are made ahead, and whose groups are written, in `step`."""

    def __init__(
        self,
        disk: Any,
        directories: Sequence[PurePath],
        positions: Sequence[LogPosition],
        settings: Any,
        clock: Clock,
        listener: Any,
        policy: Any = None,
        waits: Any = None,
    ) -> None:
        super().__init__(disk, directories, positions, settings, clock, listener, policy, waits)
        for shard in self.shards:
            shard.__class__ = SteppedShard

    @property
    def stepped(self) -> list[SteppedShard]:
        return [shard for shard in self.shards if isinstance(shard, SteppedShard)]

    def start(self) -> None:
        for log in self.logs:
            log.open()
        self._started = True

    def step(self) -> bool:
        """One group in every shard that has one."""
        moved = [shard.step() for shard in self.stepped]
        self._prepare()
        return any(moved)

    def tick(self) -> None:
        for shard in self.stepped:
            shard.tick()

    def _prepare(self) -> None:
        while self._preparer._wanted:
            with contextlib.suppress(OSError):
                self._preparer._wanted.pop().prepare()


class SteppedMaintenance(MaintenanceThread):
    """Does a round when the test calls for it."""

    def start(self) -> None:
        """There is no thread to start."""

    def stop(self) -> None:
        """Nor one to stop."""

    def round(self) -> None:
        self._work()


class SteppedForwarder(ForwarderThread):
    """Nor does he copy by himself: `Forwarding.run_dry` is called."""

    def wake(self) -> None:
        """There is no thread to wake."""

    def stop(self) -> None:
        """Nor one to stop."""


class SteppedOwner:
    """The caller is the owner. When the outermost call returns, the log takes its steps."""

    def __init__(self) -> None:
        self.wal: SteppedWal | None = None
        self.postponed: list[Callable[[], None]] | None = None
        """Where there is a list, what is posted waits in it, as it does for the turn of a loop."""
        self._depth = 0
        self._held = False

    def rest(self, us: int) -> None:
        """Time is the test's."""

    def post(self, work: Callable[[], None]) -> None:
        if self.postponed is None:
            work()
        else:
            self.postponed.append(work)

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        if self.postponed is None or work not in self.postponed:
            self.post(work)

    def end_turn(self) -> None:
        """The test ends it, by running what was postponed."""

    def call(self, work: Callable[[], T]) -> T:
        self._depth += 1
        try:
            return work()
        finally:
            self._depth -= 1
            self._pump()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, submissions gather; they are committed together at the end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self._pump()

    def _pump(self) -> None:
        if self._depth or self._held or self.wal is None:
            return
        while self.wal.step():
            continue


DATA: Final = PurePosixPath("/data")
COLD: Final = PurePosixPath("/cold")
MACHINES: Final = PurePosixPath("/apart/machines")
KAFKA: Final = PurePosixPath("/apart/kafka")
TOPIC: Final = "k"
FETCH_BYTES: Final = 2**20


def new_disk() -> FakeDisk:
    return FakeDisk(["/", "/cold", "/apart"])


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Settings of one start, so small that everything happens all the time."""

    engine: EngineSettings
    machines: MachineSettings
    kafka: KafkaSettings


def choose(random: Random) -> Thresholds:
    wal = WalSettings(
        shards=random.choice((1, 1, 2, 3)),
        file_bytes=random.choice((4_096, 16_384)),
        reserve_bytes=256,
        zero_chunk_bytes=4_096,
        head_ahead=8,
        copies_ahead=8,
        switch_interval_us=None,
    )
    segments = SegmentSettings(
        segment_max_events=random.choice((5, 50)),
        segment_max_bytes=random.choice((2_000, 20_000)),
        hot_retain_segments=random.choice((0, 1, 4)),
        rewrite_dead_ratio=random.choice((0.2, 0.5)),
    )
    engine = EngineSettings(
        wal=wal,
        segments=segments,
        cold_url=str(COLD),
        checkpoint_tail_bytes=random.choice((300, 5_000)),
        cache_bytes=random.choice((0, 400, 100_000)),
        snapshot_wal_bytes=random.choice((8_192, 65_536)),
    )
    machines = MachineSettings(
        wal_segment_bytes=random.choice((1_024, 4_096)),
        reserve_bytes=64,
        zero_chunk_bytes=1_024,
        switch_interval_us=None,
        compaction=CompactionSettings(enabled=False),
    )
    kafka = KafkaSettings(
        wal=WalSettings(switch_interval_us=None),
        segment_bytes=random.choice((1_500, 9_000)),
        log_ahead_bytes=512,
        index_ahead_bytes=400,
        reserve_bytes=200,
        cache_bytes=random.choice((0, 600)),
        checkpoint_bytes=random.choice((1_000, 20_000)),
        synced_event_bytes=random.choice((1, 1_048_576)),
    )
    return Thresholds(engine, machines, kafka)


class Stores:
    """Opening them recovers them."""

    def __init__(self, disk: FakeDisk, thresholds: Thresholds, clock: ManualClock) -> None:
        self.database = open_engine(disk, thresholds.engine, clock)
        holds = RetentionHolds(clock)
        restore_holds(holds, disk, MACHINES, thresholds.machines)
        self._machine_owner = SteppedOwner()
        self.machines = MachineStore(
            disk, MACHINES, thresholds.machines, clock, self._machine_owner,
            holds=holds, make_shard=SteppedShard, make_maintenance=SteppedMaintenance,
        )  # fmt: skip
        self._machine_owner.wal = self.machines.shard  # type: ignore[assignment]
        self.feeder = TransitionFeeder(
            self.database.engine, self.machines, disk, MACHINES, make_maintenance=SteppedMaintenance
        )
        self._kafka_owner = SteppedOwner()
        self.kafka = KafkaStore(
            disk, KAFKA, thresholds.kafka, clock, self._kafka_owner,
            make_shard=SteppedShard, make_maintenance=SteppedMaintenance,
        )  # fmt: skip
        self._kafka_owner.wal = self.kafka.shard  # type: ignore[assignment]

    def machine(self, work: Callable[[], Pending[T]]) -> T:
        return self._machine_owner.call(work).answer()

    def make_kafka_topic(self, partitions: int) -> None:
        self._in_kafka(lambda: self.kafka.create_topic(1, TOPIC, partitions, {}))

    def produce(self, index: int, values: list[bytes], timestamp_ms: int) -> int:
        """The offset of the first."""
        batch = encode_batch([NewRecord(timestamp_ms, None, value, ()) for value in values])
        partition = self._partition(index)
        done = self._in_kafka(lambda: partition.append(batch, Durability.FSYNC))
        return done.base_offset

    def read_partition(self, index: int) -> PartitionReading:
        partition = self._partition(index)
        reading = PartitionReading(partition.log_start_offset, partition.high_watermark)
        offset = reading.low
        while offset < reading.high:
            plan = partition.plan_fetch(offset, FETCH_BYTES)
            for batch in plan.read():
                base = read_header(batch).base_offset
                for record in decode_records(batch):
                    reading.messages[base + record.offset_delta] = bytes(record.value or b"")
                    offset = base + record.offset_delta + 1
        return reading

    def round(self) -> None:
        """Whatever the background threads would do now."""
        for maintenance in (self.database.engine._maintenance, self.kafka._maintenance_thread):
            assert isinstance(maintenance, SteppedMaintenance)
            maintenance.round()

    def close(self) -> None:
        self.feeder.stop()
        self.machines.close()
        self.kafka.close()
        self.database.close()

    def _in_kafka(self, work: Callable[[], Pending[T]]) -> T:
        return self._kafka_owner.call(work).answer()

    def _partition(self, index: int) -> KafkaPartition:
        topic = self.kafka.topic(1, TOPIC)
        assert topic is not None
        return topic.partitions[index]


def open_engine(disk: FakeDisk, settings: EngineSettings, clock: ManualClock) -> Database:
    owner = SteppedOwner()

    class OwnWal(SteppedWal):
        def start(self) -> None:
            super().start()
            owner.wal = self

    engine = Engine(
        disk,
        DATA,
        replace(settings),
        clock,
        owner,
        make_wal=OwnWal,
        make_maintenance=SteppedMaintenance,
        make_forwarder=SteppedForwarder,
    )
    return Database(engine, BlockingDriver(engine.core))
