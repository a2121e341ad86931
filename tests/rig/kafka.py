"""A Kafka store on a fake disk, without threads: groups are committed when the owner is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar

from headwater.config.kafka import KafkaSettings
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.disk import Disk
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.store import KafkaStore
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.records import (
    NO_PRODUCER,
    BatchProducer,
    KafkaRecord,
    NewRecord,
    decode_records,
    encode_batch,
)
from headwater.testing import FakeDisk, ManualClock
from tests.rig.stepped import SteppedMaintenance, SteppedShard

T = TypeVar("T")

KAFKA = PurePosixPath("/data/kafka")
NOW_MS = 1_700_000_000_000

SMALL_KAFKA = KafkaSettings(
    wal=WalSettings(switch_interval_us=None),
    segment_bytes=1_500,
    log_ahead_bytes=512,
    index_ahead_bytes=400,
    reserve_bytes=200,
    cache_bytes=600,
    checkpoint_bytes=1_000,
)
"""Everything happens all the time: rotation, reading from files, checkpoints."""

TELLING_KAFKA = replace(SMALL_KAFKA, synced_event_bytes=1)
"""And every group says how far the log is synced, if it is further than before."""

ROOMY_KAFKA = replace(TELLING_KAFKA, segment_bytes=9_000)
"""And a segment takes several groups of long records."""

SEALING_KAFKA = replace(ROOMY_KAFKA, seal_dead_bytes=600)
"""And is ended before it is full when most of it is dead."""

LARGE_KAFKA = replace(SMALL_KAFKA, segment_bytes=2**20, cache_bytes=2**20)


class KafkaOwner:
    """Whoever calls is the owner, and the outermost call is a turn. When it returns, what came in
    it is submitted, and the log takes its steps."""

    def __init__(self) -> None:
        self.shard: SteppedShard | None = None
        self._depth = 0
        self._ending: list[Callable[[], None]] = []

    def rest(self, us: int) -> None:
        """Time is the test's."""

    def post(self, work: Callable[[], None]) -> None:
        work()

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        if not self._depth:
            work()
        elif work not in self._ending:
            self._ending.append(work)

    def end_turn(self) -> None:
        while self._ending:
            self._ending.pop(0)()

    def call(self, work: Callable[[], T]) -> T:
        self._depth += 1
        try:
            result = work()
            if self._depth == 1:
                self.end_turn()
            return result
        finally:
            self._depth -= 1
            while not self._depth and self.shard is not None and self.shard.step():
                continue


class KafkaLife:
    """A store and the calls tests make, each of them waiting for its answer."""

    def __init__(
        self,
        disk: Disk | None = None,
        settings: KafkaSettings = SMALL_KAFKA,
        clock: ManualClock | None = None,
    ) -> None:
        self.disk: Disk = FakeDisk(["/data"]) if disk is None else disk
        self.settings = settings
        self.clock = clock or ManualClock(NOW_MS)
        self.owner = KafkaOwner()
        self.store = KafkaStore(
            self.disk,
            KAFKA,
            settings,
            self.clock,
            self.owner,
            make_shard=SteppedShard,
            make_maintenance=SteppedMaintenance,
        )
        assert isinstance(self.store.shard, SteppedShard)
        self.owner.shard = self.store.shard

    def do(self, work: Callable[[], Pending[T]]) -> T:
        return self.owner.call(work).answer()

    def create(self, name: str, partitions: int = 1, org: int = 1, **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.do(lambda: self.store.create_topic(org, name, partitions, named))

    def partition(self, name: str, index: int = 0, org: int = 1) -> KafkaPartition:
        topic = self.store.topic(org, name)
        assert topic is not None, name
        return topic.partitions[index]

    def append(
        self,
        name: str,
        batch: bytes,
        index: int = 0,
        org: int = 1,
        durability: Durability = Durability.FSYNC,
    ) -> Produced:
        partition = self.partition(name, index, org)
        return self.do(lambda: partition.append(batch, durability))

    def append_together(
        self,
        batches: Sequence[tuple[str, int, bytes]],
        durability: Durability = Durability.FSYNC,
    ) -> list[Produced]:
        """Batches for these topics and partitions, as one group."""
        pending = self.owner.call(
            lambda: [
                self.partition(name, index).append(batch, durability)
                for name, index, batch in batches
            ]
        )
        return [each.answer() for each in pending]

    def fetch(self, name: str, offset: int, max_bytes: int = 2**20, index: int = 0) -> list[bytes]:
        plan = self.owner.call(lambda: self.partition(name, index).plan_fetch(offset, max_bytes))
        return [bytes(batch) for batch in plan.read()]

    def records(self, name: str, index: int = 0, org: int = 1) -> list[KafkaRecord]:
        """Everything from the log start on, in as many fetches as it takes."""
        partition = self.partition(name, index, org)
        offset, found = partition.log_start_offset, []
        while offset < partition.high_watermark:
            plan = partition.plan_fetch(offset, 200)
            for batch in plan.read():
                header = read_header(batch)
                base = header.base_offset
                assert header.leader_epoch == 0
                assert base <= offset, f"a gap: {base} follows {offset}"
                records = decode_records(batch)
                found += [one for one in records if base + one.offset_delta >= offset]
                offset = base + len(records)
        return found

    def values(self, name: str, index: int = 0, org: int = 1) -> list[bytes]:
        return [record.value or b"" for record in self.records(name, index, org)]

    def close(self) -> None:
        self.store.close()

    def reopen(self) -> KafkaLife:
        """After a clean stop."""
        self.close()
        return KafkaLife(self.disk, self.settings, self.clock)


def batch_of(
    *values: str, timestamp_ms: int = NOW_MS, producer: BatchProducer | None = None
) -> bytes:
    records = [NewRecord(timestamp_ms, None, value.encode(), ()) for value in values]
    return encode_batch(records, producer=producer or NO_PRODUCER)
