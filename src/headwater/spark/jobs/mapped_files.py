"""Log files as mapped memory, each opened once for a task."""

from __future__ import annotations

from pathlib import PurePath

from headwater.disk import Disk, map_file
from headwater.store.failures import file_work


class MappedFiles:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._views: dict[str, memoryview] = {}

    def view(self, path: str) -> memoryview:
        """The whole file. The caller must know that no process shortens it meanwhile."""
        view = self._views.get(path)
        if view is None:
            file_path = PurePath(path)
            with file_work(file_path):
                view = map_file(self._disk, file_path)
            self._views[path] = view
        return view
