"""`headwater pipeline lake`: topics become a Delta, Iceberg or Parquet table."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import printable, say
from headwater.cli.pipeline.flags import (
    NOWHERE,
    ON_THIS_MACHINE,
    PlaceOptions,
    RunOptions,
)
from headwater.cli.pipeline.job_run import run_job
from headwater.cli.signals import stopped_by_signals
from headwater.core.errors import RequestError
from headwater.core.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.job import Progress
    from headwater.spark.jobs.lake import LakeOptions, LakeReport
    from headwater.spark.jobs.lake_replay import LakeReplayReport

_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


TableFlag = Annotated[
    str,
    typer.Option("--table", metavar="LOCATION", help="The table: a directory, or s3://..."),
]
FormatFlag = Annotated[
    str, typer.Option("--format", metavar="delta|iceberg|parquet", help="What it is.")
]
FieldsFlag = Annotated[
    str | None,
    typer.Option(
        "--fields",
        metavar="DDL",
        help="Fields of the payload as columns, as in 'user string, amount long'.",
    ),
]
PayloadFlag = Annotated[
    str | None,
    typer.Option(
        metavar="text|binary|variant|none",
        help="The payload itself as a column; text without --fields, none with them.",
    ),
]
PartitionFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="date (the day a record was written), topic, or a field; several times.",
    ),
]
CheckpointFlag = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Where the job remembers how far it is. LOCATION-checkpoint when not given.",
    ),
]
OnceFlag = Annotated[
    bool, typer.Option("--once", help="Land what is there and end. This is the default.")
]
EveryFlag = Annotated[
    str | None,
    typer.Option(metavar="10s", help="Go on for ever, and check for new records so often."),
]
AppIdFlag = Annotated[
    str | None,
    typer.Option("--app-id", metavar="NAME", help="The writer's name; made of the topics else."),
]
BatchFlag = Annotated[
    int | None,
    typer.Option("--batch-records", metavar="N", min=1, help="So many in a batch at most."),
]
StartFlag = Annotated[
    str | None,
    typer.Option(
        "--starting-seq",
        metavar="SEQ",
        help='Begin there, with a new checkpoint: a number, latest, or {"topic": 12}.',
    ),
]
CatalogFlag = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Iceberg: a catalog of pyiceberg; --table names in it."),
]
LocationFlag = Annotated[
    str | None,
    typer.Option(metavar="LOCATION", help="With --catalog: where the table's files are."),
]
ReplayFlag = Annotated[
    bool,
    typer.Option(
        "--replay-dead-letters",
        help="Judge dead letters again by these --fields; those that fit become rows.",
    ),
]


def lake(
    table: TableFlag,
    place: PlaceOptions = NOWHERE,
    table_format: FormatFlag = "delta",
    fields: FieldsFlag = None,
    payload: PayloadFlag = None,
    partition_by: PartitionFlag = None,
    checkpoint: CheckpointFlag = None,
    once: OnceFlag = False,
    every: EveryFlag = None,
    app_id: AppIdFlag = None,
    batch_records: BatchFlag = None,
    starting_seq: StartFlag = None,
    catalog: CatalogFlag = None,
    location: LocationFlag = None,
    replay_dead_letters: ReplayFlag = False,
    run_options: RunOptions = ON_THIS_MACHINE,
) -> None:
    """Land topics in a table: every record once, or in LOCATION-dead-letters with its cause.

    Records that retention deleted before they were read are listed in LOCATION-gaps. The job may be
    stopped or killed at any moment; the same command goes on where it was.
    """
    from headwater.spark.jobs import lake as job
    from headwater.spark.jobs import lake_replay

    if once and every is not None:
        raise RequestError("--once and --every exclude each other")
    table_path = "" if catalog is not None else _absolute(table)
    options = job.LakeOptions(
        place=place.find(),
        table=table_path or table,
        format=table_format,
        checkpoint=_absolute(checkpoint or f"{table_path or location}-checkpoint"),
        fields=fields,
        payload=payload,
        partition_by=tuple(partition_by or ()),
        every_s=None if every is None else _seconds(every),
        app_id=app_id,
        records_per_batch=batch_records,
        starting_seq=starting_seq,
        catalog=catalog,
        location=None if location is None else _absolute(location),
    )
    if replay_dead_letters:
        run_job("lake", lake_replay.replay, options, run_options, _show_replay)
        return

    def run_until_stopped(
        spark: SparkSession, lake_options: LakeOptions, progress: Progress | None
    ) -> LakeReport:
        stop = threading.Event()
        with stopped_by_signals(stop.set, once=True):
            return job.run(spark, lake_options, progress, stop=stop)

    run_job("lake", run_until_stopped, options, run_options, _show)


def _absolute(location: str) -> str:
    return location if "://" in location else str(Path(location).absolute())


def _seconds(text: str) -> float:
    match = _INTERVAL.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"--every is a time like 500ms, 10s, 5m or 1h, not {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def _show(report: LakeReport) -> None:
    rate = report.rows / max(report.seconds, 0.001)
    say(
        f"{report.rows:,} rows in {report.files:,} files ({report.bytes / MIB:,.1f} MiB) are in "
        f"{printable(report.table)}: {report.batches:,} batches, {report.seconds:.1f} s, "
        f"{rate:,.0f} a second, {report.lag:,} records behind"
    )
    if report.dead_letters:
        say(f"{report.dead_letters:,} records do not fit: {printable(report.table)}-dead-letters")
    if report.gaps:
        say(f"{report.gaps:,} gaps, lost before they were read: {printable(report.table)}-gaps")
    if report.batches_found:
        say(f"{report.batches_found:,} batches were there already, from a run that was killed")
    if report.orphans:
        say(f"{report.orphans:,} files of a run that was killed were deleted")


def _show_replay(report: LakeReplayReport) -> None:
    say(
        f"{report.replayed:,} dead letters are rows of {printable(report.table)} now, "
        f"{report.left:,} still do not fit ({report.seconds:.1f} s)"
    )
