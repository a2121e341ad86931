"""Random lives of a log: writes, time, trims, full disks, kills, power losses, other shard counts.

Hypothesis looks for the shortest life after which something acked is missing, changed, repeated or
out of order, or after which the log does not open.
"""

from __future__ import annotations

import errno

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headwater.core.durability import Durability
from headwater.recovery.topics.replay import replay
from headwater.recovery.topics.report import inspect_wal
from headwater.testing import CrashKind, CrashPlan, FakeDisk, Fault, FaultDisk, Item, Oracle, Verb
from headwater.testing.oracle import Crash
from headwater.wal.committer import LogState
from tests.crash.matrix import FULL, tried
from tests.crash.session import DISK, FSYNC, MEMORY, WAL, Session, by_stream, new_disk, small

pytestmark = pytest.mark.crash

TOPICS = st.integers(1, 4)
CLASSES = st.sampled_from([FSYNC, FSYNC, DISK, MEMORY])
SHARDS = st.sampled_from([1, 1, 2, 3])
FILE_BYTES = st.sampled_from([600, 1024, 2048])
LOSSES = st.sampled_from([CrashKind.NONE, CrashKind.ALL, CrashKind.SPLIT, CrashKind.RANDOM])
NO_ROOM = frozenset({Verb.CREATE, Verb.ALLOCATE})


class WalLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fake = new_disk()
        self.floors: dict[str, int] = {}

    @initialize(shards=SHARDS, file_bytes=FILE_BYTES)
    def begin(self, shards: int, file_bytes: int) -> None:
        self._open(shards, file_bytes, [])

    @rule(topic=TOPICS, records=st.integers(1, 3), durability=CLASSES)
    def append(self, topic: int, records: int, durability: Durability) -> None:
        self.session.append(topic, records, durability)

    @rule(tickets=st.lists(st.tuples(st.integers(0, 4), CLASSES), min_size=1, max_size=6))
    def append_group(self, tickets: list[tuple[int, Durability]]) -> None:
        """Topic 0 stands for deletes and acks: always essential, never mixed with records."""
        session = self.session
        session.commit(
            *[session.ticket(topic, 1, kind, essential=topic == 0) for topic, kind in tickets]
        )

    @rule(size=st.sampled_from([0, 400, 900, 3_000]))
    def append_large(self, size: int) -> None:
        self.session.commit(self.session.ticket(1, 1, size=size))

    @rule(us=st.sampled_from([1, 50_000, 100_000, 1_000_000]))
    def pass_time(self, us: int) -> None:
        self.session.pass_time(us)

    @precondition(lambda self: not self.full.enabled and self._is_one_directory())
    @rule()
    def trim(self) -> None:
        """Release and delete what lies in files before the active one."""
        active = self.session.logs[0].active_number
        for group in replay(self.fake, inspect_wal(self.fake, WAL).shards):
            for frame in group.frames():
                if group.number < active:
                    self.floors[str(frame.topic_id)] = frame.seq + 1
        self.session.trim(active)

    @rule()
    def fill_the_disk(self) -> None:
        self.full.enabled = True

    @rule()
    def free_the_disk(self) -> None:
        self.full.enabled = False

    @rule(shards=SHARDS, file_bytes=FILE_BYTES)
    def stop_and_start(self, shards: int, file_bytes: int) -> None:
        self.session.close()
        self._reopen(Crash.KILL, shards, file_bytes)

    @rule(shards=SHARDS, file_bytes=FILE_BYTES)
    def die_and_start(self, shards: int, file_bytes: int) -> None:
        """What was not synced stays in the page cache only."""
        self.fake = self.fake.clone()
        self._reopen(Crash.KILL, shards, file_bytes)

    @rule(kind=LOSSES, seed=st.integers(0, 10_000), shards=SHARDS, file_bytes=FILE_BYTES)
    def lose_power_and_start(
        self, kind: CrashKind, seed: int, shards: int, file_bytes: int
    ) -> None:
        plan = CrashPlan(frozenset({kind, CrashKind.NONE}), seed=seed, random_states=3)
        states = list(self.fake.crash_states(self.fake.point, plan))
        self.fake = states[seed % len(states)]
        self._reopen(Crash.POWER_LOSS, shards, file_bytes)

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.session.check_each_answered_once()
            assert all(c.state is not LogState.POISONED for c in self.session.committers)
            tried("random lives of a log")

    def _reopen(self, crash: Crash, shards: int, file_bytes: int) -> None:
        old = self.session
        old.check_each_answered_once()
        found = Session(FakeDisk(image=self.fake.snapshot()), small(shards=shards))
        old.oracle.check(found.items, crash=crash, floors=self.floors, label=self.fake.label)
        self._open(shards, file_bytes, found.items)
        assert by_stream(self.session.items) == by_stream(found.items)

    def _open(self, shards: int, file_bytes: int, kept: list[Item]) -> None:
        oracle = Oracle()
        for number, item in enumerate(kept):
            oracle.submit(("kept", number), [item])
            oracle.ack(("kept", number))
        self.full = Fault(NO_ROOM, errno.ENOSPC, always=True, enabled=False)
        disk = FaultDisk(self.fake, [self.full])
        chosen = small(shards=shards, file_bytes=file_bytes)
        self.session = Session(disk, chosen, oracle=oracle, fake=self.fake).open()

    def _is_one_directory(self) -> bool:
        """Files that are only replayed are not trimmed by the log that is written to."""
        recovered = self.session.recovered
        return len(recovered.directories) == 1 and not recovered.retired


TestWalLife = WalLife.TestCase
TestWalLife.settings = settings(
    max_examples=1_500 if FULL else 60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
