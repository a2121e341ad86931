"""The cold tier in a local directory: stores, relocation, reading what was moved."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy
import pytest

from headwater.core.errors import (
    DamageError,
    InvariantError,
    RequestError,
    StorageError,
    UnavailableError,
)
from headwater.disk import Buffer
from headwater.format.segment import SegmentPart
from headwater.store.cold_tier import ObjectColdTier, open_cold_tier
from headwater.store.pair import RecordDamage, good_positions
from headwater.store.segment import SegmentChangedError, Tier
from headwater.store.segment_stores import LocalColdTier, LocalSegmentStore, SegmentStore
from headwater.testing import DROPS, FakeDisk
from tests.unit.store.records import DIRECTORY, TOPICS, Written, read_live, topic_files
from tests.unit.store.store_promises import check_store

COLD = PurePosixPath("/cold")


def written(cold: SegmentStore | None = None) -> tuple[FakeDisk, Written, SegmentStore]:
    disk = FakeDisk([TOPICS, COLD])
    store: SegmentStore = cold or LocalColdTier(disk, COLD).topic(7)
    topic = Written(topic_files(disk, cold=store))
    topic.append(10)
    return disk, topic, store


def move(topic: Written, position: int) -> None:
    segment = topic.segments[position]
    topic.files.copy_to_cold(segment)
    topic.put(topic.files.drop_hot(segment))


def live_of(topic: Written) -> dict[int, bytes]:
    return {seq: sent.data for seq, sent in topic.sent.items() if seq not in topic.deleted}


@pytest.mark.claims(285, 286, 287, 288)
def test_a_local_store_keeps_the_promises_of_every_store() -> None:
    disk = FakeDisk([COLD])
    check_store(LocalSegmentStore(disk, COLD / "topics" / "00000007"))


def test_a_put_is_durable_when_it_returns() -> None:
    disk = FakeDisk([COLD])
    LocalColdTier(disk, COLD).topic(7).put(5, b"data", b"idx")
    store = LocalColdTier(disk.after_power_loss(), COLD).topic(7)
    assert store.list() == [5]
    assert store.read_range(5, SegmentPart.DATA, 0, 4) == b"data"


@pytest.mark.crash
def test_new_data_never_stands_beside_the_index_of_old_data() -> None:
    disk = FakeDisk([COLD])
    LocalColdTier(disk, COLD).topic(7).put(5, b"data", b"idx")
    disk.settle()
    LocalColdTier(disk, COLD).topic(7).put(5, b"atad", b"xdi")
    for state in disk.crash_states(plan=DROPS):
        store = LocalColdTier(state, COLD).topic(7)
        if store.exists(5, SegmentPart.IDX):
            both = (
                store.read_range(5, SegmentPart.DATA, 0, 4),
                store.read_range(5, SegmentPart.IDX, 0, 3),
            )
            assert both in ((b"data", b"idx"), (b"atad", b"xdi")), state.label


@pytest.mark.claims(285, 291)
def test_a_moved_segment_keeps_its_name_in_a_mirrored_layout() -> None:
    disk, topic, _ = written()
    before = disk.files()
    move(topic, 0)
    after = disk.files()
    for suffix in ("data", "idx"):
        name = f"seg-0000000000000001.{suffix}"
        assert after[COLD / "topics" / "00000007" / name] == before[DIRECTORY / name]
    assert not any(path.name == "seg-0000000000000001.data" for path in hot_files(disk))


def hot_files(disk: FakeDisk) -> list[PurePosixPath]:
    return [PurePosixPath(path) for path in disk.files() if path.parent == DIRECTORY]


@pytest.mark.claims(288, 291)
def test_a_moved_segment_reads_as_before_also_after_a_start() -> None:
    disk, topic, store = written()
    move(topic, 0)
    move(topic, 1)
    assert [each.tier for each in topic.segments] == [Tier.COLD, Tier.COLD, Tier.HOT]
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])
    again = topic_files(disk, cold=store)
    segments = again.load(*topic.position)
    assert [each.tier for each in segments] == [Tier.COLD, Tier.COLD, Tier.HOT]
    assert read_live(again, segments) == (live_of(topic), [])


@pytest.mark.claims(288)
def test_the_hot_copy_is_used_while_both_are_there() -> None:
    _, topic, store = written()
    segment = topic.segments[0]
    tier = topic.files.tier
    assert tier.resolve(1) is Tier.HOT
    topic.files.copy_to_cold(segment)
    assert store.exists(1, SegmentPart.DATA)
    assert tier.resolve(1) is Tier.HOT
    topic.files.drop_hot(segment)
    assert tier.resolve(1) is Tier.COLD
    assert tier.resolve(77) is None


def test_a_reader_of_the_hot_segment_goes_on_in_the_cold_one() -> None:
    _, topic, _ = written()
    before = list(topic.segments)
    entries = topic.files.index(before[0])
    move(topic, 0)
    stored = topic.files.read(before[0], 1, 4, entries)
    assert len(stored.buffer) == before[0].data_bytes


@pytest.mark.claims(284)
def test_without_a_cold_tier_nothing_can_move() -> None:
    disk = FakeDisk([TOPICS])
    topic = Written(topic_files(disk))
    topic.append(4)
    with pytest.raises(InvariantError):
        topic.files.copy_to_cold(topic.segments[0])
    with pytest.raises(InvariantError):
        topic.files.drop_hot(topic.segments[0])
    assert topic.files.tier.orphans() == []


def test_a_cold_segment_without_its_cold_tier_says_what_to_do() -> None:
    disk, topic, _ = written()
    move(topic, 0)
    again = topic_files(disk)
    segments = again.load(*topic.position)
    entries = again.index(segments[0])
    with pytest.raises(StorageError, match="name the cold"):
        again.read(segments[0], 1, 4, entries)
    assert set(read_live(again, segments[1:])[0]) == set(range(5, 11))


@pytest.mark.claims(263)
def test_the_active_segment_is_never_moved() -> None:
    _, topic, _ = written()
    with pytest.raises(InvariantError):
        topic.files.copy_to_cold(topic.segments[-1])


def test_deletes_in_a_cold_segment_need_no_cold_store_and_stay() -> None:
    disk, topic, store = written()
    move(topic, 0)
    in_cold = {path: data for path, data in disk.files().items() if path.is_relative_to(COLD)}
    topic.delete(2, 3)
    assert in_cold.items() <= disk.files().items()
    again = topic_files(disk, cold=store)
    assert read_live(again, again.load(*topic.position)) == (live_of(topic), [])


def test_a_rewritten_cold_segment_comes_back_hot_and_its_cold_copy_goes() -> None:
    disk, topic, store = written()
    move(topic, 0)
    topic.delete(2, 3)
    old = topic.segments[0]
    entries = topic.files.index(old)
    segment, _ = topic.files.rewrite(old, entries)
    topic.put(segment)
    assert segment.tier is Tier.HOT
    assert list(store.list()) == []
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])
    with pytest.raises(SegmentChangedError):
        topic.files.read(old, 1, 4, entries)
    again = topic_files(disk, cold=store)
    assert read_live(again, again.load(*topic.position)) == (live_of(topic), [])
    move(topic, 0)
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])


def test_a_dropped_cold_segment_is_gone_from_both_tiers() -> None:
    disk, topic, store = written()
    move(topic, 0)
    topic.files.drop(topic.segments[0])
    assert list(store.list()) == []
    assert not any("0000000000000001" in path.name for path in disk.files())


def test_every_flipped_bit_of_a_cold_index_is_mended_and_brings_no_delete_back() -> None:
    disk, topic, store = written()
    topic.delete(1)
    move(topic, 0)
    topic.delete(2, 4)
    path = DIRECTORY / "seg-0000000000000001.cold"
    whole = disk.files()[path]
    for bit in range(len(whole) * 8):
        disk.damage(path, bit // 8, bytes([whole[bit // 8] ^ 1 << bit % 8]))
        findings: list[RecordDamage] = []
        again = topic_files(disk, cold=store, findings=findings)
        assert read_live(again, again.load(*topic.position)) == (live_of(topic), [])
        seq = 1 + bit // 8 // 20
        assert [(each.seq, each.repaired) for each in findings] == [(seq, True)] * (seq < 5)
        if seq == 5:
            disk.write_file(path, whole)
        assert disk.files()[path] == whole


def test_a_cold_entry_that_cannot_be_settled_is_told_and_not_served() -> None:
    disk, topic, store = written()
    move(topic, 0)
    topic.delete(2)
    disk.damage(DIRECTORY / "seg-0000000000000001.cold", 20, bytes(20))
    findings: list[RecordDamage] = []
    again = topic_files(disk, cold=store, findings=findings)
    segments = again.load(*topic.position)
    assert read_live(again, segments) == (live_of(topic), [])
    assert [(each.seq, each.repaired) for each in findings] == [(2, False)]
    again.flag_deleted(segments[0], again.index(segments[0])[1:3], numpy.array([2, 3]))
    topic.deleted.add(3)
    assert read_live(again, segments) == (live_of(topic), [])


def test_a_cold_index_that_lost_entries_is_refused_with_file_and_offset() -> None:
    disk, topic, store = written()
    move(topic, 0)
    path = DIRECTORY / "seg-0000000000000001.cold"
    whole = disk.files()[path]
    for length in range(len(whole)):
        disk.write_file(path, whole[:length])
        again = topic_files(disk, cold=store)
        with pytest.raises(DamageError) as caught:
            read_live(again, again.load(*topic.position))
        assert caught.value.path == path


def test_a_cold_copy_nothing_points_to_can_be_found() -> None:
    _, topic, store = written()
    topic.files.copy_to_cold(topic.segments[0])
    assert topic.files.tier.orphans() == [1]
    move(topic, 1)
    assert topic.files.tier.orphans() == [1]
    assert list(store.list()) == [1, 5]


class FlakyStore:
    """A store that answers wrongly or not at all when told to."""

    def __init__(self, inner: SegmentStore) -> None:
        self.inner = inner
        self.down = False
        self.lies = False

    def put(self, first_seq: int, data: Buffer, idx: Buffer) -> None:
        self._ask()
        self.inner.put(first_seq, bytes(data)[:-1] + b"?" if self.lies else data, idx)

    def read_range(self, first_seq: int, part: SegmentPart, offset: int, length: int) -> bytes:
        self._ask()
        return self.inner.read_range(first_seq, part, offset, length)

    def delete(self, first_seq: int) -> None:
        self._ask()
        self.inner.delete(first_seq)

    def list(self) -> Sequence[int]:
        self._ask()
        return self.inner.list()

    def exists(self, first_seq: int, part: SegmentPart) -> bool:
        self._ask()
        return self.inner.exists(first_seq, part)

    def len(self, first_seq: int, part: SegmentPart) -> int:
        self._ask()
        return self.inner.len(first_seq, part)

    def _ask(self) -> None:
        if self.down:
            raise UnavailableError("the cold store is away")


@pytest.mark.claims(291)
def test_a_copy_that_reads_back_differently_is_refused_and_the_hot_one_kept() -> None:
    disk = FakeDisk([TOPICS, COLD])
    store = FlakyStore(LocalColdTier(disk, COLD).topic(7))
    topic = Written(topic_files(disk, cold=store))
    topic.append(4)
    store.lies = True
    with pytest.raises(StorageError, match="reads back differently"):
        topic.files.copy_to_cold(topic.segments[0])
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])
    store.lies = False
    move(topic, 0)
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])


@pytest.mark.claims(291)
def test_moving_again_what_is_already_moved_is_harmless() -> None:
    disk = FakeDisk([TOPICS, COLD])
    store = FlakyStore(LocalColdTier(disk, COLD).topic(7))
    topic = Written(topic_files(disk, cold=store))
    topic.append(4)
    for _ in range(3):
        topic.files.copy_to_cold(topic.segments[0])
    for _ in range(3):
        topic.put(topic.files.drop_hot(topic.segments[0]))
    assert read_live(topic.files, topic.segments) == (live_of(topic), [])


def test_a_drop_waits_for_a_cold_store_that_is_away_and_is_finished_later() -> None:
    disk = FakeDisk([TOPICS, COLD])
    store = FlakyStore(LocalColdTier(disk, COLD).topic(7))
    topic = Written(topic_files(disk, cold=store))
    topic.append(10)
    move(topic, 0)
    store.down = True
    with pytest.raises(UnavailableError):
        topic.files.drop(topic.segments[0])
    again = topic_files(disk, cold=store)
    assert [each.first_seq for each in again.load(*topic.position)] == [5, 9]
    store.down = False
    assert list(store.list()) == [1]
    topic_files(disk, cold=store).load(*topic.position)
    assert list(store.list()) == []
    assert not any("0000000000000001" in path.name for path in disk.files())


def test_a_cold_object_that_is_gone_or_short_is_told() -> None:
    disk, topic, store = written()
    move(topic, 0)
    entries = topic.files.index(topic.segments[0])
    disk.truncate_file(COLD / "topics" / "00000007" / "seg-0000000000000001.data", 10)
    found = topic.files.read(topic.segments[0], 1, 4, entries)
    good, findings = good_positions(found, entries, 1)
    assert not good.any()
    assert {finding.reason for finding in findings} == {"the frame is not in the file"}
    store.delete(1)
    with pytest.raises(DamageError):
        topic.files.read(topic.segments[0], 1, 4, entries)


@pytest.mark.claims(284, 295)
def test_a_place_names_a_directory_or_an_object_store() -> None:
    disk = FakeDisk()
    assert isinstance(open_cold_tier(disk, "/somewhere/else"), LocalColdTier)
    assert disk.after_power_loss().is_directory(PurePosixPath("/somewhere/else"))
    with pytest.raises(RequestError, match="s3://"):
        open_cold_tier(FakeDisk(), "ftp://host/path")
    with pytest.raises(RequestError, match="s3://"):
        ObjectColdTier("/somewhere")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    with pytest.raises(RequestError, match=r"headwater\[s3\]"):
        open_cold_tier(FakeDisk(), "s3://bucket/prefix")
