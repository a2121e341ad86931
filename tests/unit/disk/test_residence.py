"""Whether a mapped stretch is in memory: a hint that may say no, but not a wrong yes."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from headwater.disk import OpenMode, PosixDisk
from headwater.disk.residence import PAGE_BYTES, STRETCH_BYTES_MAX, is_resident


@pytest.fixture
def mapped(tmp_path: Path) -> memoryview:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * PAGE_BYTES))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return PosixDisk().open(path, OpenMode.READ).view()


def drop_from_memory(view: memoryview) -> bool:
    """Have the kernel forget the file's pages; some file systems keep them all the same."""
    mapping = view.obj
    assert isinstance(mapping, mmap.mmap)
    mapping.madvise(mmap.MADV_DONTNEED)
    return True


def test_pages_that_were_just_written_are_in_memory(mapped: memoryview) -> None:
    assert is_resident(mapped)
    assert is_resident(mapped[PAGE_BYTES - 1 : PAGE_BYTES + 1])
    assert is_resident(mapped[-1:])


def test_pages_the_kernel_was_asked_to_drop_are_not_in_memory(
    mapped: memoryview, tmp_path: Path
) -> None:
    drop_from_memory(mapped)
    with (tmp_path / "file").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        held = is_resident(mapped)
    if held:
        pytest.skip("this file system keeps its pages, whatever it is asked")
    bytes(mapped[: 4 * PAGE_BYTES])
    assert is_resident(mapped[: 4 * PAGE_BYTES])


def test_nothing_and_very_long_stretches_are_not_asked_about(mapped: memoryview) -> None:
    assert not is_resident(mapped[:0])
    assert not is_resident(memoryview(bytes(STRETCH_BYTES_MAX + 1)))
