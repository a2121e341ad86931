"""`headwater pipeline compact`: deleted records leave the cold tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.output import printable, say, shown_path
from headwater.cli.pipeline_files import COLD_HELP, StoppedFlag
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
    from headwater.spark.jobs.compact import CompactReport


def compact(
    path: StoppedFlag,
    cold: Annotated[str, typer.Option("--cold", metavar="PLACE", help=COLD_HELP)],
    topic: TopicFlag = None,
    dead_ratio: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Rewrite a segment when this share of its bytes is deleted."
        ),
    ] = SegmentSettings().rewrite_dead_ratio,
    master: MasterFlag = "local[*]",
    conf: ConfFlag = None,
    report: ReportFlag = None,
    as_json: JsonOption = False,
) -> None:
    """Rewrite segments of the cold tier that are mostly deleted, and say what that freed.

    The directory must not be in use: a running Headwater does this by itself, one segment at a
    time. A segment with damage is left as it is. It may be killed at any moment and run again.
    """
    from headwater.spark.jobs import compact as job

    options = job.CompactOptions(
        path=path, cold=cold, topics=tuple(topic or ()), dead_ratio=dead_ratio
    )
    run_job("compact", job.run, options, RunOptions(master, conf, as_json, report), _show)


def _show(report: CompactReport) -> None:
    for refusal in report.refused:
        say(f"left as it is: {printable(refusal.segment)}: {printable(refusal.reason)}")
    say(
        f"{shown_path(report.cold)}: {report.segments:,} segments of {report.topics:,} topics, "
        f"{report.rewritten:,} rewritten, {report.moved:,} moved back, "
        f"{report.bytes_freed / MIB:,.1f} of {report.bytes_before / MIB:,.1f} MiB freed, "
        f"{report.seconds:,.1f} s"
    )
