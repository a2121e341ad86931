"""Snapshots, the files of a data directory, and coming back from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.core.errors import DamageError
from headwater.format.control_frames import (
    RecordsDeleted,
    decode_body,
    decode_checkpoint_mark,
    decode_evict_watermark,
)
from headwater.format.frame import FrameType
from headwater.format.snapshot import decode_snapshot
from tests.unit.engine.conftest import SMALL, Open
from tests.unit.engine.engine_files import frames_in_log, killed


def newest_snapshot(directory: Path) -> Path:
    return sorted((directory / "meta").glob("snapshot-*.bin"))[-1]


@pytest.mark.claims(297, 303)
def test_a_snapshot_has_names_settings_floors_epochs_and_no_tags(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.create("a", cap_records=2)
    db.append("a", [{"data": n, "tag": "secret-tag"} for n in range(4)])
    db.delete("a", before_seq=4)
    db.create("gone")
    db.drop("gone")
    db.checkpoint()
    contents = newest_snapshot(tmp_path / "data").read_bytes()
    snapshot = decode_snapshot(contents)
    (meta,) = snapshot.topics
    assert (meta.name, meta.settings["cap_records"], meta.head_seq) == ("a", 2, 4)
    assert (meta.evict_floor, meta.earliest_seq, meta.delete_below) == (3, 4, 4)
    assert snapshot.next_topic_id == 3
    assert snapshot.epochs == {"gone": 1}
    assert snapshot.shards[0].covered_frame > 0
    assert b"secret-tag" not in contents


@pytest.mark.claims(299, 300)
def test_snapshots_are_due_after_64_mib_of_log_or_60_seconds() -> None:
    settings = replace(SMALL)
    assert settings.snapshot_wal_bytes == 64 * 1024 * 1024
    assert settings.snapshot_interval_ms == 60_000


@pytest.mark.claims(301, 306)
def test_the_newest_snapshot_and_the_one_before_are_kept(opened: Open, tmp_path: Path) -> None:
    db = opened()
    for number in range(4):
        db.append("a", {"data": number})
        db.checkpoint()
    names = sorted(path.name for path in (tmp_path / "data" / "meta").iterdir())
    assert names == ["snapshot-0000000000000003.bin", "snapshot-0000000000000004.bin"]


@pytest.mark.claims(302, 312)
def test_a_damaged_newest_snapshot_falls_back_to_the_one_before_and_loses_nothing(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    for number in range(3):
        db.append("a", {"data": number})
        db.checkpoint()
    copy = killed(db, tmp_path / "killed")
    path = newest_snapshot(copy)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    again = opened(copy)
    assert [record.data for record in again.diff("a").records] == [0, 1, 2]
    assert again.engine.notes.snapshots_unreadable


@pytest.mark.claims(302)
def test_no_readable_snapshot_at_all_is_refused(opened: Open, tmp_path: Path) -> None:
    db = opened()
    db.append("a", {"data": 1})
    db.checkpoint()
    copy = killed(db, tmp_path / "killed")
    for path in (copy / "meta").iterdir():
        path.write_bytes(b"garbage that is long enough to be looked at")
    with pytest.raises(DamageError, match="no snapshot can be read"):
        opened(copy)


@pytest.mark.claims(305, 307, 308, 309, 310)
def test_the_files_of_a_directory_have_the_names_of_the_layout(
    opened: Open, tmp_path: Path
) -> None:
    db = opened(wal=replace(SMALL.wal, shards=2))
    db.append("some:topic", [{"data": n} for n in range(25)])
    db.checkpoint()
    data = tmp_path / "data"
    assert {path.name for path in (data / "wal").iterdir()} == {"shard-00", "shard-01"}
    for shard in (data / "wal").iterdir():
        assert {path.name for path in shard.iterdir()} >= {"CURRENT", "wal-0000000000000001.log"}
    (topic,) = (data / "topics").iterdir()
    assert topic.name == "00000001"
    assert sorted(path.name for path in topic.iterdir() if path.suffix == ".data") == [
        "seg-0000000000000001.data",
        "seg-0000000000000011.data",
        "seg-0000000000000021.data",
    ]


@pytest.mark.claims(239, 242, 273)
def test_a_checkpoint_mark_tells_how_far_each_topic_is_absorbed_and_its_floors(
    opened: Open,
) -> None:
    db = opened()
    db.create("a", cap_records=3)
    db.append("a", [{"data": n} for n in range(5)])
    db.engine.core.owner.call(lambda: list(db.engine.topics.persist_floors()))
    db.checkpoint()
    frames = frames_in_log(db)
    (floor,) = [f for f in frames if f.type is FrameType.EVICT_WATERMARK]
    assert decode_evict_watermark(floor)[:2] == (3, 3)
    (mark,) = [f for f in frames if f.type is FrameType.CHECKPOINT_MARK]
    (entry,) = decode_checkpoint_mark(mark)
    assert (entry.checkpointed_seq, entry.evict_floor, entry.earliest_seq) == (5, 3, 3)
    assert entry.active_first_seq == 3
    assert entry.active_data_bytes > 0


@pytest.mark.claims(148, 278, 318)
def test_a_delete_is_one_frame_with_its_predicate_and_replays_to_the_same_set(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.append("a", [{"data": n, "tag": f"t{n % 2}"} for n in range(6)])
    db.delete("a", match="t1")
    (frame,) = [f for f in frames_in_log(db) if f.type is FrameType.DELETE]
    body = decode_body(frame, RecordsDeleted)
    assert (body.match, body.upto_seq) == ("t1", 6)
    again = opened(killed(db, tmp_path / "killed"))
    found = again.diff("a")
    assert [record.data for record in found.records] == [0, 2, 4]
    assert found.tombstone is None
    assert again.state("a").evict_floor == 1


@pytest.mark.claims(144)
def test_records_in_the_log_carry_the_number_of_their_topic_and_never_its_name(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.create("a-name-to-look-for")
    before = len(frames_in_log(db))
    db.append("a-name-to-look-for", {"data": 1})
    (frame,) = frames_in_log(db)[before:]
    assert (frame.type, frame.topic_id) == (FrameType.APPEND, 1)
    assert b"a-name-to-look-for" not in frame.node + frame.tag + frame.data
