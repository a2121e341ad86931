"""The order monitor: each ready rule sees its mistake and lets the right order pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from headwater.disk import OpenMode, replace_file, write_all
from headwater.testing import (
    FakeDisk,
    Fault,
    FaultDisk,
    Milestone,
    NamesSynced,
    OrderMonitor,
    OrderViolationError,
    Rule,
    Verb,
    append_only,
    bytes_before,
    current_after_name,
    data_before_index,
    index_before_mark,
    log_rules,
    mark_before_trim,
    names_before,
    synced_before_rename,
)

ROOT = PurePosixPath("/data")
WAL_1, WAL_2, CURRENT = ROOT / "wal-1.log", ROOT / "wal-2.log", ROOT / "CURRENT"


def monitor(*rules: Rule) -> OrderMonitor:
    return OrderMonitor(FakeDisk([ROOT]), rules)


def put(
    disk: OrderMonitor, path: PurePosixPath, contents: bytes = b"x", *, sync: bool = True
) -> None:
    file = disk.open(path, OpenMode.CREATE)
    file.write(0, [contents])
    if sync:
        file.sync_data()
    file.close()


def violated(disk: OrderMonitor) -> list[str]:
    return [violation.rule.name for violation in disk.violations]


def test_a_file_renamed_with_unsynced_bytes_is_a_violation() -> None:
    disk = monitor(synced_before_rename())
    put(disk, ROOT / "a.tmp", sync=False)
    disk.rename(ROOT / "a.tmp", ROOT / "a")
    with pytest.raises(OrderViolationError, match=r"\[bytes before name\].*a.tmp has un-synced"):
        disk.check()


def test_replace_file_keeps_the_order() -> None:
    disk = monitor(synced_before_rename(), names_before("ack"))
    replace_file(disk, ROOT / "a", b"contents")
    disk.note("ack")
    disk.check()


@pytest.mark.parametrize("make", [put, lambda disk, path: disk.make_directory(path)])
def test_an_ack_before_a_new_name_is_synced_is_a_violation(
    make: Callable[[OrderMonitor, PurePosixPath], None],
) -> None:
    disk = monitor(names_before("ack"))
    make(disk, ROOT / "a")
    disk.note("publish")
    assert violated(disk) == []
    disk.note("ack")
    assert violated(disk) == ["names before ack"]
    disk.sync_directory(ROOT)
    disk.note("ack")
    assert len(disk.violations) == 1


def test_an_ack_before_a_rename_is_synced_is_a_violation() -> None:
    disk = monitor(names_before("ack"))
    put(disk, ROOT / "a")
    disk.sync_directory(ROOT)
    disk.rename(ROOT / "a", ROOT / "b")
    disk.note("ack")
    assert violated(disk) == ["names before ack"]


def test_an_ack_is_judged_by_the_files_it_is_about() -> None:
    disk = monitor(names_before("ack"), bytes_before("ack"))
    put(disk, WAL_1)
    disk.sync_directory(ROOT)
    put(disk, WAL_2, sync=False)
    disk.note("ack", WAL_1)
    disk.check()
    disk.note("ack", WAL_2)
    assert violated(disk) == ["names before ack", "bytes before ack"]


def test_a_name_in_an_unsynced_directory_is_not_synced() -> None:
    disk = monitor(names_before("ack"))
    disk.make_directory(ROOT / "d")
    put(disk, ROOT / "d" / "a")
    disk.sync_directory(ROOT / "d")
    disk.note("ack", ROOT / "d" / "a")
    assert "the name /data/d is not synced" in str(disk.violations[0])


def test_an_index_synced_before_its_data_is_a_violation() -> None:
    disk = monitor(data_before_index("*.seg", "*.idx"))
    data = disk.open(ROOT / "1.seg", OpenMode.CREATE)
    index = disk.open(ROOT / "1.idx", OpenMode.CREATE)
    data.write(0, [b"d"])
    data.sync_data()
    index.write(0, [b"i"])
    index.sync_data()
    disk.check()
    data.write(1, [b"d"])
    index.sync_data()
    assert violated(disk) == ["data before index"]


def test_data_of_another_directory_does_not_hold_an_index_back() -> None:
    disk = monitor(data_before_index("*.seg", "*.idx"))
    disk.make_directory(ROOT / "other")
    put(disk, ROOT / "other" / "1.seg", sync=False)
    put(disk, ROOT / "1.idx")
    disk.check()


def test_a_mark_before_the_index_is_synced_is_a_violation() -> None:
    disk = monitor(index_before_mark("*.idx"))
    put(disk, ROOT / "1.idx", sync=False)
    disk.note("mark")
    assert violated(disk) == ["index before mark"]


def test_a_log_file_removed_before_a_later_sync_elsewhere_is_a_violation() -> None:
    disk = monitor(mark_before_trim())
    put(disk, WAL_2)
    disk.sync_directory(ROOT)
    put(disk, WAL_1)
    disk.unlink(WAL_1)
    assert violated(disk) == ["mark before trim"]


def test_a_log_file_may_go_after_a_later_sync_of_another_one() -> None:
    disk = monitor(mark_before_trim())
    put(disk, WAL_1)
    put(disk, WAL_2)
    disk.sync_directory(ROOT)
    disk.unlink(WAL_1)
    disk.check()


def test_a_later_sync_does_not_count_while_the_name_of_that_file_can_be_lost() -> None:
    disk = monitor(mark_before_trim())
    put(disk, WAL_1)
    disk.sync_directory(ROOT)
    put(disk, WAL_2)
    disk.unlink(WAL_1)
    assert violated(disk) == ["mark before trim"]


def test_a_log_file_may_go_after_current_was_replaced() -> None:
    disk = monitor(mark_before_trim())
    put(disk, WAL_1)
    replace_file(disk, CURRENT, b"wal-2.log\n")
    disk.unlink(WAL_1)
    disk.check()


def test_a_prepared_log_file_without_content_may_go_at_any_time() -> None:
    disk = monitor(mark_before_trim())
    put(disk, WAL_2, bytes(64))
    disk.unlink(WAL_2)
    disk.check()


def test_current_may_not_name_a_file_whose_name_can_be_lost() -> None:
    disk = monitor(current_after_name())
    put(disk, WAL_2)
    replace_file(disk, CURRENT, b"wal-2.log\n")
    assert violated(disk) == ["name before CURRENT"]
    assert "wal-2.log" in str(disk.violations[0])


@pytest.mark.parametrize(
    "contents", [b"wal-2.log", b"wal-2.log\n", b"wal-2.log bytes=4096 oldest=x\n"]
)
def test_the_file_current_names_is_its_first_word(contents: bytes) -> None:
    disk = monitor(current_after_name())
    put(disk, WAL_2)
    replace_file(disk, CURRENT, contents)
    assert violated(disk) == ["name before CURRENT"]


def test_an_empty_current_is_a_violation() -> None:
    disk = monitor(current_after_name())
    replace_file(disk, CURRENT, b"")
    assert "it names no file" in str(disk.violations[0])


def test_current_may_name_a_file_whose_name_is_synced() -> None:
    disk = monitor(current_after_name())
    put(disk, WAL_2)
    disk.sync_directory(ROOT)
    replace_file(disk, CURRENT, b"wal-2.log\n")
    disk.check()


def test_synced_bytes_may_not_be_overwritten_or_cut_in_an_append_only_file() -> None:
    disk = monitor(append_only("wal-*.log"))
    file = disk.open(WAL_1, OpenMode.CREATE)
    file.write(0, [bytes(64)])
    file.sync_data()
    file.write(0, [b"frame"])
    file.write(0, [b"FRAME"])
    disk.check()
    file.sync_data()
    file.write(5, [b"next"])
    disk.check()
    file.write(4, [b"!"])
    file.truncate(3)
    assert violated(disk) == ["append only", "append only"]


def test_files_without_the_pattern_may_be_overwritten() -> None:
    disk = monitor(append_only("wal-*.log"))
    put(disk, ROOT / "other")
    disk.open(ROOT / "other", OpenMode.UPDATE).write(0, [b"y"])
    disk.check()


def test_a_sync_that_failed_does_not_count() -> None:
    faulty = FaultDisk(FakeDisk([ROOT]), [Fault(Verb.SYNC_DATA), Fault(Verb.SYNC_DIRECTORY)])
    disk = OrderMonitor(faulty, [bytes_before("ack"), names_before("ack")])
    file = disk.open(WAL_1, OpenMode.CREATE)
    file.write(0, [b"x"])
    for sync in (file.sync_data, lambda: disk.sync_directory(ROOT)):
        with pytest.raises(OSError, match="Input/output"):
            sync()
    disk.note("ack")
    assert violated(disk) == ["bytes before ack", "names before ack"]


def test_bytes_written_while_a_sync_runs_are_not_synced_by_it() -> None:
    fault = Fault(Verb.SYNC_DATA, None)
    disk = OrderMonitor(FaultDisk(FakeDisk([ROOT]), [fault]), [bytes_before("ack")])
    file = disk.open(WAL_1, OpenMode.CREATE)
    file.write(0, [b"x"])

    def write_more() -> None:
        write_all(file, 1, [b"y"])

    fault.before = write_more
    file.sync_data()
    disk.note("ack")
    assert violated(disk) == ["bytes before ack"]


def test_what_is_known_of_a_file_follows_it_through_renames() -> None:
    disk = monitor(bytes_before("ack"), names_before("ack"))
    disk.make_directory(ROOT / "d")
    put(disk, ROOT / "d" / "a", sync=False)
    disk.rename(ROOT / "d", ROOT / "e")
    disk.note("ack", ROOT / "e" / "a")
    assert violated(disk) == ["bytes before ack", "names before ack"]
    disk.unlink(ROOT / "e" / "a")
    disk.remove_directory(ROOT / "e")
    disk.note("ack")
    assert len(disk.violations) == 2


def test_own_rules_can_be_declared() -> None:
    rule = Rule(
        "no nameless publish",
        "readers look files up by name",
        before=NamesSynced("*.seg"),
        after=Milestone("publish"),
    )
    disk = monitor(rule)
    put(disk, ROOT / "1.seg")
    put(disk, ROOT / "1.idx")
    disk.note("publish")
    with pytest.raises(OrderViolationError, match="readers look files up by name"):
        disk.check()


def test_the_rules_of_a_log_are_the_default() -> None:
    names = [rule.name for rule in OrderMonitor(FakeDisk()).rules]
    assert names == [rule.name for rule in log_rules()]
    assert names == ["bytes before name", "name before CURRENT", "mark before trim", "append only"]
