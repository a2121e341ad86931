"""What a fake disk keeps and loses when the power fails, rule by rule."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath, PurePosixPath

import pytest

from headwater.disk import OpenMode, replace_file, write_all
from headwater.testing import (
    DROPS,
    EVERYTHING,
    KILL,
    PREFIXES,
    CrashKind,
    CrashPlan,
    FakeDisk,
    OperationKind,
)

ROOT = PurePosixPath("/data")
A, B = ROOT / "a", ROOT / "b"
NONE = CrashPlan.of(CrashKind.NONE)
ALL = CrashPlan.of(CrashKind.ALL)


def disk_with(**files: bytes) -> FakeDisk:
    disk = FakeDisk([ROOT])
    for name, contents in files.items():
        disk.write_file(ROOT / name, contents)
    disk.settle()
    return disk


def outcomes(states: Iterable[FakeDisk], path: PurePath) -> set[bytes | None]:
    """Everything the path may hold afterwards; None where it is gone."""
    return {state.files().get(path) for state in states}


def test_bytes_without_a_sync_may_be_lost_and_may_survive() -> None:
    disk = disk_with(a=b"old")
    disk.open(A, OpenMode.UPDATE).write(3, [b"+new"])
    assert disk.after_power_loss().files()[A] == b"old"
    assert outcomes(disk.crash_states(disk.point, PREFIXES), A) == {b"old", b"old+new"}


def test_synced_bytes_of_a_known_name_survive_every_crash() -> None:
    disk = disk_with(a=b"old")
    file = disk.open(A, OpenMode.UPDATE)
    file.write(3, [b"+new"])
    file.sync_data()
    assert outcomes(disk.crash_states(disk.point), A) == {b"old+new"}


def test_a_sync_covers_only_its_own_inode_and_what_came_before_it() -> None:
    disk = disk_with(a=b"", b=b"")
    a, b = disk.open(A, OpenMode.UPDATE), disk.open(B, OpenMode.UPDATE)
    a.write(0, [b"a"])
    b.write(0, [b"b"])
    a.sync_data()
    a.write(1, [b"later"])
    assert disk.after_power_loss().files() == {A: b"a", B: b""}


def test_a_new_file_is_lost_with_its_synced_bytes_unless_its_directory_is_synced() -> None:
    disk = disk_with()
    file = disk.open(A, OpenMode.CREATE)
    file.write(0, [b"x"])
    file.sync_data()
    assert outcomes(disk.crash_states(disk.point), A) == {None, b"x"}
    disk.sync_directory(ROOT)
    assert outcomes(disk.crash_states(disk.point), A) == {b"x"}


def test_a_synced_name_may_lead_to_an_empty_file() -> None:
    disk = disk_with()
    disk.open(A, OpenMode.CREATE).write(0, [b"x"])
    disk.sync_directory(ROOT)
    found = outcomes(disk.crash_states(disk.point, PREFIXES), A)
    assert found == {b"", b"x"}


def test_a_rename_without_a_sync_may_give_a_name_without_its_bytes() -> None:
    disk = disk_with(b=b"old")
    disk.open(A, OpenMode.CREATE).write(0, [b"new"])
    disk.rename(A, B)
    found = outcomes(disk.crash_states(disk.point), B)
    assert {b"old", b"new", b"", b"n", b"ne"} <= found
    assert None not in found


def test_replace_file_is_whole_old_or_whole_new_at_every_crash_state() -> None:
    disk = disk_with(a=b"the old contents", bystander=b"kept")
    replace_file(disk, A, b"the new and longer contents")
    count = 0
    for state in disk.crash_states():
        count += 1
        files = state.files()
        assert files[A] in (b"the old contents", b"the new and longer contents"), state.label
        assert files[ROOT / "bystander"] == b"kept", state.label
    assert count > 100
    assert disk.after_power_loss().files()[A] == b"the new and longer contents"


def test_the_sweep_catches_a_replace_that_forgets_to_sync_the_bytes() -> None:
    disk = disk_with(a=b"old")
    file = disk.open(ROOT / "a.tmp", OpenMode.CREATE)
    write_all(file, 0, [b"new"])
    disk.rename(ROOT / "a.tmp", A)
    disk.sync_directory(ROOT)
    assert outcomes(disk.crash_states(), A) - {b"old", b"new"}


def test_the_sweep_catches_a_replace_that_forgets_to_sync_the_directory() -> None:
    disk = disk_with(a=b"old")
    file = disk.open(ROOT / "a.tmp", OpenMode.CREATE)
    write_all(file, 0, [b"new"])
    file.sync_data()
    disk.rename(ROOT / "a.tmp", A)
    assert b"old" in outcomes(disk.crash_states(disk.point), A)


def test_an_unlink_may_come_back_until_the_directory_is_synced() -> None:
    disk = disk_with(a=b"x")
    disk.unlink(A)
    assert outcomes(disk.crash_states(disk.point), A) == {b"x", None}
    disk.sync_directory(ROOT)
    assert outcomes(disk.crash_states(disk.point), A) == {None}


def test_an_unlink_may_survive_while_an_earlier_create_does_not() -> None:
    disk = disk_with(a=b"x")
    disk.open(B, OpenMode.CREATE)
    disk.unlink(A)
    states = disk.crash_states(disk.point, DROPS)
    assert set() in [set(state.files()) for state in states]


def test_a_directory_that_was_not_synced_in_its_parent_takes_everything_along() -> None:
    disk = disk_with()
    disk.make_directory(ROOT / "d")
    file = disk.open(ROOT / "d" / "f", OpenMode.CREATE)
    file.write(0, [b"x"])
    file.sync_data()
    disk.sync_directory(ROOT / "d")
    assert outcomes(disk.crash_states(disk.point), ROOT / "d" / "f") == {None, b"x"}
    disk.sync_directory(ROOT)
    assert outcomes(disk.crash_states(disk.point), ROOT / "d" / "f") == {b"x"}


def test_a_rename_between_directories_may_leave_both_names_but_never_none() -> None:
    disk = disk_with(a=b"x")
    disk.plant_directory(ROOT / "d")
    disk.settle()
    disk.rename(A, ROOT / "d" / "a")
    found = {tuple(map(str, state.files())) for state in disk.crash_states(disk.point)}
    assert found == {("/data/a",), ("/data/d/a",), ("/data/a", "/data/d/a")}


@pytest.mark.parametrize("synced", [ROOT, ROOT / "d"])
def test_syncing_either_side_of_a_rename_between_directories_makes_its_target_durable(
    synced: PurePosixPath,
) -> None:
    disk = disk_with(a=b"x")
    disk.write_file(ROOT / "d" / "a", b"replaced")
    disk.settle()
    disk.rename(A, ROOT / "d" / "a")
    disk.sync_directory(synced)
    assert outcomes(disk.crash_states(disk.point), ROOT / "d" / "a") == {b"x"}


def test_a_name_made_durable_by_the_other_side_of_a_rename_is_not_undone_by_earlier_effects() -> (
    None
):
    disk = disk_with(a=b"x")
    disk.plant_directory(ROOT / "d")
    disk.settle()
    disk.open(ROOT / "d" / "a", OpenMode.CREATE)
    disk.rename(A, ROOT / "d" / "a")
    disk.sync_directory(ROOT)
    assert outcomes(disk.crash_states(disk.point), ROOT / "d" / "a") == {b"x"}


def test_truncate_and_allocate_may_be_lost_too() -> None:
    disk = disk_with(a=b"0123", b=b"0123")
    disk.open(A, OpenMode.UPDATE).truncate(1)
    disk.open(B, OpenMode.UPDATE).allocate(6)
    states = list(disk.crash_states(disk.point))
    assert outcomes(states, A) == {b"0123", b"0"}
    assert outcomes(states, B) == {b"0123", b"0123\0\0"}


def test_a_killed_process_loses_nothing_that_was_written() -> None:
    disk = disk_with(a=b"old")
    disk.open(A, OpenMode.UPDATE).write(0, [b"new"])
    disk.open(B, OpenMode.CREATE).write(0, [b"b"])
    assert [state.files() for state in disk.crash_states(disk.point, KILL)] == [disk.files()]
    assert disk.after_kill().files() == {A: b"new", B: b"b"}


def test_bytes_forgotten_by_a_failed_sync_stay_readable_but_no_later_sync_saves_them() -> None:
    disk = disk_with(a=b"old!")
    file = disk.open(A, OpenMode.UPDATE)
    file.write(0, [b"new"])
    file.forget_unsynced()
    file.write(3, [b"?"])
    file.sync_data()
    assert file.read(0, 10) == b"new?"
    assert outcomes(disk.crash_states(disk.point, ALL), A) == {b"old?"}
    assert disk.after_kill().files()[A] == b"new?"


def test_what_survived_a_crash_survives_the_next_one() -> None:
    disk = disk_with(a=b"old")
    disk.open(A, OpenMode.UPDATE).write(0, [b"new"])
    (state,) = disk.crash_states(disk.point, ALL)
    assert state.after_power_loss().files()[A] == b"new"
    state.open(A, OpenMode.UPDATE).write(0, [b"3rd"])
    assert state.after_power_loss().files()[A] == b"new"


def test_a_crash_state_shares_no_changes_with_its_parent_or_its_siblings() -> None:
    disk = disk_with(a=b"old")
    disk.open(A, OpenMode.UPDATE).write(0, [b"new"])
    (first,), (second,) = (disk.crash_states(disk.point, ALL) for _ in range(2))
    first.open(A, OpenMode.UPDATE).write(0, [b"XXX"])
    first.unlink(A)
    assert second.files()[A] == b"new"
    assert disk.files()[A] == b"new"


def test_a_crash_state_starts_unlocked_and_says_where_and_what() -> None:
    disk = disk_with(a=b"old")
    disk.lock_directory(ROOT)
    disk.settle()
    file = disk.open(A, OpenMode.UPDATE)
    file.write(0, [b"new"])
    file.write(3, [b"+"])
    disk.rename(A, B)
    labels = []
    for state in disk.crash_states(plan=EVERYTHING):
        state.lock_directory(ROOT)
        labels.append(state.label)
    after_rename = "crash at 3/3 after rename a to b: "
    assert f"{after_rename}lost #0 write a[0:3]" in labels
    assert f"{after_rename}torn #1 write a[3:4] after 0 bytes, rest zeros" in labels
    assert len(set(labels)) == len(labels)
    assert {state.crash_point for state in disk.crash_states()} == {0, 1, 2, 3}
    kinds = {state.crash_kind for state in disk.crash_states(disk.point)}
    assert {CrashKind.KILL, CrashKind.NONE, CrashKind.TORN, CrashKind.SINGLE_DROP} <= kinds


def test_crash_points_outside_the_trace_are_refused() -> None:
    disk = disk_with()
    with pytest.raises(ValueError, match="points 0 to 0"):
        next(disk.crash_states(at=1))


def test_the_trace_lists_what_changed_and_nothing_that_failed() -> None:
    disk = disk_with(a=b"x")
    file = disk.open(B, OpenMode.CREATE)
    file.write(0, [b"ab", b"c"])
    with pytest.raises(FileExistsError):
        disk.open(A, OpenMode.CREATE)
    disk.list_directory(ROOT)
    file.read(0, 1)
    file.close()
    assert [operation.kind for operation in disk.trace] == [
        OperationKind.CREATE,
        OperationKind.WRITE,
    ]
    assert str(disk.trace[1]) == "write b[0:3]"
