"""Opening a data directory: made if it must be, refused with one clear line, nothing changed."""

from __future__ import annotations

import errno
from pathlib import Path, PurePath, PurePosixPath

import pytest

from headwater.core.clock import SystemClock
from headwater.core.errors import AccessError, DamageError, SyncError
from headwater.disk import PosixDisk
from headwater.recovery.topics.repair import claim_directory, open_wal, recover
from headwater.recovery.topics.report import inspect_wal
from headwater.testing import FakeDisk, Fault, FaultDisk, Verb
from tests.crash.session import DATA, SMALL, WAL, Session, log_files, new_disk


def test_a_directory_whose_parent_is_missing_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="no such file") as caught:
        claim_directory(PosixDisk(), PurePath(tmp_path / "a" / "b"))
    assert caught.value.path == PurePath(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_directory_should_be_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"mine")
    with pytest.raises(AccessError, match="not a directory"):
        claim_directory(PosixDisk(), PurePath(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == b"mine"


def test_a_new_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    claim_directory(PosixDisk(), PurePath(tmp_path / "data")).release()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("verb", [Verb.OPEN, Verb.READ, Verb.LIST_DIRECTORY])
def test_what_cannot_be_read_is_one_line_with_a_path(verb: Verb, number: int) -> None:
    fake = new_disk()
    session = Session(fake).open()
    session.append(1)
    session.close()
    before = log_files(fake)
    with pytest.raises(AccessError) as caught:
        open_wal(FaultDisk(fake, [Fault(verb, number)]), DATA, SMALL, SystemClock())
    assert caught.value.path is not None
    assert "\n" not in str(caught.value)
    assert log_files(fake) == before
    open_wal(fake, DATA, SMALL, SystemClock()).close()


def test_a_name_that_cannot_be_synced_stops_the_start() -> None:
    disk = FaultDisk(new_disk(), [Fault(Verb.SYNC_DIRECTORY)])
    with pytest.raises(SyncError):
        open_wal(disk, DATA, SMALL, SystemClock())


def test_a_refused_log_is_left_unlocked_and_unchanged() -> None:
    fake = new_disk()
    session = Session(fake).open()
    session.append(1)
    session.close()
    path = next(path for path in log_files(fake) if path.name.startswith("wal-"))
    fake.damage(path, 30, b"\xff")
    before = log_files(fake)
    for _ in range(2):
        with pytest.raises(DamageError) as caught:
            open_wal(fake, DATA, SMALL, SystemClock())
        assert (caught.value.path, caught.value.offset) == (path, 0)
    assert log_files(fake) == before


def test_looking_changes_nothing_and_works_beside_a_running_writer() -> None:
    fake = new_disk()
    session = Session(fake).open()
    session.append(1)
    before = fake.files()
    report = inspect_wal(fake, WAL)
    assert fake.files() == before
    assert report.groups == 1
    session.append(1)


def test_an_empty_place_gives_a_fresh_log_with_an_id_of_its_own() -> None:
    one = recover(FakeDisk(["/w"]), PurePosixPath("/w/wal"), SMALL)
    two = recover(FakeDisk(["/w"]), PurePosixPath("/w/wal"), SMALL)
    assert (one.run, one.positions[0].next_frame, one.positions[0].open_file) == (1, 1, None)
    assert one.positions[0].log_id != two.positions[0].log_id


def test_the_logs_id_survives_a_crash_before_the_first_group() -> None:
    fake = new_disk()
    Session(fake, log_id=11).open().abandon()
    again = Session(fake, log_id=99)
    assert again.recovered.positions[0].log_id == 11
