"""The three stores on one disk, opened without threads: what a life on the fake disk works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from random import Random
from typing import Final, TypeVar

from headwater.config.engine import EngineSettings
from headwater.config.kafka import KafkaSettings
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.engine.database import Database
from headwater.engine.drivers import BlockingDriver
from headwater.engine.engine import Engine
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.machines.positions import restore_holds
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.transition_feeder import TransitionFeeder
from headwater.engine.owner import Pending
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.records import NewRecord, decode_records, encode_batch
from headwater.testing.clock import ManualClock
from headwater.testing.fake_disk import FakeDisk
from headwater.testing.stepped import (
    SteppedForwarder,
    SteppedMaintenance,
    SteppedOwner,
    SteppedShard,
    SteppedWal,
)
from headwater.testing.torture.kafka_ledger import PartitionReading

T = TypeVar("T")
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
