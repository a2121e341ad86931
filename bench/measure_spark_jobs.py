"""Jobs over a topic: into a Delta table, log files into segments. Part of `make bench-spark`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import headwater
from bench.log_under_test import WrongResultError
from bench.measure_spark import ROUNDS, session
from bench.registry import SPARK, Row, Run, benchmark
from bench.spark.data import BATCH, NODE, TOPIC, fill_topic, payload_note, records_from
from headwater.config.engine import EngineSettings
from headwater.core.units import GIB

HOUR_MS: Final = 3_600_000
UNABSORBED: Final = EngineSettings(
    checkpoint_interval_ms=HOUR_MS,
    checkpoint_tail_bytes=64 * GIB,
    snapshot_wal_bytes=64 * GIB,
    snapshot_interval_ms=HOUR_MS,
)
"""Everything stays in the log until the job comes."""


@benchmark("spark-jobs", "How fast are the jobs: into a Delta table, from log to segments?", SPARK)
def spark_jobs(run: Run) -> list[Row]:
    count = run.size(2_000_000, 20_000)
    stopped = fill_topic(run.directory / "data", count)
    killed = _killed(run.directory, run.size(1_000_000, 20_000))
    with session(run, "local[2]") as spark:
        rounds = range(1 if run.quick else ROUNDS)
        landed = max(_land(spark, stopped, run.directory / f"lake{turn}", count) for turn in rounds)
        absorbed = max(_absorb(spark, killed, run.directory / f"out-{turn}") for turn in rounds)
    told = {"payload": payload_note(), "durability": "fsync", "best of": str(len(rounds))}
    return [
        Row("topic to Delta", landed, "rows/s", {**told, "records": f"{count:,}"}),
        Row("checkpoint of log files", absorbed, "MB/s", {**told, "MB": "of the log"}),
    ]


def _killed(directory: Path, count: int) -> Path:
    """A data directory whose records are in the log only, as a killed process leaves it."""
    with headwater.open(directory / "running", settings=UNABSORBED) as db:
        for first in range(0, count, BATCH):
            db.append(TOPIC, records_from(first, min(BATCH, count - first)), node=NODE)
        shutil.copytree(directory / "running", directory / "killed")
    return directory / "killed"


def _land(spark: object, source: Path, table: Path, count: int) -> float:
    from headwater.spark.jobs import lake
    from headwater.spark.jobs.job import Place

    report = lake.run(
        spark,  # type: ignore[arg-type]
        lake.LakeOptions(
            place=Place(path=str(source), topics=(TOPIC,)),
            table=str(table),
            checkpoint=str(table) + "-checkpoint",
        ),
    )
    if not report.ok or report.rows != count:
        raise WrongResultError(f"{report.rows} of {count} records are in the table")
    return report.rows / report.seconds


def _absorb(spark: object, source: Path, output: Path) -> float:
    from headwater.spark.jobs import checkpoint

    report = checkpoint.run(
        spark,  # type: ignore[arg-type]
        checkpoint.CheckpointOptions(path=str(source), output=str(output)),
    )
    if not report.ok or report.written != report.records:
        raise WrongResultError(f"{report.written} of {report.records} records are in segments")
    return report.mb_per_second
