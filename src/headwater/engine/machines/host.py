"""The engine's state machines: opened with it when they are there, else at the first call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headwater.core.errors import ClosedError
from headwater.engine.machines import positions, transition_feeder
from headwater.engine.machines import store as machine_store
from headwater.engine.maintenance.housekeeping import MaintenanceThread
from headwater.engine.state.damage import CAUSES, Part
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.topics.protocols import TopicEngine
from headwater.format.machines.names import MACHINES_DIRECTORY

if TYPE_CHECKING:
    from headwater.engine.machines.store import MachineStore
    from headwater.engine.machines.transition_feeder import TransitionFeeder

Progress = Callable[[float], None]
_log = logging.getLogger("headwater.machines")


class MachineHost:
    """Opening reads files, so any thread but the owner's does it; one at a time."""

    def __init__(
        self, core: EngineCore, make_maintenance: type[MaintenanceThread] = MaintenanceThread
    ) -> None:
        self._core = core
        self._make_maintenance = make_maintenance
        self._topics: TopicEngine | None = None
        self.feeder: TransitionFeeder | None = None
        """Takes transitions to their topic, once there are machines and the engine runs."""
        self._lock = threading.Lock()
        self.store: MachineStore | None = None
        self.on_open: Callable[[MachineStore], None] | None = None
        """Called with the store, on the thread that opened it."""

    @property
    def directory_exists(self) -> bool:
        return self._core.disk.is_directory(self._core.directory / MACHINES_DIRECTORY)

    @property
    def last_error(self) -> Exception | None:
        """The last failure of background work: expiries, compaction, the transitions topic."""
        error = None if self.store is None else self.store.last_error
        return error or (None if self.feeder is None else self.feeder.last_error)

    def open_at_start(self) -> None:
        """A damaged part is away from now on; the topics do not wait for it."""
        try:
            self.open()
        except CAUSES as error:
            core = self._core
            core.parts.set_away(Part.MACHINES, error, core.directory / MACHINES_DIRECTORY)
            if core.settings.machines.transitions_topic is not None:
                _log.error("no transitions are taken to their topic meanwhile")

    def open(self, progress: Progress | None = None) -> MachineStore:
        with self._lock:
            self._core.parts.require(Part.MACHINES)
            if self.store is None:
                core = self._core
                if core.closing:
                    raise ClosedError("the database is closed")
                directory, settings = core.directory / MACHINES_DIRECTORY, core.settings.machines
                # Before the log is opened: from then on it may be compacted at any moment.
                positions.restore_holds(core.holds, core.disk, directory, settings)
                store = machine_store.MachineStore(
                    core.disk,
                    directory,
                    settings,
                    core.clock,
                    core.owner,
                    progress or _no_progress,
                    holds=core.holds,
                    waits=core.waits,
                )
                if self.on_open is not None:
                    self.on_open(store)
                self.store = store
                core.parts.repaired[Part.MACHINES] = store.report.repaired
                self._feed_transitions()
            return self.store

    def start_feeder(self, topics: TopicEngine) -> None:
        """These take writes from now on, also those of the transitions topic."""
        with self._lock:
            self._topics = topics
            self._feed_transitions()

    def _feed_transitions(self) -> None:
        core, store, topics = self._core, self.store, self._topics
        if store is None or topics is None or core.settings.machines.transitions_topic is None:
            return
        directory = core.directory / MACHINES_DIRECTORY
        make = self._make_maintenance
        self.feeder = transition_feeder.TransitionFeeder(
            topics, store, core.disk, directory, make_maintenance=make
        )
        self.feeder.start()

    def close(self) -> None:
        """Not for the owner's own thread."""
        with self._lock:
            if self.feeder is not None:
                self.feeder.stop()
            if self.store is not None:
                self.store.close()


class MachineSide(Protocol):
    """What calls of machines need of an engine."""

    @property
    def core(self) -> EngineCore: ...

    @property
    def machines(self) -> MachineHost: ...


def _no_progress(_: float) -> None:
    """For callers that show no progress."""
