"""Reading segments and flagging deletes in them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy
import pytest

from headwater.config.store import SegmentSettings
from headwater.core.errors import InvariantError, StorageError
from headwater.disk import PosixDisk
from headwater.format.segment import IndexFlag, index_flags
from headwater.store.maps import SegmentMaps
from headwater.store.pair import good_positions
from headwater.store.segment import SegmentChangedError
from headwater.store.topic_files import TopicFiles
from headwater.testing import FakeDisk, FaultDisk, OrderMonitor, Verb, data_before_index
from tests.unit.store.records import (
    DIRECTORY,
    SMALL,
    TOPICS,
    Written,
    read_live,
    topic_files,
)


def written(count: int = 10, maps: SegmentMaps | None = None) -> tuple[FaultDisk, Written]:
    disk = FaultDisk(FakeDisk([TOPICS]))
    topic = Written(topic_files(disk, maps=maps))
    topic.append(count)
    return disk, topic


@pytest.mark.claims(264, 265)
def test_sealed_segments_are_mapped_and_the_active_one_is_read() -> None:
    disk, topic = written()
    for segment in topic.segments:
        entries = topic.files.index(segment)
        before = len(disk.calls)
        topic.files.read(segment, segment.first_seq, segment.end_seq, entries)
        used = {call.verb for call in disk.calls[before:]}
        assert (Verb.VIEW in used, Verb.READ in used) == (segment.sealed, not segment.sealed)


def test_a_part_of_a_segment_is_read_with_the_place_it_begins_at() -> None:
    _, topic = written()
    for segment in topic.segments:
        entries = topic.files.index(segment)[1:]
        stored = topic.files.read(segment, segment.first_seq + 1, segment.end_seq, entries)
        assert stored.base == int(entries["offset"][0])
        good, findings = good_positions(stored, entries, segment.first_seq + 1)
        assert good.all()
        assert not findings


def test_entries_of_another_range_are_a_mistake_of_the_caller() -> None:
    _, topic = written()
    segment = topic.segments[0]
    with pytest.raises(InvariantError):
        topic.files.read(segment, 1, 2, topic.files.index(segment))


def test_a_map_is_made_once_and_the_oldest_ones_are_let_go() -> None:
    maps = SegmentMaps(maps_max=2)
    disk, topic = written(13, maps)
    for _ in range(3):
        read_live(topic.files, topic.segments[1:3])
    assert len(disk.calls_of(Verb.VIEW)) == 2
    read_live(topic.files, topic.segments[:1])
    assert len(maps) == 2
    maps.clear()
    assert len(maps) == 0


def test_bytes_stay_readable_after_their_map_was_let_go_and_the_file_removed(
    tmp_path: Path,
) -> None:
    maps = SegmentMaps(maps_max=1)
    files = TopicFiles(PosixDisk(), tmp_path / "00000007", SMALL, maps=maps)
    topic = Written(files)
    topic.append(8)
    segment = topic.segments[0]
    entries = files.index(segment)
    stored = files.read(segment, 1, 4, entries)
    files.drop(segment)
    maps.clear()
    gc.collect()
    assert good_positions(stored, entries, 1)[0].all()


def test_many_threads_read_through_few_maps_on_a_real_disk(tmp_path: Path) -> None:
    files = TopicFiles(PosixDisk(), tmp_path / "00000007", SMALL, maps=SegmentMaps(maps_max=2))
    topic = Written(files)
    topic.append(40)
    wrong: list[object] = []

    def read() -> None:
        for _ in range(20):
            found, findings = read_live(files, topic.segments)
            if findings or len(found) != 40:
                wrong.append((findings, found))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_segment_that_was_dropped_meanwhile_asks_to_look_again() -> None:
    _, topic = written()
    segment = topic.segments[0]
    entries = topic.files.index(segment)
    topic.files.drop(segment)
    with pytest.raises(SegmentChangedError):
        topic.files.read(segment, 1, 4, entries)


@pytest.mark.claims(277, 281)
def test_a_delete_flips_one_byte_of_the_frame_and_the_flags_of_its_entry() -> None:
    disk, topic = written()
    assert isinstance(disk.inner, FakeDisk)
    before = disk.inner.files()
    topic.delete(2)
    after = disk.inner.files()
    changed = {
        path.name: [at for at in range(len(data)) if data[at] != before[path][at]]
        for path, data in after.items()
        if data != before[path]
    }
    entries = topic.files.index(topic.segments[0])
    end = int(entries["offset"][1]) + int(entries["len"][1])
    assert changed.pop("seg-0000000000000001.data") == [end - 1]
    assert after[DIRECTORY / "seg-0000000000000001.data"][end - 1] == 0xD5
    assert set(changed.pop("seg-0000000000000001.idx")) <= {36, 37, 38, 39}
    assert not changed
    assert index_flags(entries)[1] & IndexFlag.DELETED


@pytest.mark.claims(277, 281)
def test_deleted_records_are_gone_in_every_segment_and_stay_gone() -> None:
    disk, topic = written()
    topic.delete(1, 3, 4, 6, 9, 10)
    live = {2, 5, 7, 8}
    assert set(read_live(topic.files, topic.segments)[0]) == live
    again = topic_files(disk)
    found, findings = read_live(again, again.load(*topic.position))
    assert set(found) == live
    assert not findings


def test_both_flags_of_a_delete_survive_a_power_loss() -> None:
    disk, topic = written()
    topic.delete(2, 3, 9)
    assert isinstance(disk.inner, FakeDisk)
    assert disk.inner.after_power_loss().files() == disk.inner.files()


def test_deleting_twice_changes_nothing_more() -> None:
    disk, topic = written()
    assert isinstance(disk.inner, FakeDisk)
    topic.delete(2, 7)
    once = disk.inner.files()
    topic.delete(2, 7)
    assert disk.inner.files() == once


def test_records_between_the_deleted_ones_keep_what_they_have_on_disk() -> None:
    _, topic = written()
    topic.delete(2)
    entries = topic.files.index(topic.segments[0])
    entries["flags_check"][1] = 0
    topic.files.flag_deleted(topic.segments[0], entries[0:3], numpy.array([1, 3]))
    flags = index_flags(topic.files.index(topic.segments[0]))
    assert [bool(flag & IndexFlag.DELETED) for flag in flags] == [True, True, True, False]


def test_flags_that_live_in_memory_alone_are_never_written() -> None:
    _, topic = written()
    entries = topic.files.index(topic.segments[0])
    entries["flags_check"] |= numpy.uint32(IndexFlag.IN_WAL)
    topic.files.flag_deleted(topic.segments[0], entries[1:2], numpy.array([2]))
    assert not (index_flags(topic.files.index(topic.segments[0])) & IndexFlag.IN_WAL).any()


def test_a_delete_is_durable_in_the_data_before_the_index() -> None:
    monitor = OrderMonitor(FakeDisk([TOPICS]), (data_before_index("*.data", "*.idx"),))
    topic = Written(topic_files(monitor))
    topic.append(4)
    topic.delete(1, 3)
    monitor.check()


def test_deletes_outside_of_the_segment_are_a_mistake_of_the_caller() -> None:
    _, topic = written()
    entries = topic.files.index(topic.segments[0])
    for seqs in ([0, 1], [4, 5], [1, 2, 3]):
        with pytest.raises(InvariantError):
            topic.files.flag_deleted(topic.segments[0], entries[:2], numpy.array(seqs))
    topic.files.flag_deleted(topic.segments[0], entries[:0], numpy.array([], numpy.int64))


def test_deletes_in_a_file_that_lost_its_end_are_refused() -> None:
    disk, topic = written()
    assert isinstance(disk.inner, FakeDisk)
    entries = topic.files.index(topic.segments[0])
    disk.inner.truncate_file(DIRECTORY / "seg-0000000000000001.data", 20)
    with pytest.raises(StorageError, match="bytes are missing"):
        topic.files.flag_deleted(topic.segments[0], entries, numpy.array([1, 2, 3, 4]))


def test_a_record_deleted_while_it_is_read_is_left_out_without_a_finding() -> None:
    _, topic = written()
    segment = topic.segments[0]
    entries = topic.files.index(segment)
    topic.delete(2)
    stored = topic.files.read(segment, 1, 4, entries)
    good, findings = good_positions(stored, entries, 1)
    assert good.tolist() == [True, False, True, True]
    assert not findings


@pytest.mark.claims(290)
def test_the_index_of_a_record_takes_twenty_bytes_whatever_its_payload() -> None:
    topic = Written(topic_files(FakeDisk([TOPICS]), SegmentSettings()))
    topic.append(50, size=4_000)
    assert topic.files.index(topic.segments[0]).nbytes == 50 * 20
