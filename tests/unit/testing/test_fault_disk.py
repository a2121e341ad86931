"""The fault disk: which call fails, how, how often, and what it leaves behind."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from headwater.core.errors import HeadwaterError
from headwater.disk import OpenMode, PosixDisk, replace_file, write_all
from headwater.testing import (
    ALL_VERBS,
    CHANGING_VERBS,
    FAILING_VERBS,
    CrashPoint,
    FakeDisk,
    Fault,
    FaultDisk,
    SimulatedCrash,
    Verb,
    When,
)

ROOT = PurePosixPath("/data")
A, B = ROOT / "a", ROOT / "b"


def fake_with(**files: bytes) -> FakeDisk:
    disk = FakeDisk([ROOT])
    for name, contents in files.items():
        disk.write_file(ROOT / name, contents)
    disk.settle()
    return disk


VERB_CALLS: dict[Verb, Callable[[FaultDisk], object]] = {
    Verb.OPEN: lambda disk: disk.open(A, OpenMode.READ),
    Verb.CREATE: lambda disk: disk.open(B, OpenMode.CREATE),
    Verb.EXISTS: lambda disk: disk.exists(A),
    Verb.IS_DIRECTORY: lambda disk: disk.is_directory(A),
    Verb.LIST_DIRECTORY: lambda disk: disk.list_directory(ROOT),
    Verb.MAKE_DIRECTORY: lambda disk: disk.make_directory(ROOT / "d"),
    Verb.REMOVE_DIRECTORY: lambda disk: disk.remove_directory(ROOT / "empty"),
    Verb.RENAME: lambda disk: disk.rename(A, B),
    Verb.UNLINK: lambda disk: disk.unlink(A),
    Verb.SYNC_DIRECTORY: lambda disk: disk.sync_directory(ROOT),
    Verb.FREE_BYTES: lambda disk: disk.free_bytes(ROOT),
    Verb.LOCK_DIRECTORY: lambda disk: disk.lock_directory(ROOT),
    Verb.SIZE: lambda disk: disk.open(A, OpenMode.READ).size(),
    Verb.READ: lambda disk: disk.open(A, OpenMode.READ).read(0, 1),
    Verb.VIEW: lambda disk: disk.open(A, OpenMode.READ).view(),
    Verb.WRITE: lambda disk: disk.open(A, OpenMode.UPDATE).write(0, [b"x"]),
    Verb.SYNC_DATA: lambda disk: disk.open(A, OpenMode.UPDATE).sync_data(),
    Verb.TRUNCATE: lambda disk: disk.open(A, OpenMode.UPDATE).truncate(0),
    Verb.ALLOCATE: lambda disk: disk.open(A, OpenMode.UPDATE).allocate(9),
    Verb.CLOSE: lambda disk: disk.open(A, OpenMode.READ).close(),
    Verb.RELEASE: lambda disk: disk.lock_directory(ROOT).release(),
}


def test_every_verb_can_be_called_in_these_tests() -> None:
    assert set(VERB_CALLS) == ALL_VERBS


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_each_verb_fails_with_the_errno_asked_for_and_changes_nothing(
    verb: Verb, number: int
) -> None:
    fake = fake_with(a=b"old")
    fake.plant_directory(ROOT / "empty")
    fake.lock_directory(ROOT).release()
    fake.settle()
    disk = FaultDisk(fake, [Fault(verb, number)])
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        VERB_CALLS[verb](disk)
    assert caught.value.errno == number
    assert fake.point == 0
    VERB_CALLS[verb](disk)
    assert disk.calls_of(verb)


def test_the_nth_matching_call_fails_once() -> None:
    disk = FaultDisk(fake_with(a=b""), [Fault(Verb.WRITE, path="a", nth=2)])
    file = disk.open(A, OpenMode.UPDATE)
    other = disk.open(B, OpenMode.CREATE)
    answers = []
    for _ in range(4):
        other.write(0, [b"x"])
        try:
            answers.append(file.write(0, [b"x"]))
        except OSError as error:
            answers.append(-(error.errno or 0))
    assert answers == [1, 1, -errno.EIO, 1]


def test_a_lasting_fault_strikes_from_then_on_until_it_is_cleared() -> None:
    fault = Fault(Verb.WRITE, errno.ENOSPC, nth=1, always=True)
    disk = FaultDisk(fake_with(a=b""), [fault])
    file = disk.open(A, OpenMode.UPDATE)
    file.write(0, [b"x"])
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            file.write(0, [b"x"])
    fault.enabled = False
    assert file.write(0, [b"x"]) == 1
    assert fault.struck == 3


def test_patterns_with_a_slash_are_about_the_whole_path() -> None:
    disk = FaultDisk(fake_with(a=b""), [Fault(Verb.UNLINK, path="/data/*")])
    with pytest.raises(OSError, match="Input/output"):
        disk.unlink(A)
    other = FaultDisk(fake_with(a=b""), [Fault(Verb.UNLINK, path="/elsewhere/*")])
    other.unlink(A)


def test_a_short_write_takes_some_bytes_and_the_next_goes_on() -> None:
    disk = FaultDisk(fake_with(a=b""), [Fault(Verb.WRITE, None, short_bytes=3)])
    file = disk.open(A, OpenMode.UPDATE)
    assert file.write(0, [b"01", b"2345"]) == 3
    assert file.write(3, [b"345"]) == 3
    assert file.read(0, 10) == b"012345"


@pytest.mark.parametrize("short_bytes", range(1, 8))
def test_write_all_goes_on_after_short_writes(short_bytes: int) -> None:
    fault = Fault(Verb.WRITE, None, short_bytes=short_bytes, always=True)
    disk = FaultDisk(fake_with(a=b""), [fault])
    file = disk.open(A, OpenMode.UPDATE)
    assert write_all(file, 2, [b"abc", b"", b"defg", bytearray(b"h")]) == 8
    assert file.read(0, 100) == b"\0\0abcdefgh"


def test_write_all_gives_up_on_a_device_that_takes_nothing() -> None:
    fault = Fault(Verb.WRITE, None, short_bytes=0, always=True)
    file = FaultDisk(fake_with(a=b""), [fault]).open(A, OpenMode.UPDATE)
    with pytest.raises(OSError, match="took no bytes"):
        write_all(file, 0, [b"abc"])


def test_write_all_passes_an_error_after_a_short_write_on() -> None:
    faults = [Fault(Verb.WRITE, None, short_bytes=2), Fault(Verb.WRITE, errno.ENOSPC, nth=1)]
    fake = fake_with(a=b"")
    file = FaultDisk(fake, faults).open(A, OpenMode.UPDATE)
    with pytest.raises(OSError, match="No space"):
        write_all(file, 0, [b"abc"])
    assert fake.files()[A] == b"ab"


def test_a_failing_write_can_leave_some_of_its_bytes() -> None:
    fake = fake_with(a=b"")
    file = FaultDisk(fake, [Fault(Verb.WRITE, short_bytes=2)]).open(A, OpenMode.UPDATE)
    with pytest.raises(OSError, match="Input/output"):
        file.write(0, [b"abc"])
    assert fake.files()[A] == b"ab"


def test_of_two_faults_on_one_call_the_error_wins() -> None:
    fake = fake_with(a=b"")
    faults = [Fault(Verb.WRITE, None, short_bytes=2), Fault(Verb.WRITE, errno.EIO)]
    file = FaultDisk(fake, faults).open(A, OpenMode.UPDATE)
    with pytest.raises(OSError, match="Input/output"):
        file.write(0, [b"abc"])
    assert fake.files()[A] == b""


def test_a_slow_sync_blocks_its_thread_and_nobody_else() -> None:
    entered, go = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        assert go.wait(10)

    fake = fake_with(a=b"", b=b"")
    disk = FaultDisk(fake, [Fault(Verb.SYNC_DATA, None, before=block)])
    file = disk.open(A, OpenMode.UPDATE)
    thread = threading.Thread(target=file.sync_data)
    thread.start()
    assert entered.wait(10)
    disk.open(B, OpenMode.UPDATE).write(0, [b"meanwhile"])
    assert fake.files()[B] == b"meanwhile"
    go.set()
    thread.join(10)
    assert str(fake.trace[-1]) == "sync_data a"


def test_a_failed_sync_that_cleans_the_pages_makes_a_retry_lie() -> None:
    fake = fake_with(a=b"old")
    disk = FaultDisk(fake, [Fault(Verb.SYNC_DATA, clean_after_error=True)])
    file = disk.open(A, OpenMode.UPDATE)
    file.write(0, [b"new"])
    with pytest.raises(OSError, match="Input/output"):
        file.sync_data()
    file.sync_data()
    assert fake.after_power_loss().files()[A] == b"old"


def test_cleaning_after_an_error_needs_a_disk_that_can_forget(tmp_path: Path) -> None:
    disk = FaultDisk(PosixDisk(), [Fault(Verb.SYNC_DATA, clean_after_error=True)])
    file = disk.open(tmp_path / "a", OpenMode.CREATE)
    with pytest.raises(TypeError, match="needs a FakeDisk"):
        file.sync_data()
    file.close()


def test_calls_are_listed_so_that_a_sweep_can_fail_each_of_them() -> None:
    counting = FaultDisk(fake_with(a=b"old"))
    replace_file(counting, A, b"new")
    calls = counting.calls_of(FAILING_VERBS)
    assert [call.verb for call in calls] == [
        Verb.CREATE,
        Verb.WRITE,
        Verb.SYNC_DATA,
        Verb.RENAME,
        Verb.SYNC_DIRECTORY,
    ]
    assert str(calls[1]) == "call 2: write /data/a.tmp[0:3]"
    for nth in range(len(calls)):
        fake = fake_with(a=b"old")
        with pytest.raises((OSError, HeadwaterError), match="Input/output"):
            replace_file(FaultDisk(fake, [Fault(FAILING_VERBS, nth=nth)]), A, b"new")
        assert fake.files()[A] in (b"old", b"new")


@pytest.mark.parametrize("when", When)
def test_a_crash_point_ends_the_process_before_or_after_the_call(when: When) -> None:
    fake = fake_with(a=b"old")
    disk = FaultDisk(fake, crash=CrashPoint(nth=1, when=when))
    with pytest.raises(SimulatedCrash):
        replace_file(disk, A, b"new")
    assert [str(operation) for operation in fake.trace] == [
        "create a.tmp",
        "write a.tmp[0:3]",
    ][: 1 if when is When.BEFORE else 2]
    assert disk.crashed is not None
    assert disk.crashed.verb is Verb.WRITE


@pytest.mark.parametrize("verb", sorted(CHANGING_VERBS, key=str))
def test_a_crash_after_a_call_comes_out_of_that_very_call(verb: Verb) -> None:
    fake = fake_with(a=b"old")
    fake.plant_directory(ROOT / "empty")
    fake.settle()
    disk = FaultDisk(fake, crash=CrashPoint(0, When.AFTER, verbs=frozenset({verb})))
    with pytest.raises(SimulatedCrash, match=verb.value):
        VERB_CALLS[verb](disk)
    assert fake.point == 1


@pytest.mark.parametrize("verb", Verb)
def test_after_a_crash_every_call_raises_and_changes_nothing(verb: Verb) -> None:
    fake = fake_with(a=b"old")
    fake.plant_directory(ROOT / "empty")
    fake.settle()
    disk = FaultDisk(fake, crash=CrashPoint(nth=0, when=When.BEFORE))
    file, lock = disk.open(A, OpenMode.UPDATE), disk.lock_directory(ROOT)
    fake.settle()
    with pytest.raises(SimulatedCrash):
        disk.unlink(A)
    with pytest.raises(SimulatedCrash):
        VERB_CALLS[verb](disk)
    for action in (file.close, file.sync_data, lock.release):
        with pytest.raises(SimulatedCrash):
            action()
    assert fake.point == 0


def test_no_ordinary_handler_survives_a_simulated_crash() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_sweep_over_crash_points_ends_when_nothing_is_left_to_crash_at() -> None:
    crashes = 0
    while True:
        fake = fake_with(a=b"old")
        try:
            replace_file(FaultDisk(fake, crash=CrashPoint(crashes)), A, b"new")
        except SimulatedCrash:
            assert fake.after_kill().files()[A] in (b"old", b"new")
            crashes += 1
        else:
            break
    assert crashes == 5


def test_abandon_closes_files_and_drops_locks_of_a_crashed_process(tmp_path: Path) -> None:
    disk = FaultDisk(PosixDisk(), crash=CrashPoint(0, When.AFTER))
    disk.lock_directory(tmp_path)
    with pytest.raises(SimulatedCrash):
        disk.open(tmp_path / "a", OpenMode.CREATE)
    disk.abandon()
    PosixDisk().lock_directory(tmp_path).release()


def test_a_failing_close_closes_all_the_same() -> None:
    fake = FakeDisk([ROOT], capacity_bytes=10)
    disk = FaultDisk(fake, [Fault(Verb.CLOSE)])
    file = disk.open(A, OpenMode.CREATE)
    file.allocate(10)
    disk.unlink(A)
    with pytest.raises(OSError, match="Input/output"):
        file.close()
    assert fake.free_bytes(ROOT) == 10
