"""The end of a log file: what is nothing, what is cut, and what is written once more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest

from headwater.core.units import KIB
from headwater.disk import Buffer, OpenMode, replace_file
from headwater.recovery.repair import CHUNK_BYTES, cut_tail, has_bytes, used_bytes, write_again
from headwater.testing import FakeDisk
from headwater.testing.fake_disk import FakeFile

PLACE = PurePosixPath("/log")
PATH = PLACE / "1.wal"
LONG = b"a" * 70 * KIB
KEPT = PLACE / "quarantine" / "1.wal.4.torn"


def disk_with(contents: bytes) -> FakeDisk:
    disk = FakeDisk([str(PLACE)])
    replace_file(disk, PATH, contents)
    return disk


@pytest.mark.parametrize("zeros", [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 200 * KIB])
@pytest.mark.parametrize(
    "used", [b"", b"a", b"\0a", b"a" * 70 * KIB, b"a" + bytes(70 * KIB) + b"a"]
)
def test_zeros_at_the_end_are_nothing(used: bytes, zeros: int) -> None:
    contents = used + bytes(zeros)
    assert used_bytes(contents) == len(used) == len(contents.rstrip(b"\0"))
    file = disk_with(contents).open(PATH, OpenMode.READ)
    assert has_bytes(file, 0) is bool(used)
    assert not has_bytes(file, len(used))
    assert has_bytes(file, max(len(used) - 1, 0)) is bool(used)


def test_what_is_cut_is_in_quarantine_without_its_zeros_and_the_file_is_as_long_as_before() -> None:
    disk = disk_with(b"good" + b"to\0rn" + bytes(9))
    cut_tail(disk, PATH, 4)
    assert disk.files()[PATH] == b"good" + bytes(14)
    assert disk.files()[KEPT] == b"to\0rn"


def test_a_cut_survives_a_power_loss_and_cutting_again_changes_nothing() -> None:
    disk = disk_with(b"good" + b"torn" * CHUNK_BYTES)
    cut_tail(disk, PATH, 4)
    after = disk.after_power_loss()
    cut_tail(after, PATH, 4)
    assert after.files()[PATH] == b"good" + bytes(4 * CHUNK_BYTES)
    assert after.files()[KEPT] == b"torn" * CHUNK_BYTES


def test_a_file_that_ends_before_has_nothing_to_cut() -> None:
    disk = disk_with(b"abc")
    cut_tail(disk, PATH, 4)
    assert disk.files() == {PATH: b"abc"}


@pytest.mark.parametrize(("start", "stop"), [(0, 3 * CHUNK_BYTES), (5, CHUNK_BYTES + 7), (9, 9)])
def test_a_stretch_is_written_once_more_as_it_is(
    monkeypatch: pytest.MonkeyPatch, start: int, stop: int
) -> None:
    contents = bytes(range(256)) * (3 * CHUNK_BYTES // 256)
    disk = disk_with(contents)
    file, written = disk.open(PATH, OpenMode.UPDATE), bytearray()
    real = file.write

    def noting(offset: int, buffers: Sequence[Buffer]) -> int:
        assert offset == start + len(written)
        written.extend(b"".join(buffers))
        return real(offset, buffers)

    monkeypatch.setattr(FakeFile, "write", lambda _, offset, buffers: noting(offset, buffers))
    write_again(file, start, stop)
    assert written == contents[start:stop]
    assert disk.files()[PATH] == contents
