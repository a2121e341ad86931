"""`headwater pipeline checkpoint`: log files become the segments of a new data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.output import say, shown_path
from headwater.cli.pipeline_files import ColdFlag
from headwater.cli.pipeline_flags import (
    ConfFlag,
    MasterFlag,
    ReportFlag,
    RunOptions,
    TopicFlag,
)
from headwater.cli.pipeline_run import run_job
from headwater.config.store import SegmentSettings
from headwater.core.units import MIB

if TYPE_CHECKING:
    from headwater.spark.jobs.checkpoint import CheckpointReport

_DEFAULTS = SegmentSettings()


def checkpoint(
    path: Annotated[
        str,
        typer.Option(
            "--path",
            metavar="DIR",
            help="A stopped data directory, log files, or a directory of copies of either.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", metavar="DIR", help="The data directory to make.")
    ],
    cold: ColdFlag = None,
    topic: TopicFlag = None,
    segment_max_events: Annotated[
        int, typer.Option(min=1, metavar="N", help="A segment is full with so many records,")
    ] = _DEFAULTS.segment_max_events,
    segment_max_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="or so many bytes; as the server has it.")
    ] = _DEFAULTS.segment_max_bytes,
    master: MasterFlag = "local[*]",
    conf: ConfFlag = None,
    report: ReportFlag = None,
    as_json: JsonOption = False,
) -> None:
    """Put everything a log holds into segments, in bulk, in a new data directory.

    Damage is refused, an unfinished write at the end is left out, deletes and floors are applied.
    The segments are byte for byte those that Headwater itself would have written. Running it again
    after it was interrupted does what is left to do.
    """
    from headwater.spark.jobs import checkpoint as job

    options = job.CheckpointOptions(
        path=path,
        output=output,
        cold=cold,
        topics=tuple(topic or ()),
        segment_max_events=segment_max_events,
        segment_max_bytes=segment_max_bytes,
    )
    run_job("checkpoint", job.run, options, RunOptions(master, conf, as_json, report), _show)


def _show(report: CheckpointReport) -> None:
    say(
        f"{report.records:,} records in {report.files:,} log files: {report.written:,} written, "
        f"{report.absorbed:,} in segments before, {report.left_out:,} left out, "
        f"{report.duplicates:,} twice"
    )
    for tail in report.cut_tails:
        say(f"an unfinished write was left out: {shown_path(tail.file)} at byte {tail.offset:,}")
    say(
        f"{shown_path(report.output)}: {report.topics:,} topics, {report.segments:,} segments "
        f"({report.segments_found:,} were there), {report.data_bytes / MIB:,.1f} MiB, "
        f"{report.seconds:,.1f} s, {report.mb_per_second:,.1f} MB/s"
    )
