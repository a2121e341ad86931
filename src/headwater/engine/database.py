# Generated from engine/async_database.py by "make twins"; change that file, not this one.
"""The blocking database: an open data directory for programs that may block.

Its calls are those of `api`; each is an operation of the engine, and the driver runs it. A call
returns when its promise holds: a write when its durability class is satisfied, a delete when no
reader can see the records any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from headwater.api.call_list import ApiCall, WatchingCall
from headwater.api.face import Face
from headwater.api.machines import Machines
from headwater.engine.call_operations import operation_of, watch_of
from headwater.engine.drivers import BlockingDriver
from headwater.engine.engine import Engine
from headwater.engine.machines import dispatch as machine_dispatch
from headwater.engine.operation import Operation

T = TypeVar("T")


class Database(Face):
    """A data directory, open in this process. Made by `headwater.open`."""

    def __init__(self, engine: Engine, driver: BlockingDriver) -> None:
        self._engine = engine
        self._clock = engine.core.clock
        self.driver = driver

    @property
    def engine(self) -> Engine:
        """For tools that inspect the engine: counters, recovery report, log state."""
        return self._engine

    @property
    def machines(self) -> Machines:
        """State machines: definitions, instances, events."""
        engine, driver = self._engine, self.driver
        return Machines(
            lambda call: driver.drive(machine_dispatch.call_operation(engine, call)),
            lambda wanted, from_offset, idle_ms: driver.follow(
                machine_dispatch.transition_watch(engine, wanted, from_offset, idle_ms)
            ),
        )

    def checkpoint(self) -> None:
        """Move everything into segments and take a snapshot now. Happens by itself, too."""
        self.driver.in_thread(self._engine.checkpoint)

    def close(self) -> None:
        """Close cleanly. May be called twice."""
        self.driver.in_thread(self._engine.close)
        self.driver.close()

    def drive(self, operation: Operation[T]) -> T:
        """Run an operation of the engine."""
        return self.driver.drive(operation)

    def _call(self, call: ApiCall[T]) -> T:
        return self.driver.drive(operation_of(self._engine, call))

    def _follow(self, call: WatchingCall[T]) -> Iterator[T]:
        return self.driver.follow(watch_of(self._engine, call))
