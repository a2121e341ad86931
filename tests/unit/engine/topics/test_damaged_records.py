"""A record whose bytes are wrong is told of, with its place, and never simply left out (I6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.core.errors import DamageError
from headwater.core.records import Record
from headwater.core.results import Diff, Tombstone
from headwater.engine.routers import copy_rounds
from headwater.format.segment import SegmentFile
from tests.rig.damage import (
    damage_entries,
    damage_records,
    flip_bit,
    frame_place,
    segment_path,
)
from tests.unit.engine.conftest import Open

RECORDS = 35


def filled(db: headwater.Database) -> headwater.Database:
    """Three sealed segments of ten records, and an active one."""
    db.append("a", [{"data": n, "tag": f"t{n % 3}"} for n in range(1, RECORDS + 1)])
    db.checkpoint()
    return db


def directory_of(db: headwater.Database) -> Path:
    return Path(str(db.engine.core.directory))


def topic_id(db: headwater.Database) -> int:
    return db.engine.topic("a").topic_id


def read_on(
    db: headwater.Database, topic: str = "a", **options: Any
) -> tuple[list[int], list[Tombstone]]:
    """Everything a reader is given who follows its cursor."""
    seqs: list[int] = []
    gaps: list[Tombstone] = []
    cursor = 0
    for _ in range(RECORDS + 2):
        page: Diff = db.diff(topic, cursor, **options)
        if page.tombstone is not None:
            gaps.append(page.tombstone)
            assert page.tombstone.gap_from > cursor
        seqs += [record.seq for record in page.records]
        cursor = page.next_from_seq
        if page.caught_up:
            return seqs, gaps
    raise AssertionError("the reader never came to the end")


def ranges(gaps: list[Tombstone]) -> list[tuple[int, int, str]]:
    return [(gap.gap_from, gap.gap_to, gap.reason) for gap in gaps]


@pytest.mark.parametrize("at", [0.0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("again", [False, True])
def test_a_flipped_bit_in_a_sealed_frame_is_a_tombstone_with_its_exact_range(
    opened: Open, at: float, again: bool
) -> None:
    db = filled(opened(cache_bytes=0))
    data, number = directory_of(db), topic_id(db)
    if again:
        db.close()
    damage_records(data, number, [14], at)
    if again:
        db = opened(cache_bytes=0)
    seqs, gaps = read_on(db)
    assert ranges(gaps) == [(14, 14, "damaged")]
    assert gaps[0].missed_estimate == 1
    assert seqs == [n for n in range(1, RECORDS + 1) if n != 14]


def test_each_damaged_stretch_of_a_page_has_its_own_tombstone(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    bad = [1, 5, 6, 7, 20, 21, 22, 35]
    damage_records(directory_of(db), topic_id(db), bad)
    for limit in (1, 2, 100):
        seqs, gaps = read_on(db, limit=limit)
        assert ranges(gaps) == [
            (1, 1, "damaged"),
            (5, 7, "damaged"),
            (20, 22, "damaged"),
            (35, 35, "damaged"),
        ]
        assert seqs == [n for n in range(1, RECORDS + 1) if n not in bad]


def test_what_was_deleted_is_not_told_though_it_lies_in_a_damaged_stretch(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    damage_records(directory_of(db), topic_id(db), [11, 12, 13, 14])
    read_on(db)
    db.delete("a", before_seq=13)
    _, gaps = read_on(db)
    assert ranges(gaps) == [(13, 14, "damaged")]
    db.delete("a", before_seq=16)
    assert read_on(db)[1] == []


def test_damage_is_counted_and_kept_once_however_often_it_is_read(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    damage_records(directory_of(db), topic_id(db), [14])
    path, offset, _ = frame_place(directory_of(db), topic_id(db), 14)
    for _ in range(5):
        read_on(db, limit=3)
    ledger = db.engine.core.damage
    (place,) = ledger.ranges
    assert (place.topic, place.first_seq, place.last_seq) == ("a", 14, 14)
    assert (Path(place.path), place.offset) == (path, offset)
    assert ledger.records == {("a", None): 1}
    assert db.engine.core.counters.bad_frames == 1
    db.drop("a")
    assert not ledger.ranges
    assert not ledger.records


def test_an_index_entry_that_is_damaged_costs_nothing_while_its_frame_is_sound(
    opened: Open,
) -> None:
    db = filled(opened(cache_bytes=0))
    data, number = directory_of(db), topic_id(db)
    db.close()
    damage_entries(data, number, [14])
    db = opened(cache_bytes=0)
    assert read_on(db) == (list(range(1, RECORDS + 1)), [])
    (place,) = db.engine.core.damage.ranges
    assert place.repaired
    assert not db.engine.core.damage.records


def test_an_entry_and_its_frame_both_damaged_are_a_tombstone_after_each_start(
    opened: Open,
) -> None:
    db = filled(opened(cache_bytes=0))
    data, number = directory_of(db), topic_id(db)
    db.close()
    damage_records(data, number, [14])
    damage_entries(data, number, [14])
    for _ in range(2):
        db = opened(cache_bytes=0)
        seqs, gaps = read_on(db)
        # The frames behind it in the segment are found by their own entries.
        assert ranges(gaps) == [(14, 14, "damaged")]
        assert len(seqs) == RECORDS - 1
        db.close()


def test_a_segment_whose_file_went_away_under_the_owner_is_one_tombstone(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    path = segment_path(directory_of(db), topic_id(db), 11)
    db.engine.core.maps.clear()
    path.unlink()
    seqs, gaps = read_on(db)
    assert ranges(gaps) == [(11, 20, "damaged")]
    assert seqs == [*range(1, 11), *range(21, RECORDS + 1)]
    (place,) = db.engine.core.damage.ranges
    assert place.path == str(path)
    assert "missing" in place.reason


def test_a_data_file_that_was_cut_under_the_owner_is_told_from_the_cut_on(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    path, offset, _ = frame_place(directory_of(db), topic_id(db), 17)
    db.engine.core.maps.clear()
    with path.open("r+b") as file:
        file.truncate(offset + 3)
    seqs, gaps = read_on(db)
    assert ranges(gaps) == [(17, 20, "damaged")]
    assert len(seqs) == RECORDS - 4


@pytest.mark.parametrize("kind", [SegmentFile.DATA, SegmentFile.IDX])
def test_a_topic_whose_file_is_missing_at_the_start_is_refused_with_the_file(
    opened: Open, kind: SegmentFile
) -> None:
    db = filled(opened(cache_bytes=0))
    data, number = directory_of(db), topic_id(db)
    db.close()
    path = segment_path(data, number, 11, kind)
    path.unlink()
    db = opened()
    for _ in range(3):
        with pytest.raises(DamageError, match=path.name):
            db.diff("a")
    (place,) = db.engine.core.damage.ranges
    assert Path(place.path) == path
    assert "refused" in place.reason


def test_a_reader_beside_the_owner_is_told_as_well(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    data, number = directory_of(db), topic_id(db)
    damage_records(data, number, [3, 4])
    with headwater.open(data, read_only=True) as beside:
        page = beside.diff("a")
        assert [record.seq for record in page.records] == [1, 2]
        page = beside.diff("a", page.next_from_seq)
        assert page.tombstone is not None
        assert ranges([page.tombstone]) == [(3, 4, "damaged")]
        assert page.records[0].seq == 5
        items = list(beside.watch("a", idle_ms=1))
        assert ranges([item for item in items if isinstance(item, Tombstone)]) == [
            (3, 4, "damaged")
        ]
        assert len(beside.bad_frames) == 2


def test_a_watch_and_a_coroutine_are_told_as_well(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    data, number = directory_of(db), topic_id(db)
    damage_records(data, number, [3, 30])
    items = list(db.watch("a", idle_ms=1))
    gaps = [item for item in items if isinstance(item, Tombstone)]
    assert ranges(gaps) == [(3, 3, "damaged"), (30, 30, "damaged")]
    assert sum(isinstance(item, Record) for item in items) == RECORDS - 2
    db.close()

    async def read() -> Tombstone | None:
        async with await headwater.open_async(data) as later:
            page = await later.diff("a", 2)
            return page.tombstone

    gap = asyncio.run(read())
    assert gap is not None
    assert ranges([gap]) == [(3, 3, "damaged")]


def test_a_filter_that_keeps_nothing_else_is_told_of_damage_all_the_same(opened: Open) -> None:
    """Nobody knows whether what cannot be read would have been kept."""
    db = filled(opened(cache_bytes=0))
    damage_records(directory_of(db), topic_id(db), [14])
    page = db.diff("a", match="nobody")
    while page.tombstone is None and not page.caught_up:
        page = db.diff("a", page.next_from_seq, match="nobody")
    assert page.tombstone is not None
    assert ranges([page.tombstone]) == [(14, 14, "damaged")]


def test_routers_leave_a_lost_place_for_a_damaged_record_and_go_on(opened: Open) -> None:
    db = opened(cache_bytes=0)
    db.create("a")
    bad = [14, 15, 31]
    guarantees = ("exactly_once", "at_least_once")
    for guarantee in guarantees:
        db.put_router(guarantee, source="a", dest=f"copy-{guarantee}", guarantee=guarantee)
    db.engine.copy_rounds.pause()
    filled(db)
    damage_records(directory_of(db), topic_id(db), bad)
    db.engine.copy_rounds.resume()
    db.engine.copy_rounds.run_dry()
    whole = [n for n in range(1, RECORDS + 1) if n not in bad]
    for guarantee in guarantees:
        assert db.router(guarantee).lag == 0
        seqs, gaps = read_on(db, topic=f"copy-{guarantee}")
        assert [(gap.gap_from, gap.gap_to) for gap in gaps] == [(14, 15), (31, 31)]
        assert seqs == whole
    assert db.engine.core.damage.records == {("a", None): 3}


def test_routers_take_a_long_damaged_stretch_in_pieces(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_rounds, "SLOTS_PER_TRIM", 3)
    db = opened(cache_bytes=0)
    db.create("a")
    db.put_router("r", source="a", dest="copy", guarantee="exactly_once")
    db.engine.copy_rounds.pause()
    filled(db)
    damage_records(directory_of(db), topic_id(db), range(9, 20))
    db.engine.copy_rounds.resume()
    db.engine.copy_rounds.run_dry()
    seqs, gaps = read_on(db, topic="copy")
    assert [(gap.gap_from, gap.gap_to) for gap in gaps] == [(9, 19)]
    assert seqs == [*range(1, 9), *range(20, RECORDS + 1)]


def test_flips_in_an_active_segment_are_told_too(opened: Open) -> None:
    db = filled(opened(cache_bytes=0))
    path, offset, size = frame_place(directory_of(db), topic_id(db), 33)
    flip_bit(path, offset + size // 2)
    assert ranges(read_on(db)[1]) == [(33, 33, "damaged")]
