"""Starting again: cut back to the checkpoint, refuse what is missing, mend what can be mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath, PurePosixPath

import pytest

from headwater.core.errors import DamageError, UnavailableError
from headwater.disk import OpenMode
from headwater.format.segment import ENTRY_BYTES, IndexFlag
from headwater.store.pair import RecordDamage
from headwater.store.segment_stores import LocalSegmentStore
from headwater.store.topic_files import TopicFiles
from headwater.testing import FakeDisk
from headwater.testing.fake_disk import FakeFile
from tests.unit.store.records import (
    DIRECTORY,
    SMALL,
    TOPICS,
    TS,
    Written,
    encoded,
    read_live,
    seqs_with,
    some,
    topic_files,
)


def written(count: int = 10) -> tuple[FakeDisk, Written]:
    disk = FakeDisk([TOPICS])
    topic = Written(topic_files(disk))
    topic.append(count)
    return disk, topic


def path_of(first_seq: int, suffix: str) -> PurePosixPath:
    return DIRECTORY / f"seg-{first_seq:016d}.{suffix}"


def all_of(topic: Written) -> dict[int, bytes]:
    return {seq: sent.data for seq, sent in topic.sent.items()}


@pytest.mark.claims(254)
def test_a_start_finds_the_segments_that_were_written() -> None:
    disk, topic = written()
    again = topic_files(disk)
    segments = again.load(*topic.position)
    assert [(each.first_seq, each.count, each.data_bytes, each.sealed) for each in segments] == [
        (each.first_seq, each.count, each.data_bytes, each.sealed) for each in topic.segments
    ]
    assert segments[0].created_ms == TS + 1
    assert read_live(again, segments) == (all_of(topic), [])


def test_a_topic_without_files_has_no_segments() -> None:
    assert topic_files(FakeDisk()).load(0) == []
    assert topic_files(FakeDisk([DIRECTORY])).load(0) == []


@pytest.mark.claims(244, 257)
def test_what_is_beyond_the_checkpoint_is_cut_and_can_be_written_again() -> None:
    disk, topic = written(2)
    position = topic.position
    at_mark = disk.files()
    topic.append(9)
    assert len(disk.files()) > 2
    again = topic_files(disk)
    segments = again.load(*position)
    assert disk.files() == at_mark
    data, entries = encoded(3, some(3, 9))
    changed = again.append_run(segments[-1], 3, data, entries, TS)
    assert read_live(again, changed) == (all_of(topic), [])


@pytest.mark.claims(257)
def test_a_torn_tail_of_the_active_segment_is_cut() -> None:
    disk, topic = written(10)
    for suffix in ("data", "idx"):
        path = path_of(9, suffix)
        disk.write_file(path, disk.files()[path] + b"torn")
    again = topic_files(disk)
    assert read_live(again, again.load(*topic.position)) == (all_of(topic), [])
    assert not disk.files()[path_of(9, "data")].endswith(b"torn")


@pytest.mark.parametrize(
    ("first_seq", "suffix"), [(1, "data"), (1, "idx"), (9, "data"), (9, "idx")]
)
def test_a_missing_file_is_refused_by_name(first_seq: int, suffix: str) -> None:
    disk, topic = written()
    disk.unlink(path_of(first_seq, suffix))
    with pytest.raises(DamageError) as caught:
        topic_files(disk).load(*topic.position)
    assert caught.value.path == path_of(first_seq, suffix)


def test_a_missing_active_pair_is_refused_by_name() -> None:
    disk, topic = written()
    disk.unlink(path_of(9, "data"))
    disk.unlink(path_of(9, "idx"))
    with pytest.raises(DamageError, match="seg-0000000000000009"):
        topic_files(disk).load(*topic.position)


@pytest.mark.parametrize("suffix", ["data", "idx"])
def test_every_cut_of_the_active_pair_is_refused_with_file_and_offset(suffix: str) -> None:
    disk, topic = written()
    path = path_of(9, suffix)
    whole = disk.files()[path]
    for length in range(len(whole)):
        disk.write_file(path, whole[:length])
        with pytest.raises(DamageError) as caught:
            topic_files(disk).load(*topic.position)
        assert (caught.value.path, caught.value.offset) == (path, length)


def test_every_cut_of_sealed_data_is_refused_with_file_and_offset() -> None:
    disk, topic = written()
    path = path_of(1, "data")
    whole = disk.files()[path]
    for length in range(len(whole)):
        disk.write_file(path, whole[:length])
        with pytest.raises(DamageError) as caught:
            topic_files(disk).load(*topic.position)
        assert (caught.value.path, caught.value.offset) == (path, length)


@pytest.mark.claims(254)
def test_every_cut_of_a_sealed_index_is_mended_from_the_data_and_told() -> None:
    disk, topic = written()
    path = path_of(1, "idx")
    whole = disk.files()[path]
    for length in range(len(whole)):
        disk.write_file(path, whole[:length])
        findings: list[RecordDamage] = []
        again = topic_files(disk, findings=findings)
        assert read_live(again, again.load(*topic.position)) == (all_of(topic), [])
        missing = range(1 + length // ENTRY_BYTES, 5)
        assert [(finding.seq, finding.repaired) for finding in findings] == [
            (seq, True) for seq in missing
        ]
        assert disk.files()[path] == whole


def test_every_flipped_bit_of_a_sealed_index_is_mended_from_the_data_and_told() -> None:
    disk, topic = written()
    path = path_of(1, "idx")
    whole = disk.files()[path]
    for bit in range(len(whole) * 8):
        disk.damage(path, bit // 8, bytes([whole[bit // 8] ^ 1 << bit % 8]))
        findings: list[RecordDamage] = []
        again = topic_files(disk, findings=findings)
        assert read_live(again, again.load(*topic.position)) == (all_of(topic), [])
        assert [finding.seq for finding in findings] == [1 + bit // 8 // ENTRY_BYTES]
        assert str(path) in str(findings[0])
        assert disk.files()[path] == whole


def test_every_flipped_bit_of_an_active_index_is_mended_from_the_data_and_told() -> None:
    disk, topic = written()
    path = path_of(9, "idx")
    whole = disk.files()[path]
    for bit in range(len(whole) * 8):
        disk.damage(path, bit // 8, bytes([whole[bit // 8] ^ 1 << bit % 8]))
        findings: list[RecordDamage] = []
        again = topic_files(disk, findings=findings)
        assert read_live(again, again.load(*topic.position)) == (all_of(topic), [])
        assert [finding.seq for finding in findings] == [9 + bit // 8 // ENTRY_BYTES]
        assert disk.files()[path] == whole


@pytest.mark.claims(257)
def test_every_flipped_bit_of_sealed_data_costs_its_own_record_and_is_told() -> None:
    disk, topic = written()
    path = path_of(5, "data")
    whole = disk.files()[path]
    starts = topic.files.index(topic.segments[1])["offset"].tolist()
    for bit in range(len(whole) * 8):
        disk.damage(path, bit // 8, bytes([whole[bit // 8] ^ 1 << bit % 8]))
        again = topic_files(disk)
        found, findings = read_live(again, again.load(*topic.position))
        hurt = 5 + sum(start <= bit // 8 for start in starts) - 1
        assert found == {seq: data for seq, data in all_of(topic).items() if seq != hurt}
        assert [(finding.path, finding.seq) for finding in findings] == [(path, hurt)]
        disk.write_file(path, whole)


def test_an_entry_and_its_frame_both_damaged_are_told_and_never_served() -> None:
    disk, topic = written()
    entries = topic.files.index(topic.segments[0])
    disk.damage(path_of(1, "idx"), 1 * ENTRY_BYTES, b"\xff")
    disk.damage(path_of(1, "data"), int(entries["offset"][1]) + 31, b"\xff")
    before = disk.files()
    findings: list[RecordDamage] = []
    again = topic_files(disk, findings=findings)
    segments = again.load(*topic.position)
    found, _ = read_live(again, segments)
    assert found == {seq: data for seq, data in all_of(topic).items() if seq != 2}
    assert {(finding.seq, finding.repaired) for finding in findings} == {(2, False)}
    assert seqs_with(again.index(segments[0]), 1, IndexFlag.DAMAGED) == [2]
    assert disk.files() == before


def test_deletes_survive_an_index_that_is_read_again_from_the_data() -> None:
    disk, topic = written()
    topic.delete(2, 3)
    disk.truncate_file(path_of(1, "idx"), 0)
    again = topic_files(disk)
    found, findings = read_live(again, again.load(*topic.position))
    assert set(found) == set(topic.sent) - {2, 3}
    assert not findings


def test_index_and_data_both_cut_are_refused() -> None:
    disk, topic = written()
    disk.truncate_file(path_of(1, "idx"), 30)
    disk.truncate_file(path_of(1, "data"), 100)
    with pytest.raises(DamageError, match="byte"):
        topic_files(disk).load(*topic.position)


def test_two_segments_with_the_same_seq_are_refused() -> None:
    disk, topic = written()
    data, entries = encoded(3, some(3, 1))
    disk.write_file(path_of(3, "data"), data)
    disk.write_file(path_of(3, "idx"), entries.tobytes())
    with pytest.raises(DamageError, match="seq 3 is in two segments"):
        topic_files(disk).load(*topic.position)


def test_a_sealed_segment_beyond_the_checkpoint_inside_is_refused() -> None:
    disk, _ = written(4)
    with pytest.raises(DamageError, match="last checkpoint ended at 3"):
        topic_files(disk).load(3)


def test_names_that_are_not_ours_are_left_alone() -> None:
    disk, topic = written()
    disk.write_file(DIRECTORY / "notes.txt", b"mine")
    again = topic_files(disk)
    again.load(*topic.position)
    assert disk.files()[DIRECTORY / "notes.txt"] == b"mine"


def test_loading_twice_or_three_times_changes_nothing() -> None:
    disk, topic = written(2)
    position = topic.position
    topic.append(6)
    topic_files(disk).load(*position)
    once = disk.files()
    first = topic_files(disk).load(*position)
    assert topic_files(disk).load(*position) == first
    assert disk.files() == once


def test_a_read_only_look_cuts_and_mends_nothing() -> None:
    disk, topic = written(2)
    position = topic.position
    topic.append(6)
    disk.settle()
    before = disk.files()
    reader = TopicFiles(disk, DIRECTORY, SMALL, read_only=True)
    segments = reader.load(*position)
    assert set(read_live(reader, segments)[0]) == {1, 2}
    disk.damage(path_of(1, "idx"), 3, b"\xff")
    before = disk.files()
    assert set(read_live(reader, reader.load(*position))[0]) == {1, 2}
    assert disk.files() == before


def test_a_read_only_look_reads_past_what_is_unfinished_and_asks_to_wait_for_a_swap() -> None:
    disk, topic = written()
    for suffix in ("data.new", "idx.new", "cold", "idx.tmp"):
        disk.write_file(path_of(1, suffix), b"")
    disk.write_file(path_of(5, "dropped"), b"")
    reader = TopicFiles(disk, DIRECTORY, SMALL, read_only=True)
    before = disk.files()
    assert set(read_live(reader, reader.load(*topic.position))[0]) == {1, 2, 3, 4, 9, 10}
    assert disk.files() == before
    disk.unlink(path_of(1, "data.new"))
    with pytest.raises(UnavailableError, match="try again"):
        reader.load(*topic.position)


class MovedUnderneath(FakeDisk):
    """A disk whose files are changed by somebody else the first time one of them is opened."""

    change: Callable[[], None] | None = None

    def open(self, path: PurePath, mode: OpenMode) -> FakeFile:
        change, self.change = self.change, None
        if change is not None:
            change()
        return super().open(path, mode)


def test_a_read_only_look_finds_a_segment_that_moves_or_goes_at_that_moment() -> None:
    disk = MovedUnderneath([TOPICS])
    cold = LocalSegmentStore(disk, PurePosixPath("/data/cold"))
    topic = Written(topic_files(disk, cold=cold))
    topic.append(10)
    reader = TopicFiles(disk, DIRECTORY, SMALL, cold=cold, read_only=True)

    def relocate() -> None:
        topic.files.copy_to_cold(topic.segments[0])
        topic.put(topic.files.drop_hot(topic.segments[0]))

    def drop() -> None:
        topic.files.drop(topic.segments[0])

    disk.change = relocate
    segments = reader.load(*topic.position)
    assert [(each.first_seq, each.is_cold) for each in segments] == [
        (1, True),
        (5, False),
        (9, False),
    ]
    disk.change = drop
    assert [each.first_seq for each in reader.load(*topic.position)] == [5, 9]
