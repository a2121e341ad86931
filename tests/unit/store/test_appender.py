"""Appending runs to segments: order of calls, where a segment is sealed, what a failure leaves."""

from __future__ import annotations

import errno

import pytest

from headwater.config.store import SegmentSettings
from headwater.core.errors import DamageError, DiskFullError, RequestError, StorageError, SyncError
from headwater.format.segment import first_checksum, identity_of, salt_of, seal_checks
from headwater.testing import (
    FAILING_VERBS,
    FakeDisk,
    Fault,
    FaultDisk,
    ManualClock,
    Milestone,
    OrderMonitor,
    Verb,
    bytes_before,
    data_before_index,
    index_before_mark,
    names_before,
)
from tests.unit.store.records import (
    DIRECTORY,
    TOPICS,
    TS,
    Written,
    encoded,
    read_live,
    some,
    topic_files,
)


def new_disk() -> FakeDisk:
    return FakeDisk([TOPICS])


@pytest.mark.claims(240, 248)
def test_a_run_is_appended_in_seq_order_to_data_and_index() -> None:
    disk = new_disk()
    topic = Written(topic_files(disk))
    topic.append(2)
    topic.append(1)
    data, entries = encoded(1, some(1, 3))
    seal_checks(entries, 1, salt_of(identity_of(7, first_checksum(data))))
    name = "seg-0000000000000001"
    assert disk.files() == {
        DIRECTORY / f"{name}.data": bytes(data),
        DIRECTORY / f"{name}.idx": entries.tobytes(),
    }
    assert [(each.first_seq, each.count, each.sealed) for each in topic.segments] == [(1, 3, False)]


@pytest.mark.claims(241)
def test_data_is_synced_before_index_and_both_before_the_caller_goes_on() -> None:
    monitor = OrderMonitor(
        new_disk(),
        (
            data_before_index("*.data", "*.idx"),
            index_before_mark("*.idx", Milestone("mark")),
            bytes_before("mark"),
            names_before("mark"),
        ),
    )
    topic = Written(topic_files(monitor))
    for count in (3, 9, 1):
        topic.append(count)
        monitor.note("mark")
    monitor.check()


@pytest.mark.claims(258, 259, 260, 261)
def test_the_defaults_are_those_of_the_seed() -> None:
    settings = SegmentSettings()
    assert settings.segment_max_events == 10_000
    assert settings.segment_max_bytes == 67_108_864
    assert settings.segment_max_age_ms == 3_600_000


@pytest.mark.claims(258, 259)
def test_a_segment_is_sealed_at_its_number_of_records_and_the_run_goes_on_in_the_next() -> None:
    disk = new_disk()
    topic = Written(topic_files(disk))
    topic.append(3)
    changed = topic.append(7)
    assert [(each.first_seq, each.count, each.sealed) for each in changed] == [
        (1, 4, True),
        (5, 4, True),
        (9, 2, False),
    ]
    found, findings = read_live(topic.files, topic.segments)
    assert found == {seq: sent.data for seq, sent in topic.sent.items()}
    assert not findings


@pytest.mark.claims(258, 260)
def test_a_segment_is_sealed_by_the_record_that_reaches_its_bytes() -> None:
    topic = Written(topic_files(new_disk(), SegmentSettings(segment_max_bytes=300)))
    changed = topic.append(8, size=62)
    assert [(each.first_seq, each.count, each.sealed) for each in changed] == [
        (1, 3, True),
        (4, 3, True),
        (7, 2, False),
    ]
    assert all(each.data_bytes >= 300 for each in changed if each.sealed)


def test_a_record_larger_than_a_segment_gets_a_segment_of_its_own() -> None:
    topic = Written(topic_files(new_disk(), SegmentSettings(segment_max_bytes=100)))
    assert [each.count for each in topic.append(3, size=500)] == [1, 1, 1]
    assert len(read_live(topic.files, topic.segments)[0]) == 3


@pytest.mark.claims(258, 261, 296)
def test_a_segment_is_sealed_by_age_when_the_clock_says_so_without_any_file_work() -> None:
    clock = ManualClock(wall_ms=TS)
    disk = new_disk()
    topic = Written(topic_files(disk, SegmentSettings(segment_max_age_ms=1_000)))
    (segment,) = topic.append(1, now_ms=clock.wall_ms())
    clock.advance(999_000)
    assert not topic.files.seal_if_due(segment, clock.wall_ms()).sealed
    point = disk.point
    clock.advance(1_000)
    sealed = topic.files.seal_if_due(segment, clock.wall_ms())
    assert sealed.sealed
    assert disk.point == point
    topic.put(sealed)
    assert [each.first_seq for each in topic.append(1)] == [2]


@pytest.mark.claims(261)
def test_an_age_of_zero_seals_nothing_and_a_clock_that_goes_back_neither() -> None:
    off = topic_files(new_disk(), SegmentSettings(segment_max_age_ms=0))
    (segment,) = Written(off).append(1)
    assert not off.seal_if_due(segment, TS * 2).sealed
    on = topic_files(new_disk(), SegmentSettings(segment_max_age_ms=1))
    assert not on.seal_if_due(segment, 0).sealed


