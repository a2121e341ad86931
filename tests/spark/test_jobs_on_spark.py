"""Checkpoint, verify and compact as Spark runs them: real files, real tasks, the real verbs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.errors import DamageError, DirectoryInUseError, StorageError
from headwater.core.units import GIB, KIB
from headwater.spark.jobs import checkpoint, compact, verify
from headwater.spark.sessions.spark_errors import explained
from tests.rig.s3_server import make_bucket, s3_server, url_of
from tests.rig.scripts import records

pytestmark = pytest.mark.spark

SETTINGS = EngineSettings(
    wal=WalSettings(shards=2, file_bytes=64 * KIB, reserve_bytes=KIB, switch_interval_us=None),
    segments=SegmentSettings(segment_max_events=300, hot_retain_segments=0),
    checkpoint_interval_ms=3_600_000,
    checkpoint_tail_bytes=GIB,
    snapshot_wal_bytes=GIB,
    snapshot_interval_ms=3_600_000,
)
"""Several log files and segments, and nothing happens unless it is asked for."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A directory as a killed process left it, and what its segments are after a clean stop."""
    stopped, left = (tmp_path_factory.mktemp("checkpoint") / name for name in ("stopped", "left"))
    with headwater.open(stopped, settings=SETTINGS) as db:
        for number in range(40):
            db.append(f"topic-{number % 5}", records(50, "ab"[number % 2], size=80))
        db.delete("topic-1", match="a")
        db.delete("topic-2", before_seq=120)
        shutil.copytree(stopped, left)
    return left, stopped


def segments_in(directory: Path) -> dict[str, bytes]:
    topics = directory / "topics"
    return {str(p.relative_to(topics)): p.read_bytes() for p in topics.rglob("seg-*")}


def options_for(source: Path, output: Path) -> checkpoint.CheckpointOptions:
    return checkpoint.CheckpointOptions(
        path=str(source),
        output=str(output),
        segment_max_events=SETTINGS.segments.segment_max_events,
    )


def test_a_checkpoint_on_spark_writes_the_bytes_of_the_engine(
    spark: SparkSession, killed: tuple[Path, Path], tmp_path: Path
) -> None:
    left, stopped = killed
    output = tmp_path / "output"
    report = checkpoint.run(spark, options_for(left, output))
    assert report.ok
    assert report.records == 2_000
    assert report.files > 2
    assert segments_in(output) == segments_in(stopped)
    again = checkpoint.run(spark, options_for(left, output))
    assert again.segments_found == again.segments == report.segments
    with headwater.open(output, settings=SETTINGS) as db:
        assert [state.count for state in db.topics()] == [400, 200, 281, 400, 400]
    in_use = pytest.raises(DirectoryInUseError, match="in use by another Headwater")
    with headwater.open(output, settings=SETTINGS), in_use:
        checkpoint.run(spark, options_for(output, tmp_path / "other"))


def test_damage_that_a_task_meets_is_told_with_its_place(
    spark: SparkSession, killed: tuple[Path, Path], tmp_path: Path
) -> None:
    _, stopped = killed
    copy = tmp_path / "copy"
    shutil.copytree(stopped, copy)
    data = next(copy.glob("topics/*/seg-*.data"))
    harmed = bytearray(data.read_bytes())
    harmed[200] ^= 1
    data.write_bytes(harmed)
    with pytest.raises(DamageError, match=f"in {data} at byte"), explained():
        checkpoint.run(spark, options_for(copy, tmp_path / "output"))
    report = verify.run(spark, verify.VerifyOptions(path=str(copy)))
    assert not report.ok
    assert [(finding.file, finding.kind) for finding in report.findings] == [(str(data), "frame")]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["disk", "s3"])
def cold(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A stopped directory whose segments are cold, and mostly deleted since."""
    directory, cold_tier = tmp_path / "data", str(tmp_path / "cold")
    if request.param == "s3":
        server: str = request.getfixturevalue("s3")
        make_bucket(server, "jobs")
        cold_tier = url_of(server, "jobs", f"/{tmp_path.name}")
    settings = replace(SETTINGS, cold_url=cold_tier)
    with headwater.open(directory, settings=settings) as db:
        for _ in range(6):
            db.append("mostly-dead", [*records(1), *records(99, "gone", size=200)])
        db.append("alive", records(600, size=200))
        db.checkpoint()
        db.engine._housekeeping._reclaimer.run()
        db.delete("mostly-dead", match="gone")
    return directory, cold_tier


def test_verify_and_compact_run_on_spark(spark: SparkSession, cold: tuple[Path, str]) -> None:
    directory, cold_tier = cold
    verify_options = verify.VerifyOptions(path=str(directory), cold=cold_tier)
    before = verify.run(spark, verify_options)
    assert before.ok
    assert before.findings == ()
    assert (before.topics, before.segments, before.records) == (2, 4, 1_200)
    done = compact.run(spark, compact.CompactOptions(path=str(directory), cold=cold_tier))
    assert done.ok
    assert (done.segments, done.rewritten) == (4, 2)
    after = verify.run(spark, verify_options)
    assert after.findings == ()
    assert before.data_bytes - after.data_bytes == done.bytes_freed > 100_000
    assert "secret" not in str(done.as_json())
    with headwater.open(directory, settings=replace(SETTINGS, cold_url=cold_tier)) as db:
        assert [record.seq for record in db.diff("mostly-dead", limit=100).records] == [
            1, 101, 201, 301, 401, 501,
        ]  # fmt: skip


# -- the verbs


@pytest.mark.parametrize("cold", ["disk"], indirect=True)
def test_the_verbs_tell_what_they_did(
    headwater_pipeline: Callable[..., tuple[int, str]],
    killed: tuple[Path, Path],
    cold: tuple[Path, str],
    tmp_path: Path,
) -> None:
    left, _ = killed
    output = tmp_path / "output"
    code, shown = headwater_pipeline("checkpoint", "--path", left, "--output", output)
    assert code == 0
    assert "2,000 records in" in shown
    assert "MB/s" in shown
    code, shown = headwater_pipeline("verify", "--path", cold[0], "--cold", cold[1], "--json")
    assert code == 0
    assert json.loads(shown)["findings"] == []
    code, shown = headwater_pipeline("verify", "--path", cold[0])
    assert code == StorageError.exit_code
    assert "NOT SOUND" in shown
    assert "the cold tier was not named" in shown
    code, shown = headwater_pipeline("compact", "--path", cold[0], "--cold", cold[1])
    assert code == 0
    assert "2 rewritten" in shown
