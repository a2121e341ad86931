"""The steps from files back to topics."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.core.errors import DamageError
from tests.unit.engine.conftest import SMALL, Open
from tests.unit.engine.engine_files import killed


def payloads(db: headwater.Database, topic: str = "a") -> list[Any]:
    return [record.data for record in db.diff(topic, limit=1000).records]


def end_of_frames(log: bytearray) -> int:
    """Behind the last frame, whose checksum may end with zeros."""
    end = 0
    while length := int.from_bytes(log[end : end + 4], "little"):
        end += 4 + length
    return end


@pytest.mark.claims(313)
def test_index_files_give_base_and_head_and_tags_come_back(opened: Open, tmp_path: Path) -> None:
    db = opened()
    db.append("a", [{"data": n, "tag": f"t{n % 3}"} for n in range(25)])
    db.delete("a", before_seq=12)
    db.checkpoint()
    again = opened(killed(db, tmp_path / "killed"))
    state = again.state("a")
    assert (state.earliest_seq, state.head_seq, state.count) == (12, 25, 14)
    assert again.delete("a", match="t0").deleted == 5
    assert all(value % 3 for value in payloads(again))


def test_a_topic_that_its_snapshot_tells_everything_of_is_read_when_it_is_used(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    for name in ("idle", "busy"):
        db.append(name, [{"data": n} for n in range(25)])
    db.checkpoint()
    db.append("busy", {"data": "after"})
    again = opened(killed(db, tmp_path / "killed"))
    loaded = {name: again.engine.topic(name).loaded for name in ("idle", "busy")}
    assert loaded == {"idle": False, "busy": True}
    assert payloads(again, "idle") == list(range(25))
    assert payloads(again, "busy") == [*range(25), "after"]
    assert again.append("idle", {"data": "more"}).first_seq == 26


@pytest.mark.claims(311, 314, 317)
def test_every_shard_is_replayed_from_where_the_snapshot_ends(opened: Open, tmp_path: Path) -> None:
    db = opened(wal=replace(SMALL.wal, shards=3))
    for name in ("a", "b", "c", "d"):
        db.append(name, [{"data": n} for n in range(3)])
    db.checkpoint()
    for name in ("a", "b", "c", "d"):
        db.append(name, {"data": "after", "tag": "x"})
    again = opened(killed(db, tmp_path / "killed"), wal=replace(SMALL.wal, shards=3))
    assert again.engine.notes.frames_replayed >= 4
    for name in ("a", "b", "c", "d"):
        assert payloads(again, name) == [0, 1, 2, "after"]
        assert again.delete(name, match="x").deleted == 1


@pytest.mark.claims(315, 316, 319)
def test_a_torn_tail_of_the_log_is_cut_and_what_was_acked_before_it_is_there(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.append("a", [{"data": n} for n in range(3)])
    copy = killed(db, tmp_path / "killed")
    log = copy / "wal" / "wal-0000000000000001.log"
    contents = bytearray(log.read_bytes())
    end = end_of_frames(contents)
    contents[end : end + 100] = b"\xab" * 100
    log.write_bytes(contents)
    again = opened(copy)
    assert payloads(again) == [0, 1, 2]
    assert [f.action.value for f in again.engine.wal_report.findings] == [
        "cut at the last whole group"
    ]
    (torn,) = (copy / "wal" / "quarantine").iterdir()
    assert torn.read_bytes() == b"\xab" * 100


@pytest.mark.claims(320)
def test_segments_below_the_floor_are_dropped_at_the_next_round_and_only_once(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.append("a", [{"data": n} for n in range(40)])
    db.checkpoint()
    db.delete("a", before_seq=25)
    db.checkpoint()
    copy = killed(db, tmp_path / "killed")
    names: list[str] = []
    for _ in range(2):
        again = opened(copy)
        assert payloads(again) == list(range(24, 40))
        again.engine._housekeeping.round()
        names = sorted(path.name for path in (copy / "topics" / "00000001").glob("*.data"))
        again.close()
    assert names == ["seg-0000000000000021.data", "seg-0000000000000031.data"]


@pytest.mark.claims(321)
def test_a_recovered_database_takes_writes_and_checkpoints_again(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.append("a", [{"data": n} for n in range(15)])
    again = opened(killed(db, tmp_path / "killed"))
    assert again.append("a", {"data": "new"}).first_seq == 16
    again.checkpoint()
    assert payloads(again) == [*range(15), "new"]


@pytest.mark.claims(322, 323)
def test_frames_that_segments_already_have_are_replayed_and_skipped(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.append("a", [{"data": n} for n in range(12)])
    db.checkpoint()
    copy = killed(db, tmp_path / "killed")
    for path in sorted((copy / "meta").iterdir()):
        path.unlink()  # as if the crash came before the snapshot: only the mark in the log knows
    again = opened(copy)
    assert payloads(again) == list(range(12))
    assert again.engine.notes.frames_checkpointed >= 12
    assert again.engine.notes.frames_replayed == 0


@pytest.mark.claims(146)
def test_a_bad_sealed_frame_is_reported_and_the_rest_stays_readable(
    opened: Open, tmp_path: Path
) -> None:
    db = opened()
    db.append("a", [{"data": f"payload {n}"} for n in range(25)])
    db.append("b", {"data": "fine"})
    db.checkpoint()
    copy = killed(db, tmp_path / "killed")
    path = copy / "topics" / "00000001" / "seg-0000000000000001.data"
    contents = path.read_bytes()
    at = contents.index(b"payload 4")
    path.write_bytes(contents[:at] + b"PAYLOAD 4" + contents[at + 9 :])
    again = opened(copy)
    found = again.diff("a")
    assert [record.data for record in found.records] == [f"payload {n}" for n in range(4)]
    behind = again.diff("a", found.next_from_seq)
    assert behind.tombstone is not None
    assert (behind.tombstone.gap_from, behind.tombstone.gap_to) == (5, 5)
    assert [record.data for record in behind.records] == [f"payload {n}" for n in range(5, 25)]
    assert payloads(again, "b") == ["fine"]
    (finding,) = again.engine.core.damage.findings
    assert (finding.seq, finding.path.name) == (5, path.name)
    assert again.engine.core.counters.bad_frames == 1


@pytest.mark.claims(225, 229)
def test_a_waiting_reader_is_woken_by_a_write_and_state_needs_no_reading(opened: Open) -> None:
    db = opened()
    db.create("a")
    topic = db.engine.topic("a")
    woken = threading.Event()
    topic.waiters.add(woken.set)
    db.append("a", {"data": 1})
    assert woken.wait(30), "readers are told after the writer was, in another thread"
    reads = db.engine.core.counters.reads
    assert db.state("a").head_seq == 1
    assert db.engine.core.counters.reads == reads


@pytest.mark.claims(302)
def test_a_log_that_begins_after_the_snapshot_ends_is_refused(opened: Open, tmp_path: Path) -> None:
    db = opened()
    for number in range(400):
        db.append("a", {"data": number, "meta": {"pad": "x" * 500}})
        if number % 80 == 0:
            db.checkpoint()
    db.checkpoint()
    db.checkpoint()
    copy = killed(db, tmp_path / "killed")
    names = sorted(path.name for path in (copy / "wal").glob("*.log"))
    assert names[0] != "wal-0000000000000001.log", "the log was trimmed"
    for path in (copy / "meta").iterdir():
        path.unlink()
    with pytest.raises(DamageError, match="snapshot"):
        opened(copy)
