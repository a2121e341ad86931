"""What goes wrong with one topic's files, or with the cold store, stays there.

Space of other topics is still given back, snapshots are still taken, and what could not be done is
tried again until it can.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import PurePath

import pytest

from headwater.core.errors import HeadwaterError
from headwater.format.segment import topic_directory_name
from headwater.format.snapshot import META_DIRECTORY
from headwater.testing import Fault, FaultDisk, Verb
from tests.rig.life import COLD, DATA, SMALL, Life, new_disk
from tests.rig.scripts import AT_ONCE, records

FIRST = "seg-0000000000000001.data"


def cold_files(life: Life) -> list[PurePath]:
    return [path for path in life.fake.files() if path.is_relative_to(COLD)]


def snapshots(life: Life) -> set[str]:
    return {path.name for path in life.fake.files() if path.parent == DATA / META_DIRECTORY}


def life_with_cold_records(*names: str) -> tuple[Life, Fault]:
    """These topics have segments in a cold store that can be cut off."""
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    for name in names:
        for _ in range(4):
            life.append(name, [*records(3), *records(2, "x")])
    life.checkpoint()
    life.reclaim()
    for name in names:
        assert any(segment.is_cold for segment in life.db.engine.topic(name).segments)
    away = disk.add(Fault(number=errno.EIO, path=f"{COLD}/*", always=True))
    return life, away


def test_a_damaged_segment_keeps_no_other_topic_from_giving_space_back() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    for name in ("damaged", "sound"):
        life.append(name, [*records(1), *records(4, "x", size=50)])
        life.append(name, [*records(1), *records(4, "x", size=50)])
    life.checkpoint()
    damaged, sound = (DATA / "topics" / topic_directory_name(n) / FIRST for n in (1, 2))
    life.fake.damage(damaged, 20, b"\xff\xff")
    before = len(life.fake.files()[sound])
    for name in ("damaged", "sound"):
        life.delete(name, match="x")
    life.db.checkpoint()
    with pytest.raises(HeadwaterError, match="damaged"):
        life.reclaim()
    assert len(life.fake.files()[sound]) < before


def test_a_snapshot_is_taken_though_the_cold_part_of_a_dropped_topic_cannot_go() -> None:
    life, away = life_with_cold_records("a")
    life.append("b", records(3))
    life.drop("a")
    before = snapshots(life)
    life.checkpoint()
    assert snapshots(life) != before
    with pytest.raises(HeadwaterError):
        life.reclaim()
    assert cold_files(life)
    away.enabled = False
    life.reclaim()
    assert not cold_files(life)
    life.check()


def test_a_start_does_not_need_the_cold_store_for_a_topic_that_was_dropped() -> None:
    life, away = life_with_cold_records("a", "b")
    life.drop("a")
    life.close()
    life._open()
    with pytest.raises(HeadwaterError):
        life.reclaim()
    away.enabled = False
    life.reclaim()
    assert not [path for path in cold_files(life) if topic_directory_name(1) in path.parts]
    assert cold_files(life)
    life.check()


def test_a_move_to_the_cold_store_that_failed_is_made_when_the_store_is_back() -> None:
    life, away = life_with_cold_records("a")
    for _ in range(3):
        life.append("a", records(5))
    life.checkpoint()
    topic = life.db.engine.topic("a")
    assert topic.active_segment is None
    with pytest.raises(HeadwaterError):
        life.reclaim()
    hot = [segment for segment in topic.segments if not segment.is_cold]
    assert len(hot) > SMALL.segments.hot_retain_segments
    away.enabled = False
    life.reclaim()
    hot = [segment for segment in topic.segments if not segment.is_cold]
    assert len(hot) == SMALL.segments.hot_retain_segments
    life.check()


def test_deleted_records_leave_the_cold_store_when_it_is_back() -> None:
    life, away = life_with_cold_records("a")
    life.delete("a", before_seq=11)
    life.checkpoint()
    with pytest.raises(HeadwaterError):
        life.reclaim()
    before = len(cold_files(life))
    away.enabled = False
    life.reclaim()
    assert len(cold_files(life)) < before
    life.check()


def test_a_store_that_does_not_answer_is_asked_once_a_round() -> None:
    names = [f"t{number}" for number in range(8)]
    life, away = life_with_cold_records(*names)
    for name in names:
        for _ in range(3):
            life.append(name, records(5))
    life.checkpoint()
    with pytest.raises(HeadwaterError):
        life.reclaim()
    assert away.struck <= 2


def test_no_map_is_kept_of_files_that_are_gone() -> None:
    """A mapped file keeps its space on the disk, and a descriptor, also without a name."""
    life = Life(new_disk(), settings=replace(AT_ONCE, cache_bytes=0))
    for name in ("dropped", "rewritten", "kept"):
        for _ in range(2):
            life.append(name, [*records(1), *records(4, "x", size=50)])
    life.checkpoint()
    life.check()
    maps = life.db.engine.core.maps
    assert len(maps) == 6
    life.drop("dropped")
    life.delete("rewritten", match="x")
    life.checkpoint()
    life.reclaim()
    assert len(maps) == 2
    life.check()


def test_a_topic_whose_files_cannot_be_written_keeps_no_others_in_memory() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    for name in ("short", "sound"):
        life.append(name, [*records(1), *records(4, "x")])
    life.checkpoint()
    life.fake.truncate_file(DATA / "topics" / topic_directory_name(1) / FIRST, 10)
    life.delete("short", match="x")
    for name in ("short", "sound"):
        life.append(name, records(5))
    before = snapshots(life)
    with pytest.raises(HeadwaterError, match="missing"):
        life.db.checkpoint()
    short, sound = (life.db.engine.topic(name) for name in ("short", "sound"))
    assert (short.checkpointed_seq, sound.checkpointed_seq) == (5, 10)
    assert (short.tail_bytes > 0, sound.tail_bytes) == (True, 0)
    assert snapshots(life) == before  # the log must keep what the one topic has only there
    assert [record.seq for record in life.db.diff("short", 5).records] == list(range(6, 11))


def test_a_start_does_not_need_the_cold_store_for_deletes_by_tag() -> None:
    life, away = life_with_cold_records("a")
    life.delete("a", match="x")
    life.delete("a", match="nothing has this")
    life.append("a", records(1, "x"))
    life.delete("a", match="x")
    life.append("a", records(1, "x"))
    life.abandon()
    life._open()
    away.enabled = False
    life.check()
    assert [record.seq for record in life.db.diff("a", match="x").records] == [22]


def test_closing_does_not_wait_for_all_segments_that_are_to_move() -> None:
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    for _ in range(8):
        life.append("a", records(5))
    life.checkpoint()
    core = life.db.engine.core

    def begin_closing() -> None:
        core.closing = True

    disk.add(Fault(Verb.CREATE, None, path=f"{COLD}/*", before=begin_closing))
    life.reclaim()
    assert sum(segment.is_cold for segment in life.db.engine.topic("a").segments) == 1
    core.closing = False
    life.close()
    life.reopen()
    life.reclaim()
    assert sum(segment.is_cold for segment in life.db.engine.topic("a").segments) == 7
    life.check()


def test_a_clean_stop_leaves_nothing_of_a_dropped_topic() -> None:
    life = Life(new_disk())
    for _ in range(4):
        life.append("a", records(5))
    life.checkpoint()
    life.reclaim()
    life.drop("a")
    life.close()
    assert not cold_files(life)
    assert not [path for path in life.fake.files() if path.is_relative_to(DATA / "topics")]


def test_a_damaged_destination_stops_no_router_beside_its_own() -> None:
    life = Life(new_disk(), settings=AT_ONCE)
    life.db.create("source")
    for dest in ("damaged", "sound"):
        life.db.put_router(f"to-{dest}", source="source", dest=dest, guarantee="exactly_once")
    life.db.append("source", records(1))
    life.db.engine.copy_rounds.run_dry()
    life.db.close()
    damaged = life.db.engine.topic("damaged").topic_id
    life.fake.truncate_file(DATA / "topics" / topic_directory_name(damaged) / FIRST, 10)
    life._open()
    life.db.append("source", records(2))
    copy_rounds = life.db.engine.copy_rounds
    copy_rounds.run_dry()
    assert life.db.state("sound").head_seq == 3
    assert [life.db.router(f"to-{dest}").held for dest in ("damaged", "sound")] == [True, False]
    assert copy_rounds.failures.keys() == {"to-damaged"}
    assert "restore a backup" in copy_rounds.failures["to-damaged"]
