"""A queue for tests, on a disk and with a clock of its own."""

from __future__ import annotations

from typing import Any

from headwater.format.frame import FrameType
from headwater.testing import KILL, FakeDisk, ManualClock
from tests.rig.life import SMALL, new_disk, open_stepped
from tests.unit.engine.engine_files import frames_in_log


class Place:
    """A queue on a fake disk whose clock stands still."""

    def __init__(self, **settings: Any) -> None:
        self.disk = new_disk()
        self.clock = ManualClock()
        self.db = open_stepped(self.disk, SMALL, self.clock)
        self.db.create("jobs", type="queue", **settings)

    def write(self, count: int, **more: Any) -> None:
        self.db.append("jobs", [{"data": {"n": n}, **more} for n in range(count)])

    def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms * 1_000)

    def crash(self) -> None:
        """The process is killed and comes back."""
        state: FakeDisk = next(self.disk.crash_states(self.disk.point, KILL))
        self.disk = state
        self.db = open_stepped(state, SMALL, self.clock)

    def restart(self) -> None:
        self.db.close()
        self.db = open_stepped(self.disk, SMALL, self.clock)

    def lease_frames(self) -> int:
        return sum(frame.type is FrameType.LEASE for frame in frames_in_log(self.db))
