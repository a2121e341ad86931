"""`headwater.open(path, read_only=True)` in one process: what it sees, waits for and refuses."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import Doorbell, SystemClock
from headwater.core.errors import (
    ClosedError,
    DamageError,
    HeadwaterError,
    RequestError,
    StorageError,
    TopicNotFoundError,
    UnavailableError,
)
from headwater.core.units import KIB
from headwater.disk import DirectoryLock, OpenMode, PosixDisk
from headwater.disk.posix import PosixFile
from headwater.format.snapshot import META_DIRECTORY
from headwater.testing import ManualClock
from tests.unit.cli.databases import SETTINGS, fill, kept, record, segment_file
from tests.unit.cli.logs import everything_in, flip

SMALL = replace(SETTINGS, cache_bytes=4 * KIB)
COLD = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=64 * KIB),
    segments=SegmentSettings(segment_max_events=5, hot_retain_segments=1),
    checkpoint_interval_ms=3_600_000,
)


class ImpatientClock(SystemClock):
    """Does not wait."""

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        return False


@pytest.fixture
def full(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


class WatchingDisk(PosixDisk):
    """Tells of every call that could change something."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def open(self, path: PurePath, mode: OpenMode) -> PosixFile:
        if mode is not OpenMode.READ:
            self.changes.append(f"open {path}")
        return super().open(path, mode)

    def make_directory(self, path: PurePath) -> None:
        self.changes.append(f"mkdir {path}")

    def rename(self, source: PurePath, target: PurePath) -> None:
        self.changes.append(f"rename {source}")

    def unlink(self, path: PurePath) -> None:
        self.changes.append(f"unlink {path}")

    def lock_directory(self, path: PurePath) -> DirectoryLock:
        raise AssertionError("a reader takes no lock")


def test_a_stopped_directory_is_read_without_a_single_changing_call(full: Path) -> None:
    disk = WatchingDisk()
    before = everything_in(full)
    with headwater.open(full, read_only=True, disk=disk) as reader:
        diff = reader.diff("orders", limit=1_000)
        assert [r.seq for r in diff.records] == kept()
        assert diff.caught_up
        assert [state.topic for state in reader.topics()] == ["idle", "orders"]
        assert reader.state("orders").count == len(kept())
        assert reader.refresh() is False
    assert disk.changes == []
    assert everything_in(full) == before


def test_a_reader_gives_the_same_answers_as_the_owner(full: Path) -> None:
    with headwater.open(full, settings=SETTINGS) as db:
        db.create("capped", cap_records=5)
        db.append("capped", [{"data": n} for n in range(12)])
        db.append("orders", record(101))
        db.delete("orders", before_seq=11)
        with headwater.open(full, read_only=True) as reader:
            for topic in ("orders", "capped", "idle"):
                for options in ({}, {"limit": 3}, {"match": "other"}, {"node": "n"}):
                    mine = db.diff(topic, 4, **options)
                    theirs = reader.diff(topic, 4, **options)
                    assert theirs == mine, (topic, options)
                mine_state, theirs_state = db.state(topic), reader.state(topic)
                for name in ("head_seq", "earliest_seq", "evict_floor", "count", "bytes", "epoch"):
                    assert getattr(theirs_state, name) == getattr(mine_state, name), (topic, name)


def test_news_are_seen_by_the_next_read_also_of_new_and_dropped_topics(full: Path) -> None:
    with (
        headwater.open(full, settings=SETTINGS) as db,
        headwater.open(full, read_only=True) as reader,
    ):
        assert reader.diff("orders", 100).records == []
        db.append("orders", record(101))
        assert [r.seq for r in reader.diff("orders", 100).records] == [101]
        db.append("fresh", {"data": 1})
        assert [r.data for r in reader.diff("fresh").records] == [1]
        db.drop("fresh")
        reader.refresh()
        with pytest.raises(TopicNotFoundError):
            reader.diff("fresh")
        db.append("fresh", {"data": 2})
        assert [r.data for r in reader.diff("fresh").records] == [2]
        assert reader.state("fresh").epoch == 2


def test_what_was_followed_is_given_back_when_it_grows_too_large(full: Path) -> None:
    with (
        headwater.open(full, settings=SETTINGS) as db,
        headwater.open(full, read_only=True, settings=SMALL) as reader,
    ):
        for first in range(101, 601, 20):
            db.append("orders", [record(seq) for seq in range(first, first + 20)])
            db.checkpoint()
            found = reader.diff("orders", first - 1, limit=1_000).records
            assert [r.seq for r in found] == list(range(first, first + 20))
        assert reader._view is not None
        assert reader._view.core.tail_bytes < 8 * 1024


def test_an_owner_that_starts_again_with_other_shards_is_followed(full: Path) -> None:
    with headwater.open(full, read_only=True) as reader:
        seq = 0
        for shards in (2, 1, 3):
            wal = WalSettings(shards=shards, file_bytes=64 * 1024)
            with headwater.open(full, settings=replace(SETTINGS, wal=wal)) as db:
                seq = db.append("orders", record(0)).first_seq
                assert [r.seq for r in reader.diff("orders", seq - 1).records] == [seq]
        assert reader.state("orders").head_seq == seq


