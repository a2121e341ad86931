"""Where a table is: a directory of this machine, or an address in an object store.

Local files are synced before anything refers to them. In an object store a file that was closed is
there.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath, PurePosixPath
from typing import Any, Final

from headwater.core.errors import AccessError, RequestError
from headwater.disk import PosixDisk
from headwater.disk.protocol import OpenMode
from headwater.disk.whole_files import sync_file, sync_names

LOCAL_SCHEME: Final = "file"


@dataclass(frozen=True)
class TableLocation:
    """An absolute path or a URI; sent to executors as the text it is."""

    uri: str

    @staticmethod
    def of(text: str) -> TableLocation:
        scheme, separator, rest = text.partition("://")
        if separator and scheme == LOCAL_SCHEME:
            text = rest
        elif separator:
            return TableLocation(text.rstrip("/"))
        if not text.startswith("/"):
            raise RequestError(
                f"a table's location is an absolute path or an address like s3://bucket/name, "
                f"not {text!r}"
            )
        return TableLocation(str(PurePath(text)))

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def as_uri(self) -> str:
        """With a scheme, as Iceberg wants it."""
        return f"{LOCAL_SCHEME}://{self.uri}" if self.is_local else self.uri

    def beside(self, suffix: str) -> TableLocation:
        """Another table in the same directory."""
        return TableLocation(self.uri + suffix)

    def child(self, relative: str) -> TableLocation:
        return TableLocation(f"{self.uri}/{relative}")

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from pyarrow import fs

        filesystem, path = fs.FileSystem.from_uri(self.uri)
        return filesystem, str(path)

    @property
    def filesystem(self) -> Any:
        return self._opened[0]

    @property
    def path(self) -> str:
        """As the filesystem spells it."""
        return self._opened[1]

    def full(self, relative: str) -> str:
        return f"{self.path}/{relative}"

    def make_directories(self, relative: str) -> None:
        try:
            self.filesystem.create_dir(self.full(relative), recursive=True)
        except OSError as error:
            raise AccessError(f"cannot make {self.full(relative)} ({error})") from error

    def files_under(self, relative: str) -> list[str]:
        """Names of files below a directory, relative to the location; none when it is not there."""
        return self._listed(relative, recursive=True, directories=False)

    def directories_in(self, relative: str) -> list[str]:
        return self._listed(relative, recursive=False, directories=True)

    def _listed(self, relative: str, *, recursive: bool, directories: bool) -> list[str]:
        from pyarrow import fs

        wanted = fs.FileType.Directory if directories else fs.FileType.File
        selector = fs.FileSelector(self.full(relative), allow_not_found=True, recursive=recursive)
        start = len(self.path) + 1
        listed = self.filesystem.get_file_info(selector)
        return sorted(info.path[start:] for info in listed if info.type == wanted)

    def delete(self, relative: str) -> bool:
        """Delete one file; False when it was not there."""
        try:
            self.filesystem.delete_file(self.full(relative))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def sync(self, relative: str) -> None:
        """The file and its name are on stable storage on return, where that is ours to say."""
        if not self.is_local:
            return
        disk, path = PosixDisk(), PurePosixPath(self.full(relative))
        file = disk.open(path, OpenMode.UPDATE)
        try:
            sync_file(file)
        finally:
            file.close()
        sync_names(disk, path.parent)
