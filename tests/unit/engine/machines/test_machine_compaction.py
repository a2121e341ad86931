"""Snapshots, compaction, history, reading the log."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest

from headwater.config.machines import (
    CompactionSettings,
    FsyncKind,
    HistorySettings,
    MachineSettings,
)
from headwater.core.errors import DamageError, NewerFormatError
from headwater.core.units import MIB
from headwater.engine.machines.answers import Compacted
from headwater.format.machines.entry import EntryType
from headwater.format.machines.names import (
    global_offset,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.recovery.finding import Action
from headwater.testing import KILL, FakeDisk, ManualClock
from tests.rig.machines import ORDER, PLACE, SMALL, SteppedStore, new_disk, policy

SNAPSHOTS = PLACE / "snapshots"
State = dict[str, Any]


def begun(
    settings: MachineSettings = SMALL, clock: ManualClock | None = None
) -> tuple[FakeDisk, SteppedStore]:
    disk = new_disk()
    store = SteppedStore(disk, settings, clock)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    return disk, store


ROUND = ("PAY", "SHIP", "CLOSE", "AGAIN")


def turn(store: SteppedStore, rounds: int, name: str = "a") -> None:
    for _ in range(rounds):
        for event in ROUND:
            store.do(partial(store.apply_event, name, event))


def compact_away(store: SteppedStore) -> Compacted:
    """So that no segment before the current one stays: the log from the snapshot before on does."""
    store.compact()
    return store.compact()


def segments(disk: FakeDisk) -> list[str]:
    return sorted(path.name for path in disk.files() if path.suffix == ".wal")


@pytest.mark.claims(54, 91, 92, 93, 94, 109)
def test_the_defaults_are_those_of_the_contract() -> None:
    settings = MachineSettings()
    assert settings.wal_segment_bytes == 64 * MIB
    assert settings.fsync_policy.kind is FsyncKind.EVERY_WRITE
    compaction = settings.compaction
    assert compaction.enabled
    assert compaction.events_threshold == 10_000
    assert compaction.size_threshold_bytes == 100 * MIB
    assert compaction.min_interval_ms == 60_000


@pytest.mark.claims(53, 86, 87, 88, 89, 90, 99)
def test_compaction_deletes_only_segments_wholly_before_the_snapshot_before_the_newest() -> None:
    disk, store = begun()
    turn(store, 4)
    first = store.compact()
    assert first.segments_deleted == 0, "without another snapshot, the log stands in for this one"
    assert segments(disk)[0] == "0000000000000001.wal"
    active = segment_of(first.wal_offset)
    turn(store, 4)
    done = store.compact()
    assert segment_of(done.wal_offset) > active
    assert done.segments_deleted == active - 1
    assert segments(disk)[0] == f"{active:016x}.wal"
    assert done.instance_count == 1
    stats = store.wal_stats()
    assert stats.oldest_segment == active


@pytest.mark.claims(80, 86, 114)
def test_after_compaction_and_a_restart_everything_is_there() -> None:
    disk, store = begun()
    turn(store, 3)
    store.do(lambda: store.create_instance("order", 1, "b", {"deep": {"list": [1, None]}}))
    store.do(lambda: store.delete_instance("a"))
    store.compact()
    store.do(lambda: store.create_instance("order", 1, "c"))
    state = store.state()
    store.close()
    again = SteppedStore(disk)
    assert again.state() == state
    assert again.report.snapshot is not None
    assert again.report.log.entries == 2, "the marker and one creation; the rest is the snapshot's"
    assert again.list_instances("order", "new").total == 2


@pytest.mark.claims(96, 97)
def test_the_index_tells_people_what_a_snapshot_is_of() -> None:
    clock = ManualClock(1_705_314_600_000)
    disk, store = begun(clock=clock)
    done = store.compact()
    index = msgspec.json.decode(disk.files()[SNAPSHOTS / "index.json"])
    (heading,) = index["snapshots"]
    assert heading["timestamp"] == "2024-01-15T10:30:00Z"
    assert heading["wal_offset"] == done.wal_offset
    assert heading["instance_count"] == 1
    assert heading["machines"] == ["order"]
    assert heading["file"] == "snap-1705314600.snap"
    store.compact()
    store.compact()
    names = sorted(path.name for path in disk.files() if path.suffix == ".snap")
    assert names == ["snap-1705314600-1.snap", "snap-1705314600-2.snap"], "the two newest"
    index = msgspec.json.decode(disk.files()[SNAPSHOTS / "index.json"])
    assert [each["file"] for each in index["snapshots"]] == names


def test_replaying_the_log_gives_the_live_state_byte_for_byte() -> None:
    disk, store = begun()
    turn(store, 2)
    store.do(lambda: store.apply_event("a", "PAY", {"b": [1, {"z": 1.5, "a": "ä"}]}))
    store.do(lambda: store.create_instance("order", 1, "b", {"x": 1e5}, "key", 10**9))
    live = msgspec.json.encode(store.state())
    replayed = SteppedStore(FakeDisk(image=disk.snapshot()))
    assert msgspec.json.encode(replayed.state()) == live
    store.compact()
    from_snapshot = SteppedStore(FakeDisk(image=disk.snapshot()))
    assert msgspec.json.encode(from_snapshot.state()) == live


@pytest.mark.claims(91, 92, 94)
def test_compaction_comes_by_itself_after_enough_events_and_time() -> None:
    clock = ManualClock()
    settings = replace(SMALL, compaction=CompactionSettings(events_threshold=10))
    _, store = begun(settings, clock)
    turn(store, 2)
    store.maintenance.round()
    assert store.compactor.count == 0, "not within the first minute"
    clock.advance(60_000_000)
    store.maintenance.round()
    assert store.compactor.count == 1
    turn(store, 3)
    store.maintenance.round()
    assert store.compactor.count == 1, "not again within a minute"
    clock.advance(60_000_000)
    store.maintenance.round()
    assert store.compactor.count == 2
    clock.advance(60_000_000)
    store.maintenance.round()
    assert store.compactor.count == 2, "nothing happened since"


@pytest.mark.claims(93, 95)
def test_compaction_comes_by_itself_when_the_log_has_grown() -> None:
    clock = ManualClock()
    chosen = CompactionSettings(events_threshold=100_000, size_threshold_bytes=2_000)
    _, store = begun(replace(SMALL, compaction=chosen), clock)
    clock.advance(60_000_000)
    store.maintenance.round()
    assert store.compactor.count == 0
    turn(store, 3)
    store.maintenance.round()
    assert store.compactor.count == 1


@pytest.mark.claims(93)
def test_the_growth_of_the_log_is_counted_over_restarts() -> None:
    clock = ManualClock()
    chosen = CompactionSettings(events_threshold=100_000, size_threshold_bytes=4_000)
    settings = replace(SMALL, compaction=chosen)
    disk, store = begun(settings, clock)
    compactions = 0
    for _ in range(6):  # each writes less than what makes it due
        turn(store, 3)
        store.close()
        store = SteppedStore(disk, settings, clock)
        clock.advance(60_000_000)
        store.maintenance.round()
        compactions += store.compactor.count
    assert compactions == 3
    assert store.wal_stats().total_size_bytes < 2 * 4_000


def test_compaction_does_not_wait_in_a_crash_loop_for_the_first_minute() -> None:
    clock = ManualClock()
    settings = replace(SMALL, compaction=CompactionSettings(events_threshold=20))
    disk, store = begun(settings, clock)
    replayed = []
    for _ in range(8):  # each life is killed within a second
        turn(store, 3)
        disk = next(disk.crash_states(disk.point, KILL))
        store = SteppedStore(disk, settings, clock)
        replayed.append(store.report.log.entries)
        store.maintenance.round()
    assert max(replayed) <= 20 + 10
    assert max(replayed) >= 20, "or the test shows nothing"


def test_a_compaction_there_is_no_room_for_is_tried_again_a_minute_later() -> None:
    clock = ManualClock()
    settings = replace(SMALL, compaction=CompactionSettings(size_threshold_bytes=2_000))
    disk, store = begun(settings, clock)
    turn(store, 3)
    clock.advance(60_000_000)
    disk.capacity_bytes = sum(map(len, disk.files().values())) + 100
    with pytest.raises(OSError, match="space"):
        store.maintenance.round()
    store.maintenance.round()  # nothing is tried, so nothing fails
    disk.capacity_bytes = None
    clock.advance(60_000_000)
    store.maintenance.round()
    assert store.compactor.count == 1, "what had grown is not forgotten"


def test_compaction_turned_off_never_comes_by_itself() -> None:
    clock = ManualClock()
    _, store = begun(replace(SMALL, compaction=CompactionSettings(False, 1, 1, 0)), clock)
    turn(store, 3)
    store.maintenance.round()
    assert store.compactor.count == 0


@pytest.mark.claims(96)
def test_a_snapshot_is_compressed_and_holds_many_blocks() -> None:
    disk, store = begun(replace(SMALL, wal_segment_bytes=4 * MIB))
    with store.owner.holding():
        for number in range(5_000):
            store.owner.call(partial(store.create_instance, "order", 1, f"i{number:06d}"))
    done = store.compact()
    assert done.snapshot_bytes < 40 * 5_000
    state = store.state()
    store.close()
    assert SteppedStore(disk).state() == state


@pytest.mark.claims(110)
def test_smaller_segments_are_more_files() -> None:
    counts = []
    for size in (1_024, 8_192):
        disk, store = begun(replace(SMALL, wal_segment_bytes=size))
        turn(store, 6)
        counts.append(len(segments(disk)))
    assert counts[0] > counts[1]


def compacted_twice() -> tuple[FakeDisk, list[str], State]:
    """Two snapshots, the log between them and behind; what was before the first is gone."""
    disk, store = begun()
    turn(store, 3)
    names = [store.compact().snapshot]
    turn(store, 3)
    names.append(store.compact().snapshot)
    store.do(lambda: store.apply_event("a", "PAY"))
    state = store.state()
    store.close()
    assert segments(disk)[0] != "0000000000000001.wal"
    return disk, names, state


@pytest.mark.parametrize("spoil", [0, 1])
def test_one_damaged_snapshot_of_two_costs_nothing_and_is_told(
    spoil: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk, names, state = compacted_twice()
    path = SNAPSHOTS / names[spoil]
    disk.damage(path, 40, b"\xff")
    damaged = disk.files()[path]
    with caplog.at_level(logging.WARNING, "headwater.machines"):
        again = SteppedStore(disk)
    assert again.state() == state
    assert not again.report.doubtful
    [told] = again.report.worth_reporting
    assert (told.path, told.action) == (path, Action.QUARANTINE)
    assert names[spoil] in caplog.text
    assert disk.files()[SNAPSHOTS / "quarantine" / names[spoil]] == damaged
    assert path not in disk.files()
    index = msgspec.json.decode(disk.files()[SNAPSHOTS / "index.json"])
    assert [each["file"] for each in index["snapshots"]] == [names[1 - spoil]]
    third = SteppedStore(FakeDisk(image=disk.snapshot()))
    assert third.state() == state
    assert third.report.worth_reporting == []


def test_after_a_start_from_the_older_snapshot_compaction_keeps_the_log_behind_it() -> None:
    disk, names, _ = compacted_twice()
    disk.damage(SNAPSHOTS / names[1], 40, b"\xff")
    store = SteppedStore(disk)
    heading = store.report.snapshot
    assert heading is not None
    assert heading.file == names[0]
    name = store.compact().snapshot
    state = store.state()
    store.close()
    assert segments(disk)[0] == segment_name(segment_of(heading.wal_offset))
    disk.damage(SNAPSHOTS / name, 40, b"\xff")
    assert SteppedStore(disk).state() == state


def test_two_damaged_snapshots_are_refused_with_file_and_offset_and_nothing_is_changed() -> None:
    disk, names, _ = compacted_twice()
    for name in names:
        disk.damage(SNAPSHOTS / name, 40, b"\xff")
    before = disk.files()
    with pytest.raises(DamageError) as caught:
        SteppedStore(disk)
    assert PurePosixPath(caught.value.path or "").name in names
    assert caught.value.offset is not None
    assert disk.files() == before


def test_a_damaged_snapshot_does_no_harm_while_the_whole_log_is_there() -> None:
    disk, store = begun(replace(SMALL, wal_segment_bytes=65_536))
    turn(store, 2)
    name = store.compact().snapshot
    turn(store, 1)
    state = store.state()
    store.close()
    disk.damage(SNAPSHOTS / name, 40, b"\xff")
    assert SteppedStore(disk, replace(SMALL, wal_segment_bytes=65_536)).state() == state


def test_a_snapshot_of_a_newer_version_is_refused_not_replaced() -> None:
    disk, store = begun(replace(SMALL, wal_segment_bytes=65_536))
    name = store.compact().snapshot
    store.close()
    disk.damage(SNAPSHOTS / name, 7, b"\x09")
    with pytest.raises(NewerFormatError, match="version 9"):
        SteppedStore(disk, replace(SMALL, wal_segment_bytes=65_536))


def test_a_snapshot_there_is_no_room_for_leaves_nothing_behind() -> None:
    disk, store = begun()
    turn(store, 3)
    before = disk.files()
    disk.capacity_bytes = sum(map(len, before.values())) + 100
    with pytest.raises(OSError, match="space"):
        store.compact()
    assert set(disk.files()) == set(before)
    disk.capacity_bytes = None
    disk.write_file(SNAPSHOTS / "snap-1.snap.tmp", b"cut off by a crash")
    store.compact()
    assert not [path for path in disk.files() if path.suffix == ".tmp"]


def test_a_damaged_index_is_replaced_by_the_newest_whole_snapshot() -> None:
    disk, store = begun()
    turn(store, 3)
    store.compact()
    state = store.state()
    store.close()
    disk.damage(SNAPSHOTS / "index.json", 3, b"\xff")
    assert SteppedStore(disk).state() == state


def test_the_log_is_whole_after_a_power_loss_behind_a_compaction() -> None:
    """Whatever the policy: the history a snapshot points into must be there."""
    disk, store = begun(replace(SMALL, fsync_policy=policy(FsyncKind.NEVER)))
    store.do(lambda: store.apply_event("a", "PAY"))
    store.compact()
    again = SteppedStore(disk.after_power_loss())
    assert again.get_instance("a").state == "paid"
    history = again.history("a").read()
    assert history.complete
    assert history.damaged_at is None


def test_a_history_walks_back_to_the_creation_or_to_where_the_log_begins() -> None:
    _, store = begun(replace(SMALL, history=HistorySettings(transitions_max=0)))
    turn(store, 2)
    whole = store.history("a").read()
    assert whole.complete
    assert whole.gone_before is None
    assert [getattr(each.body, "event", "made") for each in whole.entries] == [
        "made", *ROUND, *ROUND
    ]  # fmt: skip
    newest = store.history("a", 3).read()
    assert newest.entries == whole.entries[-3:]
    assert not newest.complete
    store.compact()
    store.compact()
    turn(store, 1)
    short = store.history("a").read()
    assert not short.complete
    assert short.gone_before is not None
    assert short.entries
    assert all(each.offset >= short.gone_before for each in short.entries)


@pytest.mark.claims(74, 81, 82)
def test_the_log_is_read_in_pages_from_any_offset() -> None:
    _, store = begun()
    turn(store, 5)
    everything = store.read_wal(0, 1_000).read()
    assert [each.sequence for each in everything.entries] == list(range(1, 23))
    assert everything.entries[0].kind is EntryType.PUT_MACHINE
    assert everything.next_offset == store.committed_offset
    assert not everything.has_more
    collected, at, more = [], 0, True
    while more:
        page = store.read_wal(at, 4).read()
        collected += page.entries
        at, more = page.next_offset, page.has_more
    assert collected == everything.entries
    middle = everything.entries[9]
    assert store.read_wal(middle.offset, 1).read().entries == [middle]
    store.compact()
    store.compact()
    rest = store.read_wal(0, 1_000).read()
    assert rest.gone_before == global_offset(store.wal_stats().oldest_segment, 0)
    kept = [each for each in everything.entries if each.offset >= rest.gone_before]
    assert rest.entries[:-2] == kept
    assert rest.entries[-1].kind is EntryType.SNAPSHOT


def test_reading_the_log_passes_over_damage_and_says_so() -> None:
    disk, store = begun(replace(SMALL, wal_segment_bytes=16_384))
    turn(store, 2)
    bad = store.read_wal(0, 100).read().entries[4]
    path = PLACE / "wal" / "0000000000000001.wal"
    disk.damage(path, within_segment(bad.offset) + 30, b"\xff")
    page = store.read_wal(0, 100).read()
    assert bad.offset not in [each.offset for each in page.entries]
    assert len(page.entries) == 9
    assert [each.offset for each in page.damaged] == [bad.offset]
    assert store.history("a").read().damaged_at == bad.offset


@pytest.mark.claims(83, 84, 85)
def test_statistics_count_entries_segments_and_bytes() -> None:
    disk, store = begun()
    turn(store, 4)
    stats = store.wal_stats()
    files = segments(disk)
    assert stats.segment_count == len(files) == stats.newest_segment - stats.oldest_segment + 1
    assert (stats.oldest_segment, stats.current_offset) == (1, store.committed_offset)
    assert stats.entry_count == 18
    assert stats.total_size_bytes == (len(files) - 1) * 1_024 + within_segment(stats.current_offset)
    assert stats.latest_offset == store.get_instance("a").last_wal_offset
    assert stats.fsyncs >= 18
    store.close()
    again = SteppedStore(disk)
    assert again.wal_stats().entry_count == 18
    assert again.wal_stats().latest_offset == stats.latest_offset
    again.compact()
    left = again.read_wal(0, 1_000).read().entries
    assert again.wal_stats().entry_count == len(left)
    assert 157_286_400 == 150 * MIB <= 3 * MachineSettings().wal_segment_bytes


def test_the_newest_entries_are_read_from_the_end_over_segments() -> None:
    _, store = begun()
    turn(store, 6)
    everything = store.read_wal(0, 1_000).read()
    assert segment_of(everything.entries[-5].offset) < segment_of(everything.entries[-1].offset)
    for count in (1, 5, len(everything.entries), 10_000):
        page = store.read_wal(0, count, newest=True).read()
        assert page.entries == everything.entries[-count:]
        assert (page.has_more, page.next_offset) == (False, everything.next_offset)
    assert SteppedStore(new_disk()).read_wal(0, 3, newest=True).read().entries == []
