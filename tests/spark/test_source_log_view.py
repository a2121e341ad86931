"""A look at a log of which a snapshot covers most: little is read, and nothing is missed."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePath

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.topic import TopicSettings
from headwater.config.wal import WalSettings
from headwater.core.errors import DamageError
from headwater.core.units import KIB
from headwater.disk import PosixDisk
from headwater.format.control_frames import encode_router_places
from headwater.format.frame import decode_frame
from headwater.format.names import WAL_DIRECTORY
from headwater.recovery.topics.report import inspect_until_stable
from headwater.recovery.topics.scan import CoveredFrames
from headwater.recovery.topics.snapshots import covered_logs, load_snapshot
from headwater.spark.source.log_view import LogView, TopicLogView
from tests.spark.direct_reader import read

SETTINGS = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=8 * KIB, reserve_bytes=KIB, zero_chunk_bytes=4 * KIB),
    checkpoint_interval_ms=3_600_000,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of several files that a snapshot covers, and some records behind it."""
    with headwater.open(tmp_path / "data", settings=SETTINGS) as db:
        for _ in range(3):
            for _ in range(10):
                db.append("a", [{"data": "x" * 50} for _ in range(20)])
            db.checkpoint()
        db.append("a", [{"data": "y"}, {"data": "z"}])
        shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as a killed owner leaves it
    return tmp_path / "copy"


def log_files(path: Path) -> list[Path]:
    return sorted(path.glob("wal/wal-*.log"))


def flip(file: Path, offset: int) -> None:
    contents = bytearray(file.read_bytes())
    contents[offset] ^= 0x10
    file.write_bytes(contents)


def test_what_a_snapshot_covers_is_not_read_and_the_rest_is_all_there(path: Path) -> None:
    disk, directory = PosixDisk(), PurePath(path)
    assert len(log_files(path)) > 2
    snapshot = load_snapshot(disk, directory, [])
    assert snapshot is not None
    known = covered_logs(directory, snapshot)
    whole = inspect_until_stable(disk, directory / WAL_DIRECTORY)
    partly = inspect_until_stable(disk, directory / WAL_DIRECTORY, covered=known)
    assert not partly.refusals
    assert 0 < partly.groups < whole.groups
    assert [shard.chain for shard in partly.shards] == [shard.chain for shard in whole.shards]
    topic = LogView(disk, directory).find("a")
    assert topic is not None
    assert (topic.checkpointed_seq, topic.head_seq) == (600, 602)
    assert [row["seq"] for row in read(path, topic="a", startingSeq=599)] == [599, 600, 601, 602]


def test_damage_that_a_snapshot_covers_concerns_nobody_who_reads(path: Path) -> None:
    flip(log_files(path)[0], 2_000)
    assert len(read(path, topic="a")) == 602
    with pytest.raises(DamageError):
        inspect_until_stable(PosixDisk(), PurePath(path) / WAL_DIRECTORY).raise_if_refused()


def test_an_unfinished_group_behind_the_snapshot_is_not_there_yet(path: Path) -> None:
    topic = LogView(PosixDisk(), PurePath(path)).find("a")
    assert topic is not None
    run = topic.runs[0]
    flip(Path(run.path), int(run.offsets[0]) + 50)
    assert len(read(path, topic="a")) == 600, "torn, and no witness knew of it"


def test_a_snapshot_of_another_log_says_nothing_about_this_one(path: Path) -> None:
    disk, directory = PosixDisk(), PurePath(path) / WAL_DIRECTORY
    foreign = {directory: CoveredFrames(12345, 10**9)}
    assert inspect_until_stable(disk, directory, covered=foreign).groups == (
        inspect_until_stable(disk, directory).groups
    )


@pytest.mark.parametrize(("lost", "told"), [(True, [(4, 9)]), (False, [])])
def test_seqs_that_a_router_could_not_fill_are_there_and_told_if_they_were_lost(
    lost: bool, told: list[tuple[int, int]]
) -> None:
    topic = TopicLogView(2, "out", 1, TopicSettings(), head_seq=3)
    encoded = encode_router_places(2, 9, 1, lost=lost)
    topic.history.apply(decode_frame(memoryview(encoded), 0, len(encoded)))
    assert (topic.head_seq, topic.lost) == (9, told)
