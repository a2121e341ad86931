"""Topics that nobody asks for since a start: the keeper reads those it has work in, no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.errors import DamageError

SMALL = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=64 * 1024),
    segments=SegmentSettings(segment_max_events=5, hot_retain_segments=2),
    checkpoint_interval_ms=3_600_000,
)


def filled(path: Path, counts: dict[str, int]) -> None:
    with headwater.open(path, settings=SMALL) as db:
        for name, count in counts.items():
            db.append(name, [{"data": {"n": n}} for n in range(count)])


def keep_house(db: headwater.Database, rounds: int) -> None:
    for _ in range(rounds):
        db.engine._housekeeping.round()


def loaded(db: headwater.Database) -> set[str]:
    return {topic.name for topic in db.engine.core.registry if topic.loaded}


def test_idle_topics_move_to_a_cold_tier_that_was_added_before_a_start(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", tmp_path / "cold"
    cold.mkdir()
    filled(path, {"long": 30, "short": 5, "other": 30})
    with headwater.open(path, settings=replace(SMALL, cold_url=str(cold))) as db:
        assert not loaded(db)
        keep_house(db, 2)
        assert loaded(db) == {"long", "other"}, "one a round, and only those that may move"
        keep_house(db, 1)
        for name in ("long", "other"):
            hot = [segment for segment in db.engine.topic(name).segments if not segment.is_cold]
            assert len(hot) == SMALL.segments.hot_retain_segments
            assert [record.seq for record in db.diff(name).records] == list(range(1, 31))
    assert list(cold.rglob("*.data"))


def test_a_bound_of_bytes_reads_idle_topics_that_are_over_it(tmp_path: Path) -> None:
    path, cold = tmp_path / "data", tmp_path / "cold"
    cold.mkdir()
    filled(path, {"large": 10, "small": 1})
    bounded = replace(SMALL.segments, hot_retain_segments=100, hot_retain_bytes=100)
    with headwater.open(path, settings=replace(SMALL, segments=bounded, cold_url=str(cold))) as db:
        keep_house(db, 3)
        assert loaded(db) == {"large"}


def test_without_a_cold_tier_idle_topics_stay_unread(tmp_path: Path) -> None:
    filled(tmp_path / "data", {"long": 30})
    with headwater.open(tmp_path / "data", settings=SMALL) as db:
        keep_house(db, 3)
        assert not loaded(db)


def test_an_idle_topic_that_cannot_be_read_keeps_the_keeper_from_no_other(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with headwater.open(path, settings=SMALL) as db:
        for name in ("damaged", "aged"):
            db.create(name, ttl_ms=3_600_000)
            db.append(name, [{"data": n} for n in range(10)])
        gone = path / "topics" / db.engine.topic("damaged").files.directory.name
    next(gone.glob("seg-*.data")).unlink()
    with headwater.open(path, settings=replace(SMALL, checkpoint_tail_bytes=1)) as db:
        db.append("new", {"data": 1})
        for _ in range(3):
            with pytest.raises(DamageError, match="a file that must be there is missing"):
                db.engine._housekeeping.round()
        assert loaded(db) == {"aged", "new"}
        assert db.engine.topic("new").checkpointed_seq == 1
        db.drop("damaged")
        db.engine._housekeeping.round()
