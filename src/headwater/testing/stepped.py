"""An engine without threads: groups are committed when the test steps, housekeeping when called.

The production code is used as it is. Four of its parts have a stepped twin: the owner, who commits
what was submitted once no caller works as the owner any more; the log, whose shards have no thread;
the keeper and the forwarder, who never come by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import PurePath
from typing import Any, TypeVar

from headwater.core.clock import Clock
from headwater.engine.maintenance.thread import MaintenanceThread
from headwater.engine.routers.copy_rounds import ForwarderThread
from headwater.wal.groups import QueuedGroups
from headwater.wal.position import LogPosition
from headwater.wal.shard import Shard
from headwater.wal.sharded import ShardedWal

T = TypeVar("T")


class SteppedShard(Shard):
    """A shard whose thread is the test that steps it."""

    def start(self) -> None:
        """There is no thread to start."""

    def step(self) -> bool:
        """Commit what waits as one group. False when nothing did."""
        assert isinstance(self._groups, QueuedGroups), "who steps brings a clock of their own"
        group = self._groups.take()
        if group:
            self._committer.commit(group)
        return bool(group)

    def tick(self) -> None:
        self._committer.tick()

    def call(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self._groups.close()
        while self.step():
            continue
        self._committer.finish()


class SteppedWal(ShardedWal):
    """A log whose files are made ahead, and whose groups are written, in `step`."""

    def __init__(
        self,
        disk: Any,
        directories: Sequence[PurePath],
        positions: Sequence[LogPosition],
        settings: Any,
        clock: Clock,
        listener: Any,
        policy: Any = None,
        waits: Any = None,
    ) -> None:
        super().__init__(disk, directories, positions, settings, clock, listener, policy, waits)
        for shard in self.shards:
            shard.__class__ = SteppedShard

    @property
    def stepped(self) -> list[SteppedShard]:
        return [shard for shard in self.shards if isinstance(shard, SteppedShard)]

    def start(self) -> None:
        for log in self.logs:
            log.open()
        self._started = True

    def step(self) -> bool:
        """One group in every shard that has one."""
        moved = [shard.step() for shard in self.stepped]
        self._prepare()
        return any(moved)

    def tick(self) -> None:
        for shard in self.stepped:
            shard.tick()

    def _prepare(self) -> None:
        while self._preparer._wanted:
            with contextlib.suppress(OSError):
                self._preparer._wanted.pop().prepare()


class SteppedMaintenance(MaintenanceThread):
    """Does a round when the test calls for it."""

    def start(self) -> None:
        """There is no thread to start."""

    def stop(self) -> None:
        """Nor one to stop."""

    def round(self) -> None:
        self._work()


class SteppedForwarder(ForwarderThread):
    """Nor does he copy by himself: `Forwarding.run_dry` is called."""

    def wake(self) -> None:
        """There is no thread to wake."""

    def stop(self) -> None:
        """Nor one to stop."""


class SteppedOwner:
    """The caller is the owner. When the outermost call returns, the log takes its steps."""

    def __init__(self) -> None:
        self.wal: SteppedWal | None = None
        self.postponed: list[Callable[[], None]] | None = None
        """Where there is a list, what is posted waits in it, as it does for the turn of a loop."""
        self._depth = 0
        self._held = False

    def post(self, work: Callable[[], None]) -> None:
        if self.postponed is None:
            work()
        else:
            self.postponed.append(work)

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        if self.postponed is None or work not in self.postponed:
            self.post(work)

    def end_turn(self) -> None:
        """The test ends it, by running what was postponed."""

    def call(self, work: Callable[[], T]) -> T:
        self._depth += 1
        try:
            return work()
        finally:
            self._depth -= 1
            self._pump()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Inside, submissions gather; they are committed together at the end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self._pump()

    def _pump(self) -> None:
        if self._depth or self._held or self.wal is None:
            return
        while self.wal.step():
            continue
