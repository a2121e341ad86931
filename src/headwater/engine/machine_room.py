"""The engine's state machines: opened with it when they are there, else when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.core.errors import ClosedError
from headwater.engine.core import EngineCore
from headwater.engine.machines.store import MachineStore
from headwater.format.machines.names import MACHINES_DIRECTORY

Progress = Callable[[float], None]


class MachineRoom:
    """Opening reads files, so it is done by any thread but the owner's; one at a time."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._lock = threading.Lock()
        self.store: MachineStore | None = None
        self.on_open: Callable[[MachineStore], None] | None = None
        """Told of the store, on the thread that opened it."""

    @property
    def directory_exists(self) -> bool:
        return self._core.disk.is_directory(self._core.directory / MACHINES_DIRECTORY)

    def open(self, progress: Progress | None = None) -> MachineStore:
        with self._lock:
            if self.store is None:
                core = self._core
                if core.closing:
                    raise ClosedError("the database is closed")
                store = MachineStore(
                    core.disk,
                    core.directory / MACHINES_DIRECTORY,
                    core.settings.machines,
                    core.clock,
                    core.owner,
                    progress or _no_progress,
                )
                if self.on_open is not None:
                    self.on_open(store)
                self.store = store
            return self.store

    def close(self) -> None:
        """Not for the owner's own thread."""
        with self._lock:
            if self.store is not None:
                self.store.close()


def _no_progress(_: float) -> None:
    """For callers who do not show any."""
