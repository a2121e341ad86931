"""The names of a fake disk: directories as mappings from name to inode number."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import PurePath, PurePosixPath

from headwater.testing.trace import ROOT


def os_error(number: int, path: PurePath) -> OSError:
    """The OSError the kernel would give; Python picks the subclass from the errno."""
    return OSError(number, os.strerror(number), str(path))


class Names:
    """A tree of names. Directories are replaced when changed, so copies may share them."""

    def __init__(self, directories: Mapping[int, Mapping[str, int]]) -> None:
        self._directories = dict(directories)

    def frozen(self) -> Mapping[int, Mapping[str, int]]:
        return dict(self._directories)

    def is_directory(self, inode: int) -> bool:
        return inode in self._directories

    def mentions(self, inode: int) -> bool:
        """True when any directory has a name for the inode."""
        return any(inode in names.values() for names in self._directories.values())

    def lookup(self, path: PurePath) -> int | None:
        """The inode a path leads to, or None; a file used as a directory leads nowhere."""
        try:
            return self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def find(self, path: PurePath) -> int:
        inode = ROOT
        for part in _parts(path):
            names = self._directories.get(inode)
            if names is None:
                raise os_error(errno.ENOTDIR, path)
            entry = names.get(part)
            if entry is None:
                raise os_error(errno.ENOENT, path)
            inode = entry
        return inode

    def directory(self, path: PurePath) -> Mapping[str, int]:
        """The names in the directory at `path`."""
        names = self._directories.get(self.find(path))
        if names is None:
            raise os_error(errno.ENOTDIR, path)
        return names

    def parent(self, path: PurePath) -> tuple[int, str]:
        """The directory a path's last name lives in, and that name."""
        parts = _parts(path)
        if not parts:
            raise os_error(errno.EBUSY, path)
        inode = self.find(path.parent)
        if inode not in self._directories:
            raise os_error(errno.ENOTDIR, path)
        return inode, parts[-1]

    def add_directory(self, inode: int) -> None:
        self._directories[inode] = {}

    def add(self, directory: int, name: str, inode: int) -> None:
        self._directories[directory] = {**self._directories[directory], name: inode}

    def remove(self, directory: int, name: str) -> None:
        names = dict(self._directories[directory])
        del names[name]
        self._directories[directory] = names

    def check_rename(
        self, inode: int, replaced: int | None, source: PurePath, target: PurePath
    ) -> None:
        """Raise what the kernel raises when `source` may not take the place of `target`."""
        if self.is_directory(inode) and source in target.parents:
            raise os_error(errno.EINVAL, target)
        if replaced is None:
            return
        if self.is_directory(replaced):
            if not self.is_directory(inode):
                raise os_error(errno.EISDIR, target)
            if self._directories[replaced]:
                raise os_error(errno.ENOTEMPTY, target)
        elif self.is_directory(inode):
            raise os_error(errno.ENOTDIR, target)

    def files(self) -> Iterator[tuple[PurePath, int]]:
        """Every file with its path, in no order."""
        waiting: list[tuple[PurePath, int]] = [(PurePosixPath("/"), ROOT)]
        while waiting:
            path, directory = waiting.pop()
            for name, inode in self._directories[directory].items():
                if inode in self._directories:
                    waiting.append((path / name, inode))
                else:
                    yield path / name, inode


def _parts(path: PurePath) -> tuple[str, ...]:
    parts = path.parts[1:] if path.is_absolute() else path.parts
    if ".." in parts:
        raise os_error(errno.EINVAL, path)
    return parts
