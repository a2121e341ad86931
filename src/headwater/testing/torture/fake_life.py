"""A life of the engine alone on the fake disk: random operations, then a crash at any point.

Deterministic: the same seed gives the same operations, the same trace of disk calls and the same
crash. There is no thread and no real time; the number of an operation stands in for the moment it
was answered. A crash is one of those the fake disk can leave at one point of the trace: nothing
that was not synced survives, or all of it, or any subset, torn or not.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from headwater.api.machine_requests import ApplyEvent, CreateInstance, DeleteInstance, PutMachine
from headwater.core.errors import HeadwaterError
from headwater.model.machines.errors import MachineError
from headwater.testing.clock import ManualClock
from headwater.testing.crash_plan import CrashKind, CrashPlan
from headwater.testing.torture.fake_stores import Stores, choose, new_disk
from headwater.testing.torture.kafka_ledger import KafkaLedger, Message
from headwater.testing.torture.machine_ledger import (
    DEFINITION,
    MACHINE,
    InstanceCondition,
    MachineLedger,
)
from headwater.testing.torture.outcome import BrokenPromise, End, RunOutcome, Tally, violations_of
from headwater.testing.torture.plan import random_of
from headwater.testing.torture.reading import database_pages, read_database
from headwater.testing.torture.topic_ledger import (
    LedgerWrite,
    TopicLedger,
    record_data,
)

ROUNDS: Final = 12
OPERATIONS: Final = (10, 60)
PARTITIONS: Final = 2
TAGS: Final = (None, "red", "green")
STATES_CHECKED: Final = 40
"""So many of the disks that a crash may leave are made; one of them is gone on with."""
CRASHES: Final = (
    CrashKind.KILL,
    CrashKind.NONE,
    CrashKind.ALL,
    CrashKind.SPLIT,
    CrashKind.SINGLE_DROP,
    CrashKind.RANDOM,
    CrashKind.SECTORS,
)
JUMPS_MS: Final = (-86_400_000, -5_000, 5_000, 86_400_000)
TRANSITIONS: Final = "machines:transitions"


class FakeLife:
    def __init__(self, seed: int, number: int, tally: Tally) -> None:
        self._random = random_of(seed, "fake life", number)
        self._tally = tally
        self._disk = new_disk()
        self._clock = ManualClock()
        self._step = 0
        self._ends: list[int] = []
        """Where the trace of the disk stood after each operation of this round."""
        self._first_step = 0
        self._topics = {
            "plain": TopicLedger("plain"),
            "capped": TopicLedger("capped", cap_records=30),
            "disk": TopicLedger("disk", "disk"),
            "jobs": TopicLedger("jobs"),
        }
        self._machines = MachineLedger()
        self._kafka = KafkaLedger("k", PARTITIONS, is_idempotent=True)
        self._numbers = itertools.count(1)
        self._end = End.STOP
        self._stores: Stores | None = None

    def run(self) -> list[BrokenPromise]:
        """What was wrong; empty when every promise was kept."""
        for number in range(ROUNDS):
            try:
                wrong = self._round(is_first=number == 0)
            except HeadwaterError as error:
                wrong = [BrokenPromise("fake disk", type(error).__name__, f"{error}")]
            if wrong:
                where = f"round {number} after {self._end.value}, {self._disk.label}"
                return [
                    BrokenPromise(each.who, each.promise, f"{each.what} ({where})")
                    for each in wrong
                ]
        self._tally.add("lives on the fake disk")
        return []

    def _round(self, *, is_first: bool) -> list[BrokenPromise]:
        self._stores = stores = Stores(self._disk, choose(self._random), self._clock)
        if is_first:
            self._prepare(stores)
        wrong = self._check(stores)
        if wrong:
            return wrong
        self._disk.settle()
        self._ends, self._first_step = [], self._step + 1
        for _ in range(self._random.randint(*OPERATIONS)):
            self._step += 1
            self._operation(stores)
            self._ends.append(self._disk.point)
        self._crash(stores)
        return []

    def _prepare(self, stores: Stores) -> None:
        database = stores.database
        database.create("plain")
        database.create("capped", cap_records=30)
        database.create("disk", durability="disk")
        database.create("jobs", type="queue", lease_ms=1_000)
        put = PutMachine(MACHINE, 1, DEFINITION)
        stores.machine(partial(stores.machines.submit, put))
        stores.make_kafka_topic(PARTITIONS)

    # -- operations

    def _operation(self, stores: Stores) -> None:
        choices: tuple[tuple[Callable[[Stores], None], int], ...] = (
            (self._append, 30),
            (self._delete, 3),
            (self._work, 8),
            (self._move, 20),
            (self._produce, 15),
            (self._keep, 6),
            (self._time_passes, 4),
        )
        (work,) = self._random.choices(
            [each for each, _ in choices], [weight for _, weight in choices]
        )
        work(stores)
        self._tally.add("operations on the fake disk")

    def _append(self, stores: Stores) -> None:
        random = self._random
        ledger = self._topics[random.choice(tuple(self._topics))]
        number = next(self._numbers)
        tags = tuple(random.choice(TAGS) for _ in range(random.choice((1, 1, 2, 8))))
        write = LedgerWrite(f"{ledger.name}.{number}", tags, "w", number, self._step)
        ledger.send(write)
        padding = random.choice((0, 10, 400))
        records = [
            {
                "data": record_data(write.identity, index, padding),
                **({} if tag is None else {"tag": tag}),
            }
            for index, tag in enumerate(tags)
        ]
        done = stores.database.append(ledger.name, records)
        ledger.ack(write.identity, done.first_seq, done.last_seq, self._step)
        ledger.note_head(done.head_seq)

    def _delete(self, stores: Stores) -> None:
        ledger = self._topics["plain"]
        if self._random.random() < 0.5:
            before = max(ledger.head_max - self._random.randint(0, 20), 1)
            delete = ledger.send_delete(before, None, self._step)
            stores.database.delete("plain", before_seq=before)
        else:
            tag = self._random.choice(TAGS[1:])
            # A moment later than the writes before it, and earlier than those behind.
            delete = ledger.send_delete(None, tag, self._step)
            stores.database.delete("plain", match=["tag", "Eq", tag])
        ledger.resolve_delete(delete, RunOutcome.ACKED, self._step)

    def _work(self, stores: Stores) -> None:
        ledger, database = self._topics["jobs"], stores.database
        for job in database.claim("jobs", "worker", self._random.randint(1, 5)).jobs:
            seq = job.record.seq
            removal = ledger.removal(seq)
            if removal is not None and removal[0] is RunOutcome.ACKED:
                raise JobCameBackError(f"job {seq} was acked and delivered again")
            if self._random.random() < 0.7:
                database.ack("jobs", "worker", [seq], lease_ids=[job.lease_id])
                ledger.remove(seq, RunOutcome.ACKED, self._step)
            else:
                database.nack("jobs", "worker", [seq])

    def _move(self, stores: Stores) -> None:
        random, machines = self._random, stores.machines
        usable = [each for each in self._machines.instances.values() if each.is_usable]
        if len(usable) < 5:
            instance = self._machines.add(f"i{next(self._numbers)}")
            create = CreateInstance(MACHINE, 1, instance.identity, {"n": 0})
            stores.machine(partial(machines.submit, create))
            self._machines.record(instance, InstanceCondition(True, 0), self._step)
            return
        instance = random.choice(usable)
        count = instance.now.count
        if random.random() < 0.04:
            stores.machine(partial(machines.submit, DeleteInstance(instance.identity)))
            self._machines.record(instance, InstanceCondition(False, count), self._step)
        elif random.random() < 0.05:
            machines.compact()
        else:
            event = ApplyEvent(instance.identity, "GO", {"n": count + 1})
            stores.machine(partial(machines.submit, event))
            self._machines.record(instance, InstanceCondition(True, count + 1), self._step)

    def _produce(self, stores: Stores) -> None:
        index = self._random.randrange(PARTITIONS)
        messages = [
            Message("p", next(self._numbers)) for _ in range(self._random.choice((1, 1, 4, 10)))
        ]
        for message in messages:
            self._kafka.send(message, index)
        values = [message.value for message in messages]
        base = stores.produce(index, values, self._clock.wall_ms())
        for offset, message in enumerate(messages, base):
            self._kafka.ack(message, index, offset, self._step)

    def _keep(self, stores: Stores) -> None:
        match self._random.randrange(4):
            case 0:
                stores.database.checkpoint()
            case 1:
                stores.kafka.checkpoint()
            case 2:
                stores.feeder.round()
            case _:
                stores.round()

    def _time_passes(self, stores: Stores) -> None:
        self._clock.advance(self._random.choice((1_000, 200_000, 3_000_000)))
        if self._random.random() < 0.2:
            self._clock.jump_wall(self._random.choice(JUMPS_MS))

    # -- the crash

    def _crash(self, stores: Stores) -> None:
        """Sets the disk on which to go on, and marks in the ledgers what is uncertain now."""
        random = self._random
        if random.random() < 0.15:
            stores.close()
            self._end, self._disk = End.STOP, self._disk.clone()
            self._tally.add("stops on the fake disk")
            return
        kind = random.choice(CRASHES)
        last = self._disk.point
        point = last if random.random() < 0.3 else random.randint(0, last)
        plan = CrashPlan(frozenset({kind, CrashKind.KILL}), seed=random.randrange(1 << 30))
        states = list(itertools.islice(self._disk.crash_states(point, plan), STATES_CHECKED))
        of_kind = [each for each in states if each.crash_kind is kind] or states
        self._disk = random.choice(of_kind)
        # The first operation whose end the disk did not see, and with it all that came later.
        since = self._first_step + bisect_right(self._ends, point)
        is_power_loss = self._disk.crash_kind is not CrashKind.KILL
        self._end = End.POWER_LOSS if is_power_loss else End.KILL
        disk_since = self._first_step if is_power_loss else since
        for ledger in self._topics.values():
            ledger.lose_power(since, disk_since)
        self._machines.lose_power(since)
        self._kafka.lose_power(since)
        self._tally.add(f"crashes on the fake disk: {kind.value}")

    # -- the check

    def _check(self, stores: Stores) -> list[BrokenPromise]:
        wrong: list[BrokenPromise] = []
        for name, ledger in self._topics.items():
            reading = read_database(stores.database, name, self._step)
            self._tally.add("records compared", len(reading.records))
            wrong += violations_of(name, ledger.check(reading, self._end))
        known: dict[str, dict[str, Any]] = {}
        for identity in self._machines.instances:
            try:
                found = stores.machines.get_instance(identity)
            except MachineError:
                continue
            known[identity] = {"state": found.state, "ctx": json.loads(found.ctx)}
        wrong += violations_of("instances", self._machines.compare(known, self._step))
        partitions = {index: stores.read_partition(index) for index in range(PARTITIONS)}
        wrong += violations_of("k", self._kafka.check(partitions, {}, self._step))
        self._write_transitions(stores)
        if stores.database.engine.find(TRANSITIONS) is not None:
            pages = database_pages(stores.database, TRANSITIONS)
            transitions = [record.data for page in pages for record in page.records]
            wrong += violations_of(TRANSITIONS, self._machines.check_transitions(transitions))
        return wrong

    def _write_transitions(self, stores: Stores) -> None:
        """Until it has nothing more to do."""
        expected = self._machines.transitions_expected()
        for _ in range(1 + expected // 10):
            stores.feeder.round()
            if stores.database.engine.find(TRANSITIONS) is None:
                continue
            if stores.database.state(TRANSITIONS).head_seq >= expected:
                return


class JobCameBackError(HeadwaterError):
    """A job whose ack was answered was delivered."""
