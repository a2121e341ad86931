"""A coordinator over restarts and full disks, and members that do what clients do."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from headwater.config.kafka import KafkaSettings
from headwater.core.errors import DiskFullError, HeadwaterError
from headwater.engine.kafka.coordinator import Coordinator
from headwater.engine.kafka.group_state import Committed
from headwater.model.kafka_group import Joined, JoinRequest, Outcome, Phase, SyncedMember
from headwater.server.kafka.refusals import code_of, code_of_refusal
from headwater.testing import FakeDisk, ManualClock
from headwater.testing.fault_disk import Fault, FaultDisk, Verb
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import LARGE_KAFKA, KafkaLife
from tests.rig.stepped import SteppedShard

T = TypeVar("T")
SESSION_US = 10_000_000
ROOMY = replace(LARGE_KAFKA, reserve_bytes=2_000)


class Rig:
    """A coordinator that can be stopped, killed and started again."""

    def __init__(self, settings: KafkaSettings = ROOMY) -> None:
        self.fake = FakeDisk(["/data"])
        self.faults = FaultDisk(self.fake)
        self.settings = settings
        self._ids = 0
        self._start(None)
        self.life.create("orders")

    def _start(self, clock: ManualClock | None) -> None:
        self.life = KafkaLife(self.faults, self.settings, clock)
        self.coordinator = Coordinator(self.life.store, self.life.clock)

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.fake = self.fake.after_power_loss()
            self.faults = FaultDisk(self.fake)
        else:
            self.life.close()
        self.life.clock.advance(1_000 * SESSION_US)  # it was down for a while
        self._start(self.life.clock)

    def do(self, work: Callable[[], T]) -> T:
        return self.life.owner.call(work)

    def join(
        self,
        member: str = "",
        instance: str | None = None,
        org: int = 1,
        metadata: bytes = b"topics",
    ) -> list[Outcome]:
        """The answer comes into the list, now or later."""
        self._ids += 1
        request = JoinRequest(
            member,
            f"m{self._ids}",
            "consumer",
            (("range", metadata), ("sticky", b"")),
            SESSION_US,
            SESSION_US,
            instance,
            "client",
            "/::1",
            knows_handshake=False,
            knows_skipping=True,
        )
        told: list[Outcome] = []
        self.do(partial(self.coordinator.join, org, "workers", request, told.append))
        return told

    def sync(self, member: str, generation: int, org: int = 1) -> list[Outcome]:
        told: list[Outcome] = []
        group = self.coordinator.group(org, "workers")
        given = {} if group is None else {name: name.encode() for name in group.members}
        self.do(
            partial(self.coordinator.sync, org, "workers", member, generation, given, told.append)
        )
        return told

    def alone(self, instance: str | None = None, org: int = 1, metadata: bytes = b"t") -> str:
        """The only member of a group that has settled."""
        (told,) = self.join(instance=instance, org=org, metadata=metadata)
        assert isinstance(told, Joined)
        assert self.sync(told.member_id, told.generation, org) == [
            SyncedMember("consumer", "range", told.member_id.encode())
        ]
        return told.member_id

    def heartbeat(
        self, member: str, generation: int, instance: str | None = None, org: int = 1
    ) -> ErrorCode:
        return code_of_refusal(
            self.coordinator.heartbeat(org, "workers", member, generation, instance)
        )

    def commit(self, member: str, generation: int, instance: str | None = None) -> ErrorCode:
        offsets = {("orders", 0): Committed(5)}
        work = partial(self.coordinator.commit, 1, "workers", member, generation, instance, offsets)
        try:
            self.life.do(work)
        except HeadwaterError as error:
            return code_of(error)
        return ErrorCode.NONE

    def leave(self, member: str) -> None:
        self.do(partial(self.coordinator.leave, 1, "workers", member, None))

    def wait(self, duration_us: int) -> None:
        self.life.clock.advance(duration_us)
        self.do(lambda: self.coordinator.tick(self.life.clock.monotonic_us()))

    def is_in(self, phase: Phase | None) -> bool:
        """None: there is no such group."""
        group = self.coordinator.group(1, "workers")
        return (None if group is None else group.phase) is phase

    def fill(self) -> None:
        self.faults.add(Fault(Verb.ALLOCATE, errno.ENOSPC, path="*", always=True))

    def use_up_the_reserve(self) -> None:
        """Until not even offsets are taken."""
        self.fill()
        self.repeat_until_refused(
            lambda: self.life.do(
                lambda: self.life.store.commit_offsets(1, "other", {("o", 0): Committed(1)})
            )
        )

    def repeat_until_refused(self, work: Callable[[], object]) -> None:
        def often() -> None:
            for _ in range(100):
                work()

        with pytest.raises(DiskFullError):
            often()

    def make_room(self) -> None:
        self.faults.clear()
        self.life.clock.advance(self.settings.wal.full_retry_interval_us)
        assert isinstance(self.life.store.shard, SteppedShard)
        self.life.store.shard.tick()
