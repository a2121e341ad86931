"""Histories of instances after the log they were in was compacted away."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import PurePath

import pytest

from headwater.config.machines import HistorySettings, MachineSettings
from headwater.disk import OpenMode
from headwater.engine.machines.log_reader import History
from headwater.format.machines.names import segment_of
from headwater.recovery.machines.survey import history_faults
from headwater.testing import FakeDisk, ManualClock
from headwater.testing.fake_disk import FakeFile
from tests.rig.machines import ORDER, PLACE, SMALL, SteppedStore
from tests.unit.engine.machines.test_machine_compaction import begun, compact_away, segments, turn

KEPT = PLACE / "history"
HOUR_MS = 3_600_000


def kept(transitions: int = 100, **more: int) -> MachineSettings:
    return replace(SMALL, history=HistorySettings(transitions_max=transitions, **more))


def files(disk: FakeDisk) -> list[str]:
    return sorted(path.name for path in disk.files() if path.parent == KEPT)


def events(history: History) -> list[str]:
    return [getattr(each.body, "event", "made") for each in history.entries]


def test_a_history_is_whole_after_its_log_was_deleted_also_after_a_restart() -> None:
    disk, store = begun()
    turn(store, 5)
    whole = store.history("a").read()
    assert whole.complete
    compact_away(store)
    assert "0000000000000001.wal" not in segments(disk)
    assert store.history("a").read() == whole
    turn(store, 1)
    compact_away(store)
    longer = store.history("a").read()
    assert longer.entries[: len(whole.entries)] == whole.entries
    assert (longer.complete, longer.gone_before, longer.doubtful) == (True, None, False)
    store.close()
    again = SteppedStore(disk)
    assert again.history("a").read() == longer
    assert again.history("a", 3).read().entries == longer.entries[-3:]


def test_nothing_about_a_history_is_kept_in_memory() -> None:
    disk, store = begun()
    turn(store, 5)
    compact_away(store)
    for name in files(disk):
        disk.unlink(KEPT / name)
    gone = store.history("a").read()
    assert not gone.complete
    assert gone.gone_before is not None
    assert all(each.offset >= gone.gone_before for each in gone.entries)


def test_the_count_bounds_what_is_answered_and_says_so() -> None:
    _, store = begun(kept(3))
    turn(store, 5)
    before = store.history("a", 1_000).read()
    assert len(before.entries) == 21
    compact_away(store)
    in_the_log = [
        each for each in before.entries if each.offset >= store.read_wal().read().gone_before
    ]
    short = store.history("a").read()
    assert len(short.entries) == max(3, len(in_the_log))
    assert short.entries == before.entries[-len(short.entries) :]
    assert short.gone_before == short.entries[0].offset
    assert not short.complete


def test_of_a_segment_only_the_newest_of_each_instance_are_kept() -> None:
    wide = replace(kept(2), wal_segment_bytes=65_536)
    disk, store = begun(wide)
    store.do(lambda: store.create_instance("order", 1, "b", {"total": 5}))
    turn(store, 60)
    store.do(lambda: store.apply_event("b", "PAY"))
    turn(store, 120)
    compact_away(store)
    first = disk.files()[KEPT / files(disk)[0]]
    assert first.count(b'"instance_id":"a"') == 2
    assert first.count(b'"instance_id":"b"') == 2
    assert events(store.history("b").read()) == ["made", "PAY"]


def test_a_count_of_zero_keeps_nothing() -> None:
    disk, store = begun(kept(0))
    turn(store, 5)
    compact_away(store)
    assert files(disk) == []
    assert store.history("a").read().gone_before is not None


def test_deleted_instances_leave_nothing_behind() -> None:
    disk, store = begun()
    turn(store, 5)
    store.do(lambda: store.delete_instance("a"))
    store.do(lambda: store.create_instance("order", 1, "b"))
    compact_away(store)
    assert all(b'"instance_id":"a"' not in disk.files()[KEPT / name] for name in files(disk))
    store.do(lambda: store.create_instance("order", 1, "a"))
    assert events(store.history("a").read()) == ["made"]


def test_what_is_too_old_goes_by_entries_and_by_files() -> None:
    clock = ManualClock()
    disk, store = begun(kept(age_ms=10 * HOUR_MS), clock)
    turn(store, 5)
    clock.advance(6 * HOUR_MS * 1_000)
    turn(store, 5)
    compact_away(store)
    assert store.history("a").read().complete
    was = files(disk)
    clock.advance(6 * HOUR_MS * 1_000)
    turn(store, 1)
    compact_away(store)
    left = store.history("a").read()
    assert not left.complete
    assert left.gone_before == left.entries[0].offset
    assert min(each.body.at for each in left.entries) >= clock.wall_ms() - 12 * HOUR_MS
    assert not set(was) <= set(files(disk))


def test_the_oldest_files_go_beyond_the_bytes() -> None:
    disk, store = begun(kept(bytes_max=3_000))
    for _ in range(4):
        turn(store, 4)
        compact_away(store)
    total = sum(len(disk.files()[KEPT / name]) for name in files(disk))
    assert 1_000 < total <= 3_000
    newest = store.history("a").read()
    assert newest.entries
    assert newest.gone_before == newest.entries[0].offset


@pytest.mark.parametrize("place", ["entry", "places", "footer", "cut"])
def test_a_damaged_file_is_told_and_stops_nothing(place: str) -> None:
    disk, store = begun()
    turn(store, 5)
    compact_away(store)
    assert history_faults(disk, KEPT) == []
    path = KEPT / files(disk)[-1]
    contents = bytearray(disk.files()[path])
    at = {"entry": 30, "places": len(contents) - 60, "footer": len(contents) - 20, "cut": 0}[place]
    if place == "cut":
        del contents[-1:]
    else:
        contents[at] ^= 0x10
    disk.unlink(path)
    file = disk.open(path, OpenMode.CREATE)
    file.write(0, [bytes(contents)])
    file.close()
    store.close()
    faults = history_faults(disk, KEPT)
    assert [(fault.path, fault.bad) for fault in faults] == [(path, True)]
    again = SteppedStore(disk)
    found = again.history("a").read()
    assert found.damaged_at is not None
    assert segment_of(found.damaged_at) == int(path.stem, 16)
    turn(again, 6)
    compact_away(again)
    assert again.get_instance("a").state == "new"


class Full(FakeDisk):
    """No room for histories."""

    def open(self, path: PurePath, mode: OpenMode) -> FakeFile:
        if ".hist" in path.name and mode is OpenMode.CREATE:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().open(path, mode)


def test_where_there_is_no_room_compaction_makes_some_all_the_same() -> None:
    disk = Full(["/data"])
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    turn(store, 5)
    assert compact_away(store).segments_deleted > 0
    assert store.history("a").read().gone_before is not None


def test_an_instance_made_again_has_the_history_of_this_life_only() -> None:
    _, store = begun()
    turn(store, 2)
    store.do(lambda: store.delete_instance("a"))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    turn(store, 3)
    compact_away(store)
    found = store.history("a").read()
    assert found.complete
    assert len(found.entries) == 13