@pytest.mark.claims(249)
def test_a_run_that_does_not_follow_begins_a_new_segment_and_seals_the_old() -> None:
    disk = new_disk()
    topic = Written(topic_files(disk))
    topic.append(2)
    topic.next_seq = 9
    changed = topic.append(1)
    assert [(each.first_seq, each.count, each.sealed) for each in changed] == [
        (1, 2, True),
        (9, 1, False),
    ]


def test_entries_come_back_with_the_offsets_they_have_in_their_files() -> None:
    topic = Written(topic_files(new_disk()))
    topic.append(3)
    data, entries = encoded(4, some(4, 6))
    changed = topic.files.append_run(topic.segments[-1], 4, data, entries, TS)
    assert [each.first_seq for each in changed] == [1, 5, 9]
    stored = [topic.files.index(each) for each in changed]
    assert entries.tobytes() == stored[0][3:].tobytes() + stored[1].tobytes() + stored[2].tobytes()


def test_an_empty_run_writes_nothing() -> None:
    disk = new_disk()
    data, entries = encoded(1, [])
    assert topic_files(disk).append_run(None, 1, data, entries, TS) == []
    assert disk.files() == {}


def test_a_file_that_lost_its_end_is_refused_before_anything_is_written() -> None:
    disk = new_disk()
    topic = Written(topic_files(disk))
    topic.append(2)
    path = DIRECTORY / "seg-0000000000000001.data"
    disk.truncate_file(path, 50)
    with pytest.raises(DamageError) as caught:
        topic.append(1)
    assert (caught.value.path, caught.value.offset) == (path, 50)


def test_a_full_disk_is_told_and_the_same_run_fits_when_there_is_room() -> None:
    disk = new_disk()
    topic = Written(topic_files(disk))
    topic.append(2)
    disk.capacity_bytes = sum(map(len, disk.files().values())) + 60
    with pytest.raises(DiskFullError):
        topic.append(5)
    disk.capacity_bytes = None
    topic.append(5)
    again = topic_files(disk)
    segments = again.load(*topic.position)
    found, findings = read_live(again, segments)
    assert found == {seq: sent.data for seq, sent in topic.sent.items()}
    assert not findings


def sweep_length() -> int:
    counting = FaultDisk(new_disk())
    topic = Written(topic_files(counting))
    topic.append(2)
    before = len(counting.calls_of(FAILING_VERBS))
    topic.append(7)
    return len(counting.calls_of(FAILING_VERBS)) - before


@pytest.mark.crash
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("then", ["again", "sealed by age"])
def test_after_a_failed_append_nothing_of_it_counts_and_it_can_be_made_again(
    number: int, then: str
) -> None:
    for nth in range(sweep_length()):
        fake = new_disk()
        disk = FaultDisk(fake)
        topic = Written(topic_files(disk))
        topic.append(2)
        fault = disk.add(Fault(FAILING_VERBS, number, nth=nth))
        with pytest.raises((StorageError, DiskFullError)):
            topic.append(7)
        assert fault.struck
        if then == "sealed by age":
            topic.put(topic.files.seal_if_due(topic.segments[-1], TS * 2))
            topic.append(1)
        topic.append(7)
        again = topic_files(fake.after_power_loss())
        segments = again.load(*topic.position)
        found, findings = read_live(again, segments)
        assert found == {seq: sent.data for seq, sent in topic.sent.items()}, nth
        assert not findings


def after_a_failed_append(nth: int) -> tuple[FakeDisk, Written]:
    fake = new_disk()
    disk = FaultDisk(fake)
    topic = Written(topic_files(disk))
    topic.append(2)
    disk.add(Fault(FAILING_VERBS, errno.EIO, nth=nth))
    with pytest.raises(StorageError):
        topic.append(7)
    return fake, topic


@pytest.mark.crash
def test_a_segment_sealed_after_a_failed_append_has_nothing_behind_its_end() -> None:
    for nth in range(sweep_length()):
        fake, topic = after_a_failed_append(nth)
        topic.put(topic.files.seal_if_due(topic.segments[-1], TS * 2))
        again = topic_files(fake.after_kill())
        found, findings = read_live(again, again.load(2, 0, 0))
        assert (set(found), findings) == ({1, 2}, []), nth


@pytest.mark.crash
def test_a_run_after_a_gap_leaves_nothing_of_the_one_that_failed() -> None:
    for nth in range(sweep_length()):
        fake, topic = after_a_failed_append(nth)
        topic.next_seq = 20
        topic.append(2)
        again = topic_files(fake.after_kill())
        found, findings = read_live(again, again.load(*topic.position))
        assert (set(found), findings) == ({1, 2, 20, 21}, []), nth


def test_a_failed_sync_is_an_error_of_its_own() -> None:
    disk = FaultDisk(new_disk(), [Fault(Verb.SYNC_DATA, errno.ENOSPC, path="*.idx")])
    with pytest.raises(SyncError):
        Written(topic_files(disk)).append(1)


@pytest.mark.parametrize(
    "bad",
    [
        {"segment_max_events": 0},
        {"segment_max_bytes": 0},
        {"segment_max_bytes": 2**32},
        {"segment_max_age_ms": -1},
        {"hot_retain_bytes": -1},
        {"rewrite_dead_ratio": 1.5},
    ],
)
def test_settings_that_cannot_work_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(RequestError):
        SegmentSettings(**bad)
