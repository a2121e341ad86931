"""Long random lives of a Kafka store: writes, removals, rewrites, restarts, crashes, all mixed.

After every step the store is held against a model; after a power loss the model becomes what is
left, which must be at least what was acked. In every other life the disk is full now and then,
for all files or for some: what is refused then changes nothing.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest

from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError
from headwater.core.units import US_PER_S
from headwater.disk import NO_ROOM
from headwater.engine.kafka.group_state import Committed
from headwater.format.kafka.events import GroupMembership
from headwater.format.kafka.records import BatchProducer
from headwater.testing import POWER_LOSS, RANDOM, CrashPlan, FakeDisk
from headwater.testing.fault_disk import SPACE_VERBS, Fault, FaultDisk, Verb
from tests.crash.kafka_story import Place, seen_in, settled, settled_in
from tests.crash.matrix import FULL, tried
from tests.rig.kafka import SMALL_KAFKA, KafkaLife, batch_of

pytestmark = pytest.mark.crash

SEEDS = range(400 if FULL else 12)
STEPS = 120
DAY_US = 86_400 * US_PER_S
SETTINGS = replace(SMALL_KAFKA, synced_event_bytes=400)
NAMES = ("orders", "clicks", "views")


class Sent(NamedTuple):
    batch: bytes
    base_offset: int
    end_offset: int
    time_us: int


@dataclass
class Model:
    values: dict[Place, list[bytes]] = field(default_factory=dict)
    starts: dict[Place, int] = field(default_factory=dict)
    sure: dict[Place, int] = field(default_factory=dict)
    offsets: dict[Place, int] = field(default_factory=dict)
    sequences: dict[Place, int] = field(default_factory=dict)
    sent: dict[Place, Sent] = field(default_factory=dict)
    """The newest batch of an idempotent producer."""
    settled: dict[str, GroupMembership] = field(default_factory=dict)

    def sync(self) -> None:
        self.sure = {place: len(values) for place, values in self.values.items()}


class RandomLife:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = FakeDisk(["/data"])
        self.faults = FaultDisk(self.disk)
        self.life = KafkaLife(self.faults, SETTINGS)
        self.model = Model()
        self.made = 0
        self.space = 8 * (seed % 2)

    def step(self) -> None:
        try:
            self.choice()()
        except DiskFullError:
            tried("kafka: refused in random lives for want of room", 1)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def choice(self) -> Callable[[], None]:
        verbs = (
            (self.append, 60),
            (self.create, 6),
            (self.drop, 2),
            (self.delete, 8),
            (self.commit, 6),
            (self.settle, 4),
            (self.checkpoint, 3),
            (self.housekeep, 6),
            (self.wait, 10),
            (self.wait_long, 4),
            (self.repeat, 6),
            (self.reopen, 3),
            (self.kill, 3),
            (self.lose_power, 3),
            (self.fill, self.space),
            (self.make_room, self.space),
        )
        return self.random.choices([v for v, _ in verbs], [weight for _, weight in verbs])[0]

    def fill(self) -> None:
        """No more room, at once or soon."""
        files = self.random.choice(("*", "*.log", "*.oidx", "checkpoint*"))
        verbs = self.random.choice(({Verb.ALLOCATE}, SPACE_VERBS - {Verb.SYNC_DATA}))
        nth = self.random.randrange(6)
        self.faults.add(Fault(verbs, errno.ENOSPC, path=files, nth=nth, always=True))

    def make_room(self) -> None:
        self.faults.clear()
        self.life.clock.advance(SETTINGS.wal.full_retry_interval_us)

    def start(self, disk: FakeDisk) -> None:
        self.disk, self.faults = disk, FaultDisk(disk)
        self.life = KafkaLife(self.faults, SETTINGS, self.life.clock)

    def place(self) -> Place | None:
        return self.random.choice(list(self.model.values)) if self.model.values else None

    def create(self) -> None:
        name = self.random.choice(NAMES)
        if (name, 0) in self.model.values:
            return
        partitions = self.random.randint(1, 2)
        self.life.create(name, partitions)
        for index in range(partitions):
            self.model.values[name, index] = []
            self.model.starts[name, index] = self.model.sequences[name, index] = 0
        self.model.sync()

    def drop(self) -> None:
        place = self.place()
        if place is None:
            return
        topic = self.life.store.topic(1, place[0])
        assert topic is not None
        self.life.do(topic.drop)
        model = self.model
        tables: tuple[dict[Place, Any], ...] = (
            model.values,
            model.starts,
            model.sure,
            model.offsets,
            model.sequences,
            model.sent,
        )
        for table in tables:
            for index in (0, 1):
                table.pop((place[0], index), None)
        model.sync()

    def append(self) -> None:
        place = self.place()
        if place is None:
            return
        self.made += 1
        size = self.random.choice((1, 1, 1, 30, 300))
        words = [f"{self.made}.{n}" * size for n in range(self.random.choice((1, 2, 7)))]
        producer = None
        if place[1] == 1:
            producer = BatchProducer(3, 0, self.model.sequences[place])
        sure = self.random.random() < 0.7
        batch = batch_of(*words, producer=producer)
        durability = Durability.FSYNC if sure else Durability.DISK
        for _ in range(2 if producer is not None else 1):  # the second time it is a repeat
            answer = self.life.append(place[0], batch, place[1], durability=durability)
            assert answer.base_offset == len(self.model.values[place])
        base = len(self.model.values[place])
        self.model.values[place] += [word.encode() for word in words]
        if producer is not None:
            self.model.sequences[place] += len(words)
            now_us = self.life.clock.monotonic_us()
            self.model.sent[place] = Sent(batch, base, base + len(words), now_us)
        if sure:
            self.model.sync()

    def delete(self) -> None:
        place = self.place()
        if place is None:
            return
        start, end = self.model.starts[place], len(self.model.values[place])
        before = self.random.choice((end, self.random.randint(start, end)))
        partition = self.life.partition(*place)
        self.life.do(lambda: partition.delete_records(before))
        if before > start:
            self.model.starts[place] = before
            self.model.sync()

    def commit(self) -> None:
        place = self.place()
        if place is None:
            return
        offset = self.random.randint(0, 100)
        self.life.do(
            lambda: self.life.store.commit_offsets(1, "readers", {place: Committed(offset)})
        )
        self.model.offsets[place] = offset
        self.model.sync()

    def settle(self) -> None:
        """A group gets other members, or none, or is forgotten."""
        group = self.random.choice(("readers", "passers"))
        self.made += 1
        members = [f"{self.made}.{n}" * 4 for n in range(self.random.choice((0, 1, 1, 3)))]
        event, store = settled(group, self.made, *members), self.life.store
        if members or self.random.random() < 0.5 or self.model.offsets:
            self.life.do(lambda: store.log_membership(event))
        else:
            self.life.do(lambda: store.forget_group(1, group))
        self.model.settled.pop(group, None)
        if members:
            self.model.settled[group] = event
        self.model.sync()

    def checkpoint(self) -> None:
        self.life.store.checkpoint()
        self.model.sync()

    def housekeep(self) -> None:
        self.life.store.housekeep()
        self.model.sync()

    def wait(self) -> None:
        """So that events about syncs come by time too, behind writes that were not synced."""
        self.life.clock.advance(self.life.settings.synced_event_interval_ms * 1_000)

    def wait_long(self) -> None:
        """Hours, so that producers become idle; the keeper forgets those that are for a day."""
        self.life.clock.advance(self.random.choice((1, 7, 20)) * 3_600 * US_PER_S)
        self.housekeep()

    def repeat(self) -> None:
        """A batch that comes again within a day gets the answer it had."""
        for place, sent in self.model.sent.items():
            if self.life.clock.monotonic_us() - sent.time_us <= DAY_US:
                again = self.life.append(place[0], sent.batch, place[1])
                assert again.base_offset == sent.base_offset

    def reopen(self) -> None:
        self.life.close()
        self.start(self.disk)
        self.model.sync()

    def kill(self) -> None:
        self.start(self.disk.after_kill())
        self.model.sync()  # recovery syncs what it found

    def lose_power(self) -> None:
        plan: CrashPlan = self.random.choice((POWER_LOSS, RANDOM))
        states = list(self.disk.crash_states(self.disk.point, plan))
        self.start(self.random.choice(states or [self.disk.after_power_loss()]))
        for place, values in self.model.values.items():
            left = self.life.partition(*place).high_watermark
            assert self.model.sure[place] <= left <= len(values), f"{place} lost acked records"
            del values[left:]
            self.model.sequences[place] = len(values)
            if place in self.model.sent and left < self.model.sent[place].end_offset:
                del self.model.sent[place]
        self.model.sync()

    def check(self) -> None:
        expected = {
            place: (self.model.starts[place], values[self.model.starts[place] :])
            for place, values in self.model.values.items()
        }
        assert seen_in(self.life) == expected
        committed = self.life.store.committed(1, "readers")
        assert {place: row.offset for place, row in committed.items()} == self.model.offsets
        assert settled_in(self.life) == self.model.settled


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_life_is_what_the_model_says(seed: int) -> None:
    life = RandomLife(seed)
    for step in range(STEPS):
        life.step()
        if step % 3 == 0:
            life.check()
    life.check()
    tried("kafka: steps of random lives", STEPS)
