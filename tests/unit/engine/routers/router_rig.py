"""A database with routers for tests, on a disk and with a clock of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from headwater.format.frame import FrameType
from headwater.testing import KILL, FakeDisk, ManualClock
from tests.rig.life import SMALL, new_disk, open_stepped, with_shards
from tests.rig.stepped import SteppedOwner
from tests.unit.engine.engine_files import frames_in_log

ROOMY = replace(SMALL, checkpoint_tail_bytes=20_000)


class Place:
    """A database whose forwarder works when he is asked to."""

    def __init__(self, shards: int = 1) -> None:
        self.disk = new_disk()
        self.clock = ManualClock()
        self.settings = with_shards(ROOMY, shards)
        self.db = open_stepped(self.disk, self.settings, self.clock)
        self.db.create("in")

    def write(self, *datas: Any, topic: str = "in", **more: Any) -> None:
        self.db.append(topic, [{"data": data, **more} for data in datas])

    def forward(self) -> None:
        self.db.engine.copy_rounds.route_all()
        self.db.engine.copy_rounds.run_dry()

    def holding(self) -> AbstractContextManager[None]:
        """Inside, what is asked for gathers; the log takes it at the end."""
        owner: Any = self.db.engine.core.owner
        assert isinstance(owner, SteppedOwner)
        return owner.holding()

    def datas(self, topic: str) -> list[Any]:
        found: list[Any] = []
        cursor, caught_up = 0, False
        while not caught_up:
            diff = self.db.diff(topic, cursor, limit=1_000)
            found += [record.data for record in diff.records]
            cursor, caught_up = diff.next_from_seq, diff.caught_up
        return found

    def crash(self) -> None:
        """The process is killed and comes back."""
        state: FakeDisk = next(self.disk.crash_states(self.disk.point, KILL))
        self.disk = state
        self.db = open_stepped(state, self.settings, self.clock)

    def restart(self) -> None:
        self.db.close()
        self.db = open_stepped(self.disk, self.settings, self.clock)

    def frames(self, *types: FrameType) -> int:
        return sum(frame.type in types for frame in frames_in_log(self.db))
