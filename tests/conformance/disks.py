"""The disks the conformance suite is run over, and a few words to write its tests with."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath

import pytest

from headwater.disk import Disk, File, OpenMode, PosixDisk, read_whole, write_all
from headwater.testing import FakeDisk, FaultDisk, OrderMonitor

Place = tuple[Disk, PurePath]

FAKE_ROOT = PurePosixPath("/data")
DISKS: dict[str, Callable[[Path], Place]] = {
    "posix": lambda tmp_path: (PosixDisk(), tmp_path),
    "fake": lambda _: (FakeDisk([FAKE_ROOT]), FAKE_ROOT),
    "fault-fake": lambda _: (FaultDisk(FakeDisk([FAKE_ROOT])), FAKE_ROOT),
    "monitor-posix": lambda tmp_path: (OrderMonitor(PosixDisk()), tmp_path),
}


def create(disk: Disk, path: PurePath, contents: bytes = b"") -> File:
    file = disk.open(path, OpenMode.CREATE)
    if contents:
        write_all(file, 0, [contents])
    return file


def put(disk: Disk, path: PurePath, contents: bytes = b"") -> None:
    create(disk, path, contents).close()


def contents_of(disk: Disk, path: PurePath) -> bytes:
    return read_whole(disk, path, 1 << 20)


def refusal(action: Callable[[], object]) -> str:
    """The name of the errno an action fails with."""
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        action()
    assert caught.value.errno is not None
    return errno.errorcode[caught.value.errno]
