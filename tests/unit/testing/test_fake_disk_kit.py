"""Planting, damaging, copying and filling a fake disk."""

from __future__ import annotations

import errno
from pathlib import PurePosixPath

import pytest

from headwater.disk import Disk, File, OpenMode, write_all
from headwater.testing import KILL, FakeDisk

ROOT = PurePosixPath("/data")
A = ROOT / "a"


def test_a_fake_disk_is_a_disk_and_its_files_are_files() -> None:
    disk: Disk = FakeDisk([ROOT])
    file: File = disk.open(A, OpenMode.CREATE)
    assert file.path == A


def test_a_planted_file_is_durable_at_once_with_its_directories() -> None:
    disk = FakeDisk()
    disk.write_file("/deep/down/file", b"x")
    assert disk.after_power_loss().files() == {PurePosixPath("/deep/down/file"): b"x"}


def test_planting_makes_the_pending_name_and_bytes_of_the_file_durable() -> None:
    disk = FakeDisk([ROOT])
    disk.open(A, OpenMode.CREATE).write(0, [b"pending"])
    disk.write_file(A, b"planted")
    assert all(state.files() == {A: b"planted"} for state in disk.crash_states(disk.point))


def test_planting_a_file_again_ends_its_pending_unlink() -> None:
    disk = FakeDisk([ROOT])
    disk.write_file(A, b"first")
    disk.settle()
    disk.unlink(A)
    disk.write_file(A, b"planted")
    assert all(state.files() == {A: b"planted"} for state in disk.crash_states(disk.point))


def test_damage_and_truncation_survive_a_crash_and_reach_open_files() -> None:
    disk = FakeDisk([ROOT])
    disk.write_file(A, b"0123456789")
    file = disk.open(A, OpenMode.READ)
    disk.damage(A, 2, b"??")
    disk.truncate_file(A, 6)
    assert file.read(0, 100) == b"01??45"
    assert disk.after_power_loss().files()[A] == b"01??45"
    disk.truncate_file(A, 8)
    assert disk.files()[A] == b"01??45\0\0"


def test_damage_outside_the_file_is_a_mistake_in_the_test() -> None:
    disk = FakeDisk([ROOT])
    disk.write_file(A, b"0123")
    with pytest.raises(ValueError, match="has 4 bytes"):
        disk.damage(A, 3, b"xx")


def test_settle_makes_everything_durable_and_starts_a_new_trace() -> None:
    disk = FakeDisk([ROOT])
    disk.open(A, OpenMode.CREATE).write(0, [b"x"])
    disk.settle()
    assert disk.point == 0
    assert disk.after_power_loss().files() == {A: b"x"}


def test_an_open_file_keeps_working_after_settle_and_snapshot() -> None:
    disk = FakeDisk([ROOT])
    file = disk.open(A, OpenMode.CREATE)
    file.write(0, [b"one"])
    disk.settle()
    image = disk.snapshot()
    file.write(3, [b"two"])
    file.sync_data()
    assert disk.after_power_loss().files()[A] == b"onetwo"
    assert FakeDisk(image=image).files()[A] == b"one"


def test_a_clone_has_the_same_past_and_its_own_future() -> None:
    disk = FakeDisk([ROOT])
    file = disk.open(A, OpenMode.CREATE)
    file.write(0, [b"x"])
    twin = disk.clone()
    file.write(1, [b"y"])
    twin.open(A, OpenMode.UPDATE).write(0, [b"Z"])
    assert (disk.files()[A], twin.files()[A]) == (b"xy", b"Z")
    assert twin.after_power_loss().files() == {}
    assert twin.trace[:2] == disk.trace[:2]


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    disk = FakeDisk([ROOT], capacity_bytes=10)
    file = disk.open(A, OpenMode.CREATE)
    assert file.write(0, [b"123456"]) == 6
    assert disk.free_bytes(ROOT) == 4
    assert file.write(6, [b"7890XX"]) == 4
    with pytest.raises(OSError, match="No space") as caught:
        file.write(10, [b"X"])
    assert caught.value.errno == errno.ENOSPC
    assert file.write(2, [b"over"]) == 4
    assert file.read(0, 20) == b"12over7890"


def test_allocation_counts_as_used_and_can_be_refused_half_way() -> None:
    disk = FakeDisk([ROOT], capacity_bytes=10)
    file = disk.open(A, OpenMode.CREATE)
    file.allocate(8)
    assert disk.free_bytes(ROOT) == 2
    assert write_all(file, 0, [b"12345678"]) == 8
    with pytest.raises(OSError, match="No space"):
        file.allocate(12)
    assert file.size() == 10


def test_space_comes_back_when_the_last_name_and_the_last_handle_are_gone() -> None:
    disk = FakeDisk([ROOT], capacity_bytes=10)
    file = disk.open(A, OpenMode.CREATE)
    file.allocate(10)
    disk.unlink(A)
    assert disk.free_bytes(ROOT) == 0
    file.close()
    assert disk.free_bytes(ROOT) == 10


def test_space_of_a_replaced_file_comes_back() -> None:
    disk = FakeDisk([ROOT], capacity_bytes=10)
    disk.write_file(A, b"123456")
    disk.open(ROOT / "b", OpenMode.CREATE).close()
    disk.rename(ROOT / "b", A)
    assert disk.free_bytes(ROOT) == 10


def test_the_capacity_can_be_changed_while_running() -> None:
    disk = FakeDisk([ROOT], capacity_bytes=0)
    file = disk.open(A, OpenMode.CREATE)
    with pytest.raises(OSError, match="No space"):
        write_all(file, 0, [b"abc"])
    disk.capacity_bytes = 3
    assert write_all(file, 0, [b"abc"]) == 3


def test_crash_states_have_the_capacity_of_their_disk() -> None:
    disk = FakeDisk([ROOT], capacity_bytes=10)
    disk.open(A, OpenMode.CREATE).allocate(4)
    (state,) = disk.crash_states(disk.point, KILL)
    assert state.free_bytes(ROOT) == 6


def test_paths_that_climb_are_refused() -> None:
    disk = FakeDisk([ROOT])
    with pytest.raises(OSError, match="Invalid argument"):
        disk.exists(ROOT / ".." / "etc")