def test_a_wait_is_a_wait_and_ends_with_the_first_news(full: Path) -> None:
    clock = ManualClock()
    with (
        headwater.open(full, settings=SETTINGS) as db,
        headwater.open(full, read_only=True, clock=clock) as reader,
    ):
        found: list[int] = []

        def read() -> None:
            found.extend(r.seq for r in reader.diff("orders", 100, wait_ms=10_000).records)

        thread = threading.Thread(target=read)
        thread.start()
        parks = 0
        for _ in range(5):
            clock.wait_for_waiters(1, after_parks=parks)
            parks = clock.park_count
            clock.advance_to_next_deadline()
        clock.wait_for_waiters(1, after_parks=parks)
        assert clock.park_count == 6, "it looks once for each interval, and sleeps in between"
        assert found == []
        db.append("orders", record(101))
        clock.advance_to_next_deadline()
        thread.join()
        assert found == [101]


def test_a_wait_for_nothing_ends_when_its_time_is_up(full: Path) -> None:
    clock = ManualClock()
    with headwater.open(full, read_only=True, clock=clock) as reader:
        answers: list[bool] = []
        thread = threading.Thread(
            target=lambda: answers.append(reader.diff("orders", 100, wait_ms=120).caught_up)
        )
        thread.start()
        parks = 0
        for _ in range(3):  # 50, 100 and 120 ms
            clock.wait_for_waiters(1, after_parks=parks)
            parks = clock.park_count
            clock.advance_to_next_deadline()
        thread.join()
        assert answers == [True]


def test_closing_wakes_whoever_waits_and_ends_every_call(full: Path) -> None:
    clock = ManualClock()
    reader = headwater.open(full, read_only=True, clock=clock)
    errors: list[HeadwaterError] = []

    def read() -> None:
        try:
            list(reader.watch("orders", 100))
        except HeadwaterError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    clock.wait_for_waiters(1)
    reader.close()
    reader.close()
    thread.join()
    assert [type(error) for error in errors] == [ClosedError]
    for call in (reader.refresh, reader.topics, lambda: reader.diff("orders")):
        with pytest.raises(ClosedError):
            call()


def test_places_without_data_are_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no directory"):
        headwater.open(tmp_path / "no", read_only=True)
    with pytest.raises(RequestError, match="is not a Headwater data directory"):
        headwater.open(tmp_path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record_is_left_out_and_told_after_a_second_look(full: Path) -> None:
    flip(segment_file(full, "data"), 45)
    with headwater.open(full, read_only=True) as reader:
        assert [r.seq for r in reader.diff("orders", limit=1_000).records] == kept()[1:]
        assert [finding.seq for finding in reader.bad_frames] == [1]


def test_a_segment_that_is_really_gone_is_damage_and_not_a_reason_to_wait(full: Path) -> None:
    with headwater.open(full, read_only=True) as reader:
        assert reader.state("orders").head_seq == 100
        segment_file(full, "data", 1).unlink()
        with pytest.raises(DamageError, match="missing"):
            reader.diff("orders", 45)


def test_a_directory_that_changes_at_every_look_ends_in_try_again(full: Path) -> None:
    class Restless(PosixDisk):
        """Somebody writes to the log before every look at a segment."""

        looks = 0

        def open(self, path: PurePath, mode: OpenMode) -> PosixFile:
            if path.suffix == ".data":
                self.looks += 1
                db.append("idle", {"data": self.looks})
                raise FileNotFoundError(2, f"gone for the {self.looks}th time", str(path))
            return super().open(path, mode)

    with headwater.open(full, settings=SETTINGS) as db:
        db.append("orders", {"data": "so that a look at the log is not enough"})
        with pytest.raises(UnavailableError, match="changed by its owner during every read"):
            headwater.open(full, read_only=True, disk=Restless(), clock=ImpatientClock())


def test_a_snapshot_newer_than_what_was_read_of_the_log_makes_a_reader_look_again(
    full: Path,
) -> None:
    class Overtaken(PosixDisk):
        """A snapshot is written between the look at the log and the look at the snapshots."""

        looks = 0

        def list_directory(self, path: PurePath) -> list[str]:
            if path.name == META_DIRECTORY:
                self.looks += 1
                if self.looks == 2:
                    db.append("born", {"data": 1})
                    db.checkpoint()
            return super().list_directory(path)

    disk = Overtaken()
    with (
        headwater.open(full, settings=SETTINGS) as db,
        headwater.open(full, read_only=True, disk=disk) as reader,
    ):
        assert disk.looks == 6, "twice three: before the log, for the newest, and afterwards"
        assert reader.state("born").head_seq == 1


def test_a_crash_in_the_middle_of_a_rewrite_leaves_a_readable_directory(full: Path) -> None:
    shutil.copy(segment_file(full, "data"), segment_file(full, "data").with_suffix(".data.new"))
    with headwater.open(full, read_only=True) as reader:
        assert [r.seq for r in reader.diff("orders", limit=1_000).records] == kept()


def test_a_cold_tier_that_was_not_named_is_asked_for_whatever_the_owner_does(
    tmp_path: Path,
) -> None:
    class Restless(PosixDisk):
        """Somebody writes to the log before every look at a segment."""

        def open(self, path: PurePath, mode: OpenMode) -> PosixFile:
            if path.suffix == ".idx":
                db.append("new", {"data": str(path)})
            return super().open(path, mode)

    (tmp_path / "cold").mkdir()
    cold = replace(COLD, cold_url=str(tmp_path / "cold"))
    with headwater.open(tmp_path / "data", settings=cold) as db:
        for _ in range(6):
            db.append("old", [{"data": n} for n in range(5)])
        db.checkpoint()
        db.engine._housekeeping.round()
        assert any(segment.is_cold for segment in db.engine.topic("old").segments)
        reader = headwater.open(
            tmp_path / "data", read_only=True, disk=Restless(), clock=ImpatientClock()
        )
        with reader, pytest.raises(StorageError, match="name the cold directory or store"):
            reader.diff("old", 0)
