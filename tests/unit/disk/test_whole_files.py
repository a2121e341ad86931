"""Whole-file work on top of the verbs: short writes, devices that take nothing, replacing."""

from __future__ import annotations

import errno
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import SyncError
from headwater.disk import OpenMode, read_whole, replace_file, sync_file, sync_names, write_all
from headwater.testing import (
    EVERYTHING,
    FakeDisk,
    Fault,
    FaultDisk,
    OrderMonitor,
    Verb,
)

ROOT = PurePosixPath("/data")
A = ROOT / "a"


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 9), st.integers(0, 5))
def test_everything_is_written_however_short_the_writes(
    buffers: list[bytes], size: int, offset: int
) -> None:
    fake = FakeDisk([ROOT])
    disk = FaultDisk(fake, [Fault(Verb.WRITE, None, always=True, short_bytes=size)])
    file = disk.open(A, OpenMode.CREATE)
    assert write_all(file, offset, buffers) == len(b"".join(buffers))
    wanted = b"".join(buffers)
    assert fake.files()[A] == (bytes(offset) + wanted if wanted else b"")


def test_a_device_that_takes_nothing_is_a_failed_device_and_not_a_loop() -> None:
    disk = FaultDisk(FakeDisk([ROOT]), [Fault(Verb.WRITE, None, always=True, short_bytes=0)])
    file = disk.open(A, OpenMode.CREATE)
    with pytest.raises(OSError, match="took no bytes") as caught:
        write_all(file, 0, [b"abc"])
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINTR])
def test_a_failed_sync_is_never_an_ordinary_error(number: int) -> None:
    disk = FaultDisk(FakeDisk([ROOT]))
    file = disk.open(A, OpenMode.CREATE)
    disk.add(Fault({Verb.SYNC_DATA, Verb.SYNC_DIRECTORY}, number, always=True))
    with pytest.raises(SyncError) as data:
        sync_file(file)
    with pytest.raises(SyncError) as names:
        sync_names(disk, ROOT)
    assert (data.value.path, names.value.path) == (A, ROOT)


def test_a_replaced_file_is_the_old_or_the_new_one_after_any_crash() -> None:
    disk = FakeDisk([ROOT])
    disk.write_file(A, b"old contents")
    disk.settle()
    replace_file(disk, A, b"new")
    seen = set()
    for state in disk.crash_states(plan=EVERYTHING):
        seen.add(state.files()[A])
    assert seen == {b"old contents", b"new"}
    assert disk.after_power_loss().files() == {A: b"new"}


def test_replacing_keeps_the_order_of_calls_and_cleans_up_after_a_crash() -> None:
    fake = FakeDisk([ROOT])
    fake.write_file(ROOT / "a.tmp", b"left by a crash")
    monitor = OrderMonitor(fake)
    replace_file(monitor, A, b"new")
    monitor.check()
    assert fake.files() == {A: b"new"}


def test_a_small_file_is_read_up_to_its_limit_only() -> None:
    disk = FakeDisk([ROOT])
    disk.write_file(A, b"0123456789")
    assert read_whole(disk, A, 4) == b"0123"
    assert read_whole(disk, A, 100) == b"0123456789"
