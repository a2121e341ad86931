"""One suite for every disk, first half: opening, reading and writing files."""

from __future__ import annotations

import pytest

from headwater.disk import OpenMode, write_all
from tests.conformance.disks import Place, contents_of, create, put, refusal

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
