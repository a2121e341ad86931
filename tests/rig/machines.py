"""State machines without threads, on a fake disk: for sweeps over crashes and random lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import ApplyEvent, Sees
from headwater.config.machines import (
    CompactionSettings,
    FsyncKind,
    FsyncPolicy,
    MachineSettings,
)
from headwater.disk import Disk
from headwater.engine.machines.answers import Applied, Created, DeletedInstance, MachinePut
from headwater.engine.machines.event_batcher import PendingEvent
from headwater.engine.machines.store import MachineStore
from headwater.engine.owner import Pending
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.testing import FakeDisk, ManualClock
from tests.rig.stepped import SteppedMaintenance, SteppedOwner, SteppedShard

PLACE = PurePosixPath("/data/machines")
SMALL = MachineSettings(
    wal_segment_bytes=1_024,
    reserve_bytes=64,
    zero_chunk_bytes=1_024,
    switch_interval_us=None,
    compaction=CompactionSettings(enabled=False),
)

ORDER: dict[str, Any] = {
    "states": ["new", "paid", "shipped", "closed"],
    "initial": "new",
    "transitions": [
        {"from": "new", "event": "PAY", "to": "paid", "guard": "ctx.total > 0"},
        {"from": "paid", "event": "SHIP", "to": "shipped"},
        {"from": ["shipped", "paid"], "event": "CLOSE", "to": "closed"},
        {"from": "closed", "event": "AGAIN", "to": "new"},
    ],
}
ORDER_2: dict[str, Any] = {
    "states": ["new", "settled", "shipped", "closed"],
    "initial": "new",
    "transitions": [
        {"from": "new", "event": "PAY", "to": "settled"},
        {"from": "settled", "event": "CLOSE", "to": "closed"},
        {"from": "closed", "event": "AGAIN", "to": "new"},
    ],
}


def policy(kind: FsyncKind, amount: int = 0) -> FsyncPolicy:
    return FsyncPolicy(kind, amount)


def new_disk() -> FakeDisk:
    return FakeDisk(["/data"])


class Heard(PendingEvent):
    """Someone who asked for an event, and what they were told."""

    __slots__ = ("answer", "error", "times")

    def __init__(self, request: ApplyEvent, sees: Sees | None = None) -> None:
        super().__init__(request, sees)
        self.answer: Applied | None = None
        self.error: Exception | None = None
        self.times = 0

    def succeed(self, answer: Applied) -> None:
        self.answer, self.times = answer, self.times + 1

    def fail(self, error: Exception) -> None:
        self.error, self.times = error, self.times + 1

    @property
    def told(self) -> Applied | str:
        """The answer, or the code of the error; told once."""
        assert self.times == 1
        if self.answer is not None:
            return self.answer
        return str(getattr(self.error, "code", self.error))


class SteppedStore(MachineStore):
    """A store whose log writes when the outermost call returns, and whose keeper comes if asked."""

    def __init__(
        self,
        disk: Disk,
        settings: MachineSettings = SMALL,
        clock: ManualClock | None = None,
        place: PurePosixPath = PLACE,
        holds: RetentionHolds | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.owner = SteppedOwner()
        super().__init__(
            disk,
            place,
            settings,
            self.clock,
            self.owner,
            holds=holds,
            make_shard=SteppedShard,
            make_maintenance=SteppedMaintenance,
        )
        assert isinstance(self.shard, SteppedShard)
        self.owner.wal = self.shard  # type: ignore[assignment]

    # -- requests, each with its arguments

    def put_machine(
        self, name: str, version: int, definition: dict[str, Any]
    ) -> Pending[MachinePut]:
        return self.submit(requests.PutMachine(name, version, definition))

    def create_instance(
        self,
        machine: str,
        version: int | None = None,
        instance_id: str | None = None,
        context: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
        ttl_ms: int | None = None,
    ) -> Pending[Created]:
        return self.submit(
            requests.CreateInstance(machine, version, instance_id, context, idempotency_key, ttl_ms)
        )

    def apply_event(
        self,
        instance_id: str,
        event: str,
        payload: dict[str, Any] | None = None,
        expected_state: str | None = None,
        expected_wal_offset: int | None = None,
        event_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Pending[Applied]:
        return self.submit(
            requests.ApplyEvent(
                instance_id, event, payload, expected_state, expected_wal_offset, event_id,
                idempotency_key,
            )
        )  # fmt: skip

    def delete_instance(
        self, instance_id: str, idempotency_key: str | None = None
    ) -> Pending[DeletedInstance]:
        return self.submit(requests.DeleteInstance(instance_id, idempotency_key))

    def migrate_instance(
        self, instance_id: str, version: int, state_map: dict[str, str] | None = None
    ) -> Pending[Applied]:
        return self.submit(requests.MigrateInstance(instance_id, version, state_map))

    def do(self, work: Callable[[], Pending[Any]]) -> Any:
        """Ask, let the log write, return the answer or raise the error."""
        return self.owner.call(work).answer()

    def gathered(self, *asked: Heard) -> list[Applied | str]:
        """What each was told whose events came in one turn of the loop."""
        with self.owner.holding():
            self.come(*asked)
        return [each.told for each in asked]

    def come(self, *asked: Heard) -> None:
        """Their events come in one turn; the log is not asked to write yet."""
        posted: list[Callable[[], None]] = []
        self.owner.postponed = posted
        for each in asked:
            self.submit_event(each)
        self.owner.postponed = None
        for work in posted:
            self.owner.call(work)

    def tick(self) -> None:
        assert isinstance(self.shard, SteppedShard)
        self.shard.tick()

    def state(self) -> dict[str, Any]:
        return self.tables.canonical()
