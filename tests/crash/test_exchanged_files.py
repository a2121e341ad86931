"""Whole files missing, empty, foreign, older or newer: refused with the cause, or no matter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import pytest

from headwater.core.errors import DamageError, ForeignFileError, NewerFormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import FRAME, FRAME_BYTES_MIN
from headwater.format.names import CURRENT_NAME, PREPARED_NAME, REPAIRS_NAME, wal_file_name
from headwater.recovery.topics.plan import apply_repairs, plan_repairs
from headwater.testing import FakeDisk
from tests.crash.damage import SPECIMENS, Outcome, Specimen, judge, specimen_of
from tests.crash.matrix import tried
from tests.crash.session import WAL, Session, log_files, new_disk

pytestmark = pytest.mark.crash

STOPPED = SPECIMENS["stopped_cleanly"]


def written(topics: tuple[int, ...], log_id: int = 7_000, disk: FakeDisk | None = None) -> FakeDisk:
    disk = new_disk() if disk is None else disk
    session = Session(disk, log_id=log_id).open()
    for topic in topics:
        session.append(topic)
    session.close()
    return disk


def remove(disk: FakeDisk, path: PurePath) -> None:
    disk.unlink(path)
    disk.settle()


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_missing_or_empty_file_is_refused_or_rebuilt(name: str) -> None:
    specimen = SPECIMENS[name]()
    for path in specimen.paths:
        gone = specimen.disk()
        remove(gone, path)
        outcome = judge(specimen, gone, f"{path} missing")
        if path.name in (CURRENT_NAME, PREPARED_NAME):
            assert outcome is Outcome.HARMLESS, "the files tell which is last"
        else:
            assert outcome is Outcome.REFUSED, f"{path} missing"
        for content in (b"", bytes(1024), b"hello, this is no log\n" * 40):
            changed = specimen.disk()
            changed.write_file(path, content)
            judge(specimen, changed, f"{path} replaced by {len(content)} bytes")
            tried("whole files: missing, empty, zeroed or text")


def test_a_log_file_that_holds_text_is_refused_and_left_alone() -> None:
    disk = new_disk()
    disk.write_file(WAL / wal_file_name(1), b"not a log\n" * 10)
    with pytest.raises(ForeignFileError, match="not a log file") as caught:
        Session(disk)
    assert caught.value.path == WAL / wal_file_name(1)
    assert log_files(disk) == {WAL / wal_file_name(1): b"not a log\n" * 10}


def test_a_stray_file_in_the_log_directory_is_refused_by_name() -> None:
    disk = STOPPED().disk()
    disk.write_file(WAL / "notes.txt", b"mine")
    with pytest.raises(ForeignFileError) as caught:
        Session(disk)
    assert caught.value.path == WAL / "notes.txt"


def other_logs() -> Iterator[tuple[str, FakeDisk]]:
    topics = (1, 2, 1, 1, 2, 1, 2, 1, 1)
    yield "another log", written(topics, log_id=99)
    yield "another log, longer", written(topics * 3, log_id=99)
    yield "another log, shorter", written(topics[:2], log_id=99)
    trimmed = new_disk()
    session = Session(trimmed, log_id=99).open()
    for topic in topics:
        session.append(topic)
    assert session.trim(session.logs[0].active_number)
    session.close()
    yield "another log, trimmed", trimmed


def test_a_file_of_another_log_is_never_taken_for_ones_own() -> None:
    specimen = STOPPED()
    for what, other in other_logs():
        for path, content in log_files(other).items():
            disk = specimen.disk()
            disk.write_file(path, content)
            outcome = judge(specimen, disk, f"{path} of {what}")
            assert outcome in (Outcome.REFUSED, Outcome.HARMLESS), f"{path} of {what}"
            tried("whole files: from another log")


def test_files_under_each_others_names_are_refused() -> None:
    specimen = STOPPED()
    files = [path for path in specimen.paths if path.name.startswith("wal-")]
    assert len(files) >= 3
    for one in files:
        for two in files:
            if one == two:
                continue
            disk = specimen.disk()
            contents = disk.files()
            disk.write_file(one, contents[two])
            disk.write_file(two, contents[one])
            assert judge(specimen, disk, f"{one} and {two} swapped") is Outcome.REFUSED
            tried("whole files: swapped")


def test_an_older_copy_of_a_file_is_refused_or_harmless() -> None:
    """Restoring one file from a backup: the rest of the log knows better."""
    topics = (1, 2, 1)
    disk = written(topics)
    copies = [log_files(disk)]
    for _ in range(4):
        written(topics, disk=disk)
        copies.append(log_files(disk))
    newest = specimen_of("opened and closed often", disk)
    for age, copy in enumerate(copies[:-1]):
        for path, content in copy.items():
            damaged = FakeDisk(image=newest.image)
            damaged.write_file(path, content)
            judge(newest, damaged, f"{path} as it was in copy {age}")
            tried("whole files: from an older copy")


def newer_mark(content: bytes) -> bytes:
    """The first mark with the next format version, checksum and all."""
    data = bytearray(content)
    data[FRAME.size] += 1
    end = FRAME_BYTES_MIN - 8 + int.from_bytes(data[34:38], "little")
    data[end : end + 8] = checksum64(bytes(data[4:end])).to_bytes(8, "little")
    return bytes(data)


def test_a_file_of_a_newer_version_is_refused_and_never_taken_for_torn() -> None:
    specimen: Specimen = STOPPED()
    for path in specimen.paths:
        if not path.name.startswith("wal-"):
            continue
        disk = specimen.disk()
        disk.write_file(path, newer_mark(disk.files()[path]))
        with pytest.raises(NewerFormatError, match="version 2") as caught:
            Session(disk)
        assert (caught.value.path, caught.value.offset) == (path, 0)
        tried("whole files: newer version")


def test_a_missing_repairs_file_shows_the_damage_again() -> None:
    disk = SPECIMENS["repaired"]().disk()
    remove(disk, WAL / REPAIRS_NAME)
    with pytest.raises(DamageError):
        Session(disk)


def test_the_current_of_another_log_is_blamed_itself_and_a_repair_puts_it_aside() -> None:
    specimen = STOPPED()
    disk = specimen.disk()
    other = written((1, 2, 1, 1, 2, 1, 2, 1, 1), log_id=99)
    disk.write_file(WAL / CURRENT_NAME, other.files()[WAL / CURRENT_NAME])
    with pytest.raises(ForeignFileError, match="belongs to another log") as caught:
        Session(disk)
    assert caught.value.path == WAL / CURRENT_NAME
    for plan in plan_repairs(disk, WAL):
        apply_repairs(disk, plan)
    assert tuple(Session(disk).items) == specimen.items


def test_a_foreign_first_file_is_blamed_and_not_the_ones_that_belong_here() -> None:
    disk = STOPPED().disk()
    first = WAL / wal_file_name(1)
    disk.write_file(first, written((1, 2, 1), log_id=99).files()[first])
    with pytest.raises(ForeignFileError) as caught:
        Session(disk)
    assert caught.value.path == first
