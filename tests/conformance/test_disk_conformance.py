"""One suite for every disk: what the fakes do is what the real one does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath

import pytest

from headwater.core.errors import DirectoryInUseError
from headwater.disk import Disk, File, OpenMode, PosixDisk, read_whole, replace_file, write_all
from headwater.testing import FakeDisk, FaultDisk, OrderMonitor

Place = tuple[Disk, PurePath]

FAKE_ROOT = PurePosixPath("/data")
DISKS: dict[str, Callable[[Path], Place]] = {
    "posix": lambda tmp_path: (PosixDisk(), tmp_path),
    "fake": lambda _: (FakeDisk([FAKE_ROOT]), FAKE_ROOT),
    "fault-fake": lambda _: (FaultDisk(FakeDisk([FAKE_ROOT])), FAKE_ROOT),
    "monitor-posix": lambda tmp_path: (OrderMonitor(PosixDisk()), tmp_path),
}


@pytest.fixture(params=sorted(DISKS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return DISKS[request.param](tmp_path)


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


# Opening.


def test_create_gives_an_empty_file_that_can_be_written_and_read(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a")
    assert file.size() == 0
    assert file.path == root / "a"
    assert file.write(0, [b"one", bytearray(b"two"), memoryview(b"three")]) == 11
    assert file.read(0, 100) == b"onetwothree"
    file.close()


def test_create_refuses_a_name_that_exists(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"kept")
    assert refusal(lambda: disk.open(root / "a", OpenMode.CREATE)) == "EEXIST"
    assert contents_of(disk, root / "a") == b"kept"


@pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.UPDATE])
def test_open_refuses_a_name_that_does_not_exist(place: Place, mode: OpenMode) -> None:
    disk, root = place
    assert refusal(lambda: disk.open(root / "missing", mode)) == "ENOENT"
    assert not disk.exists(root / "missing")


def test_create_refuses_a_missing_directory_and_a_file_used_as_one(place: Place) -> None:
    disk, root = place
    put(disk, root / "file")
    assert refusal(lambda: disk.open(root / "no" / "a", OpenMode.CREATE)) == "ENOENT"
    assert refusal(lambda: disk.open(root / "file" / "a", OpenMode.CREATE)) == "ENOTDIR"


def test_a_directory_cannot_be_opened_for_writing(place: Place) -> None:
    disk, root = place
    assert refusal(lambda: disk.open(root, OpenMode.UPDATE)) == "EISDIR"


def test_update_changes_an_existing_file_in_place(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"0123456789")
    file = disk.open(root / "a", OpenMode.UPDATE)
    assert file.write(3, [b"xyz"]) == 3
    file.close()
    assert contents_of(disk, root / "a") == b"012xyz6789"


def test_a_file_opened_for_reading_refuses_every_change(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"kept")
    file = disk.open(root / "a", OpenMode.READ)
    assert refusal(lambda: file.write(0, [b"x"])) == "EBADF"
    assert refusal(lambda: file.truncate(0)) == "EINVAL"
    assert refusal(lambda: file.allocate(100)) == "EBADF"
    file.sync_data()
    file.close()
    assert contents_of(disk, root / "a") == b"kept"


def test_a_closed_file_can_be_closed_again_but_not_used(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"x")
    file.close()
    file.close()
    assert refusal(lambda: file.read(0, 1)) == "EBADF"
    assert refusal(file.size) == "EBADF"
    assert refusal(lambda: file.write(0, [b"x"])) == "EBADF"
    with pytest.raises((OSError, ValueError)):  # Python refuses before the kernel is asked
        file.sync_data()


# Reading and writing.


def test_a_read_is_short_only_at_the_end(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"0123456789")
    assert file.read(0, 4) == b"0123"
    assert file.read(8, 4) == b"89"
    assert file.read(10, 4) == b""
    assert file.read(1000, 4) == b""
    assert file.read(0, 0) == b""
    file.close()


def test_a_write_past_the_end_leaves_zeros_between(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"ab")
    assert file.write(6, [b"yz"]) == 2
    assert file.size() == 8
    assert file.read(0, 100) == b"ab\0\0\0\0yz"
    file.close()


def test_a_write_over_the_end_replaces_and_grows(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"abcd")
    assert file.write(2, [b"XYZ", b"!"]) == 4
    assert file.read(0, 100) == b"abXYZ!"
    file.close()


def test_an_empty_write_takes_nothing_and_changes_nothing(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"ab")
    assert file.write(10, [b""]) == 0
    assert file.write(10, []) == 0
    assert file.size() == 2
    file.close()


def test_negative_positions_are_refused(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"ab")
    # Not -1: to the kernel's newer vector write that means "where the cursor is".
    assert refusal(lambda: file.write(-2, [b"x"])) == "EINVAL"
    assert refusal(lambda: file.read(-1, 1)) == "EINVAL"
    assert refusal(lambda: file.truncate(-1)) == "EINVAL"
    file.close()


def test_more_buffers_than_one_call_takes_are_all_written_by_write_all(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a")
    buffers = [bytes([number % 256]) * 3 for number in range(3000)]
    assert write_all(file, 5, buffers) == 9000
    assert file.read(5, 10_000) == b"".join(buffers)
    file.close()


def test_the_view_shows_the_whole_file_and_cannot_be_written(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"0123456789")
    file = disk.open(root / "a", OpenMode.READ)
    view = file.view()
    file.close()
    assert bytes(view) == b"0123456789"
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1
    view.release()


def test_the_view_of_an_empty_file_is_empty(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a")
    assert bytes(file.view()) == b""
    file.close()


def test_allocate_grows_with_zeros_and_never_shrinks(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"ab")
    file.allocate(10)
    assert file.size() == 10
    assert file.read(0, 100) == b"ab" + bytes(8)
    file.allocate(4)
    assert file.size() == 10
    assert refusal(lambda: file.allocate(0)) == "EINVAL"
    file.close()


def test_truncate_cuts_and_grows_with_zeros(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"0123456789")
    file.truncate(4)
    assert file.read(0, 100) == b"0123"
    file.truncate(6)
    assert file.read(0, 100) == b"0123\0\0"
    file.truncate(0)
    assert file.size() == 0
    file.close()


def test_two_handles_see_the_same_bytes(place: Place) -> None:
    disk, root = place
    writer = create(disk, root / "a", b"old")
    reader = disk.open(root / "a", OpenMode.READ)
    writer.write(0, [b"new bytes"])
    assert reader.read(0, 100) == b"new bytes"
    assert reader.size() == 9
    writer.close()
    assert reader.read(4, 5) == b"bytes"
    reader.close()


# Names.


def test_names_are_listed_sorted(place: Place) -> None:
    disk, root = place
    for name in ("b", "a", "c", "B"):
        put(disk, root / name)
    disk.make_directory(root / "aa")
    assert disk.list_directory(root) == ["B", "a", "aa", "b", "c"]


def test_listing_refuses_a_missing_directory_and_a_file(place: Place) -> None:
    disk, root = place
    put(disk, root / "file")
    assert refusal(lambda: disk.list_directory(root / "missing")) == "ENOENT"
    assert refusal(lambda: disk.list_directory(root / "file")) == "ENOTDIR"


def test_exists_and_is_directory_tell_files_directories_and_nothing_apart(place: Place) -> None:
    disk, root = place
    put(disk, root / "file")
    disk.make_directory(root / "directory")
    seen = {
        name: (disk.exists(root / name), disk.is_directory(root / name))
        for name in ("file", "directory", "nothing")
    }
    assert seen == {"file": (True, False), "directory": (True, True), "nothing": (False, False)}
    assert not disk.exists(root / "file" / "below")
    assert not disk.exists(root / "nothing" / "below")


def test_making_a_directory_twice_is_no_error_but_over_a_file_is(place: Place) -> None:
    disk, root = place
    disk.make_directory(root / "d")
    put(disk, root / "d" / "kept", b"x")
    disk.make_directory(root / "d")
    assert disk.list_directory(root / "d") == ["kept"]
    put(disk, root / "file")
    assert refusal(lambda: disk.make_directory(root / "file")) == "EEXIST"
    assert refusal(lambda: disk.make_directory(root / "no" / "d")) == "ENOENT"


def test_only_an_empty_directory_can_be_removed(place: Place) -> None:
    disk, root = place
    disk.make_directory(root / "d")
    put(disk, root / "d" / "file")
    assert refusal(lambda: disk.remove_directory(root / "d")) == "ENOTEMPTY"
    assert refusal(lambda: disk.remove_directory(root / "d" / "file")) == "ENOTDIR"
    assert refusal(lambda: disk.remove_directory(root / "missing")) == "ENOENT"
    disk.unlink(root / "d" / "file")
    disk.remove_directory(root / "d")
    assert not disk.exists(root / "d")


def test_unlink_removes_files_only(place: Place) -> None:
    disk, root = place
    put(disk, root / "file")
    disk.make_directory(root / "d")
    disk.unlink(root / "file")
    assert disk.list_directory(root) == ["d"]
    assert refusal(lambda: disk.unlink(root / "file")) == "ENOENT"
    assert refusal(lambda: disk.unlink(root / "d")) == "EISDIR"


def test_a_name_can_be_made_again_after_unlink(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"first")
    disk.unlink(root / "a")
    put(disk, root / "a", b"2nd")
    assert contents_of(disk, root / "a") == b"2nd"


def test_an_open_file_survives_unlink_and_a_new_file_of_its_name(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"before")
    disk.unlink(root / "a")
    put(disk, root / "a", b"another")
    file.write(6, [b" after"])
    file.sync_data()
    assert file.read(0, 100) == b"before after"
    assert contents_of(disk, root / "a") == b"another"
    file.close()


def test_an_open_file_survives_rename(place: Place) -> None:
    disk, root = place
    file = create(disk, root / "a", b"before")
    disk.rename(root / "a", root / "b")
    file.write(6, [b" after"])
    file.close()
    assert contents_of(disk, root / "b") == b"before after"
    assert not disk.exists(root / "a")


def test_rename_replaces_the_target_and_its_open_readers_keep_the_old_bytes(place: Place) -> None:
    disk, root = place
    put(disk, root / "old", b"old")
    put(disk, root / "new", b"new")
    reader = disk.open(root / "old", OpenMode.READ)
    disk.rename(root / "new", root / "old")
    assert disk.list_directory(root) == ["old"]
    assert contents_of(disk, root / "old") == b"new"
    assert reader.read(0, 10) == b"old"
    reader.close()


def test_rename_moves_between_directories_and_takes_directories_along(place: Place) -> None:
    disk, root = place
    disk.make_directory(root / "d")
    disk.make_directory(root / "e")
    put(disk, root / "a", b"x")
    disk.rename(root / "a", root / "d" / "b")
    disk.rename(root / "d", root / "e" / "f")
    assert contents_of(disk, root / "e" / "f" / "b") == b"x"
    assert disk.list_directory(root) == ["e"]


def test_rename_to_its_own_name_changes_nothing(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"x")
    disk.rename(root / "a", root / "a")
    assert contents_of(disk, root / "a") == b"x"


def test_rename_refuses_what_cannot_be(place: Place) -> None:
    disk, root = place
    put(disk, root / "file")
    disk.make_directory(root / "d")
    disk.make_directory(root / "full")
    put(disk, root / "full" / "x")
    assert refusal(lambda: disk.rename(root / "missing", root / "b")) == "ENOENT"
    assert refusal(lambda: disk.rename(root / "file", root / "no" / "b")) == "ENOENT"
    assert refusal(lambda: disk.rename(root / "file", root / "d")) == "EISDIR"
    assert refusal(lambda: disk.rename(root / "d", root / "file")) == "ENOTDIR"
    assert refusal(lambda: disk.rename(root / "d", root / "full")) == "ENOTEMPTY"
    assert refusal(lambda: disk.rename(root / "d", root / "d" / "below")) == "EINVAL"
    assert disk.list_directory(root) == ["d", "file", "full"]


def test_sync_directory_accepts_directories_only(place: Place) -> None:
    disk, root = place
    put(disk, root / "file")
    disk.sync_directory(root)
    assert refusal(lambda: disk.sync_directory(root / "missing")) == "ENOENT"
    assert refusal(lambda: disk.sync_directory(root / "file")) == "ENOTDIR"


def test_free_bytes_is_positive_and_refuses_a_missing_path(place: Place) -> None:
    disk, root = place
    assert disk.free_bytes(root) > 0
    assert refusal(lambda: disk.free_bytes(root / "missing")) == "ENOENT"


# Whole files.


def test_replace_file_gives_new_contents_and_leaves_nothing_beside_it(place: Place) -> None:
    disk, root = place
    put(disk, root / "a", b"old")
    put(disk, root / "a.tmp", b"left by a crash")
    replace_file(disk, root / "a", b"new contents")
    assert contents_of(disk, root / "a") == b"new contents"
    assert disk.list_directory(root) == ["a"]


# The lock.


def test_a_directory_can_be_locked_once_and_again_after_release(place: Place) -> None:
    disk, root = place
    lock = disk.lock_directory(root)
    with pytest.raises(DirectoryInUseError, match="in use by another Headwater"):
        disk.lock_directory(root)
    lock.release()
    second = disk.lock_directory(root)
    lock.release()
    with pytest.raises(DirectoryInUseError):
        disk.lock_directory(root)
    second.release()


def test_locks_of_two_directories_do_not_meet(place: Place) -> None:
    disk, root = place
    disk.make_directory(root / "d")
    one = disk.lock_directory(root)
    two = disk.lock_directory(root / "d")
    one.release()
    two.release()


def test_locking_leaves_a_lock_file_that_stays(place: Place) -> None:
    disk, root = place
    disk.lock_directory(root).release()
    assert disk.list_directory(root) == ["LOCK"]


def test_locking_a_missing_directory_is_refused(place: Place) -> None:
    disk, root = place
    assert refusal(lambda: disk.lock_directory(root / "missing")) == "ENOENT"
