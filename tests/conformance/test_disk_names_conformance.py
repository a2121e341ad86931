"""One suite for every disk, second half: names, whole files and the lock."""

from __future__ import annotations

import pytest

from headwater.core.errors import DirectoryInUseError
from headwater.disk import OpenMode, replace_file
from tests.conformance.disks import Place, contents_of, create, put, refusal

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
