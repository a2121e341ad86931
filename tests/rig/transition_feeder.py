"""An engine, a store of machines and the feeder between them on one disk, without threads."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from headwater.config.engine import EngineSettings
from headwater.config.machines import FsyncKind
from headwater.disk import Disk
from headwater.engine.database import Database
from headwater.engine.machines.positions import restore_holds
from headwater.engine.machines.transition_feeder import TransitionFeeder
from headwater.engine.state.retention_holds import RetentionHolds
from headwater.testing import FakeDisk, ManualClock
from tests.rig.life import SMALL as SMALL_ENGINE
from tests.rig.life import open_stepped
from tests.rig.machines import ORDER, SteppedStore, policy
from tests.rig.machines import SMALL as SMALL_MACHINES
from tests.rig.stepped import SteppedMaintenance

TOPIC = "machines:transitions"
APART = PurePosixPath("/apart/machines")
"""Not where the engine would find them by itself."""
NEXT = {"new": "PAY", "paid": "SHIP", "shipped": "CLOSE", "closed": "AGAIN"}
ENGINE: EngineSettings = replace(SMALL_ENGINE, cold_url=None)


class Both:
    """An engine and a store on one disk, and the feeder between them; nobody has a thread."""

    def __init__(
        self,
        disk: Disk,
        kind: FsyncKind = FsyncKind.EVERY_WRITE,
        topic: str | None = TOPIC,
        clock: ManualClock | None = None,
        segment_bytes: int = SMALL_MACHINES.wal_segment_bytes,
        *,
        feed: bool = True,
    ) -> None:
        clock = clock or ManualClock()
        self.database: Database = open_stepped(disk, ENGINE, clock)
        settings = replace(
            SMALL_MACHINES,
            transitions_topic=topic,
            fsync_policy=policy(kind),
            wal_segment_bytes=segment_bytes,
        )
        holds = RetentionHolds(clock)
        restore_holds(holds, disk, APART, settings)
        self.store = SteppedStore(disk, settings, clock, APART, holds)
        if feed:
            self.feed(disk)

    def feed(self, disk: Disk) -> None:
        """From here on there is a feeder; in a server it comes later than the store."""
        self.feeder = TransitionFeeder(
            self.database.engine, self.store, disk, APART, make_maintenance=SteppedMaintenance
        )

    def begin(self) -> None:
        self.store.do(lambda: self.store.put_machine("order", 1, ORDER))
        self.store.do(lambda: self.store.create_instance("order", 1, "a", {"total": 5}))

    def turn(self) -> None:
        """Once around, from whatever state a crash has left."""
        for _ in range(4):
            event = NEXT[self.store.get_instance("a").state]
            self.store.do(partial(self.store.apply_event, "a", event, {"by": event}))

    def told(self) -> list[dict[str, Any]]:
        if self.database.engine.find(TOPIC) is None:
            return []
        return [record.data for record in self.database.diff(TOPIC, 0, limit=1_000).records]

    def happened(self) -> list[int]:
        entries = self.store.history("a").read().entries
        return [each.offset for each in entries if hasattr(each.body, "event")]

    def close(self) -> None:
        self.feeder.stop()
        self.store.close()
        self.database.close()


def new_disk() -> FakeDisk:
    return FakeDisk(["/data", "/apart"])
