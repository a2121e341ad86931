"""Rewriting, dropping and choosing segments; dropping whole topics."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from headwater.config.store import SegmentSettings
from headwater.core.errors import DamageError, InvariantError
from headwater.format.segment import Entries, IndexFlag, encode_run, index_flags
from headwater.store.maps import SegmentMaps
from headwater.store.pair import good_positions
from headwater.store.reclaim import (
    choose_drops,
    choose_relocations,
    dead_bytes,
    is_rewrite_due,
    list_dropped,
    remove_dropped,
    rename_for_drop,
)
from headwater.store.segment import Segment, SegmentChangedError, Tier
from headwater.store.segment_stores import LocalColdTier
from headwater.testing import FakeDisk
from tests.unit.store.records import (
    DIRECTORY,
    TOPICS,
    TS,
    Written,
    read_live,
    some,
    topic_files,
    wal_slice,
)


def written(count: int = 10, maps: SegmentMaps | None = None) -> tuple[FakeDisk, Written]:
    disk = FakeDisk([TOPICS])
    topic = Written(topic_files(disk, maps=maps))
    topic.append(count, size=100)
    return disk, topic


def live_of(topic: Written) -> dict[int, bytes]:
    return {seq: sent.data for seq, sent in topic.sent.items() if seq not in topic.deleted}


@pytest.mark.claims(280, 282)
def test_a_rewrite_gives_back_the_bytes_of_the_dead_and_keeps_every_live_record() -> None:
    disk, topic = written()
    topic.delete(1, 2, 4)
    old = topic.segments[0]
    segment, entries = topic.files.rewrite(old, topic.files.index(old))
    topic.put(segment)
    assert segment.data_bytes == old.data_bytes - 3 * 100 - 1  # one of the dead had a tag
    assert b"payload 2" not in disk.files()[DIRECTORY / "seg-0000000000000001.data"]
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])
    assert entries.tobytes() == topic.files.index(segment).tobytes()
    again = topic_files(disk)
    assert read_live(again, again.load(*topic.position)) == (live_of(topic), [])
    assert sorted(path.suffix for path in disk.files()) == [".data"] * 3 + [".idx"] * 3


def test_a_rewrite_takes_deletes_that_only_memory_knows() -> None:
    _, topic = written()
    segment = topic.segments[0]
    entries = topic.files.index(segment)
    entries["flags_check"][2] |= numpy.uint32(IndexFlag.DELETED)
    topic.deleted.add(3)
    topic.put(topic.files.rewrite(segment, entries)[0])
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])


def test_a_lost_record_stays_lost_over_a_rewrite() -> None:
    files = topic_files(FakeDisk([TOPICS]))
    lost = int(IndexFlag.DELETED | IndexFlag.LOST)
    data, entries = encode_run(
        [wal_slice(1, some(1, 4))],
        1,
        numpy.array([0, lost, 0x80, 0], numpy.uint8),
        numpy.full(4, TS, numpy.uint64),
    )
    (segment,) = files.append_run(None, 1, data, entries, TS)
    _, entries = files.rewrite(segment, files.index(segment))
    assert index_flags(entries)[1:3].tolist() == [lost, 0x80]


def test_readers_of_the_old_segment_read_the_old_bytes_or_look_again() -> None:
    maps = SegmentMaps()
    _, topic = written(maps=maps)
    topic.delete(1)
    old = topic.segments[0]
    entries = topic.files.index(old)
    topic.put(topic.files.rewrite(old, entries)[0])
    assert set(read_live_with(topic, old, entries)) == {2, 3, 4}
    topic.files.forget(old)
    with pytest.raises(SegmentChangedError):
        read_live_with(topic, old, entries)
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])


def read_live_with(topic: Written, segment: Segment, entries: Entries) -> list[int]:
    stored = topic.files.read(segment, segment.first_seq, segment.end_seq, entries)
    good, findings = good_positions(stored, entries, segment.first_seq)
    assert not findings
    return [segment.first_seq + row for row in numpy.flatnonzero(good).tolist()]


def test_a_segment_with_damage_is_not_rewritten() -> None:
    disk, topic = written()
    topic.delete(1)
    segment = topic.segments[0]
    entries = topic.files.index(segment)
    at = int(entries["offset"][2]) + 40
    disk.damage(DIRECTORY / "seg-0000000000000001.data", at, b"\xff")
    before = disk.files()
    with pytest.raises(DamageError) as caught:
        topic.files.rewrite(segment, entries)
    assert caught.value.offset == entries["offset"][2]
    assert disk.files() == before


def test_only_a_sealed_segment_with_all_its_entries_is_rewritten() -> None:
    _, topic = written()
    active = topic.segments[-1]
    with pytest.raises(InvariantError):
        topic.files.rewrite(active, topic.files.index(active))


def test_a_segment_rewritten_after_it_was_called_active_loads() -> None:
    disk, topic = written(2)
    position = topic.position
    topic.delete(1)
    sealed = topic.files.seal_if_due(topic.segments[0], TS * 2)
    topic.put(topic.files.rewrite(sealed, topic.files.index(sealed))[0])
    again = topic_files(disk)
    segments = again.load(*position)
    assert [each.sealed for each in segments] == [True]
    assert read_live(again, segments) == (live_of(topic), [])


@pytest.mark.claims(262, 274)
def test_dropped_segments_are_gone_and_dropping_again_is_harmless() -> None:
    disk, topic = written()
    topic.files.drop(*topic.segments[:2])
    topic.files.drop(*topic.segments[:2])
    assert {path.stem for path in disk.files()} == {"seg-0000000000000009"}
    again = topic_files(disk)
    assert [each.first_seq for each in again.load(*topic.position)] == [9]


@pytest.mark.claims(262, 272)
def test_only_whole_sealed_segments_below_the_floor_may_go() -> None:
    segments = [Segment(1, 4, 9, True, 0), Segment(5, 4, 9, True, 0), Segment(9, 2, 9, False, 0)]
    for earliest, gone in ((1, []), (4, []), (5, [1]), (8, [1]), (9, [1, 5]), (99, [1, 5])):
        assert [each.first_seq for each in choose_drops(segments, earliest)] == gone


@pytest.mark.claims(279, 280)
def test_a_segment_is_rewritten_when_half_of_its_bytes_are_dead() -> None:
    _, topic = written(4)
    segment = topic.segments[0]
    settings = SegmentSettings()
    due = []
    for seq in (1, 2, 3, 4):
        topic.delete(seq)
        entries = topic.files.index(segment)
        due.append(is_rewrite_due(segment, entries, settings))
    assert due == [False, False, True, True]
    off = SegmentSettings(rewrite_dead_ratio=0)
    assert not is_rewrite_due(segment, topic.files.index(segment), off)
    active = replace(segment, sealed=False)
    assert not is_rewrite_due(active, topic.files.index(segment), settings)


def test_a_rewritten_segment_is_not_due_again() -> None:
    _, topic = written(4)
    topic.delete(1, 2, 3)
    segment, entries = topic.files.rewrite(topic.segments[0], topic.files.index(topic.segments[0]))
    assert dead_bytes(entries) == 0
    assert not is_rewrite_due(segment, entries, SegmentSettings())


@pytest.mark.claims(263, 284, 292, 293)
def test_the_stricter_of_two_bounds_says_what_stays_hot() -> None:
    segments = [
        Segment(1, 9, 10, True, 0, Tier.COLD),
        *(Segment(first, 9, 10, True, 0) for first in range(10, 90, 10)),
        Segment(90, 5, 10, False, 0),
    ]

    def moved(**bounds: int) -> list[int]:
        settings = SegmentSettings(**bounds)
        return [each.first_seq for each in choose_relocations(segments, settings)]

    assert moved() == [10, 20, 30, 40]
    assert moved(hot_retain_segments=6) == [10, 20]
    assert moved(hot_retain_segments=6, hot_retain_bytes=30) == [10, 20, 30, 40, 50]
    assert moved(hot_retain_segments=2, hot_retain_bytes=30) == [10, 20, 30, 40, 50, 60]
    assert moved(hot_retain_segments=0) == [10, 20, 30, 40, 50, 60, 70, 80]
    assert moved(hot_retain_segments=9) == []
    assert SegmentSettings().hot_retain_segments == 4
    assert SegmentSettings().hot_retain_bytes == 0


@pytest.mark.claims(283)
def test_a_dropped_topic_is_renamed_at_once_and_removed_later_in_both_tiers() -> None:
    disk, _ = written()
    cold = LocalColdTier(disk, TOPICS.parent / "cold").topic(7)
    cold.put(1, b"d", b"i")
    assert rename_for_drop(disk, TOPICS, 7)
    assert disk.list_directory(TOPICS) == ["00000007.deleted"]
    assert not rename_for_drop(disk, TOPICS, 7)
    assert list_dropped(disk, TOPICS) == [7]
    remove_dropped(disk, TOPICS, 7, cold)
    remove_dropped(disk, TOPICS, 7, cold)
    assert disk.list_directory(TOPICS) == []
    assert cold.list() == []
    assert list_dropped(disk, TOPICS) == []
    assert list_dropped(disk, TOPICS / "none") == []
