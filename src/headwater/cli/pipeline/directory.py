"""`headwater pipeline verify`, `compact` and `checkpoint`: jobs on a data directory's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import printable, say, say_table, shown_path
from headwater.cli.pipeline.flags import (
    COLD_HELP,
    ON_THIS_MACHINE,
    ColdFlag,
    DirectoryFlag,
    RunOptions,
    StoppedFlag,
    TopicFlag,
)
from headwater.cli.pipeline.job_run import run_job
from headwater.config.store import SegmentSettings
from headwater.core.units import MIB

if TYPE_CHECKING:
    from headwater.spark.jobs.checkpoint import CheckpointReport
    from headwater.spark.jobs.compact import CompactReport
    from headwater.spark.jobs.verify import VerifyJobReport


def verify(
    path: DirectoryFlag,
    cold: ColdFlag = None,
    run_options: RunOptions = ON_THIS_MACHINE,
) -> None:
    """Say whether everything in a data directory is what was written, and where it is not.

    Log, segments in both tiers, snapshots, Kafka's log, machines: every checksum, every index entry
    against its record, every seq in its place. Changes nothing, and may be run while Headwater is
    writing.
    Exit code 5 when something is BAD; a `note` is resolved by Headwater itself, or does no harm.
    """
    from headwater.spark.jobs import verify as job

    options = job.VerifyOptions(path=path, cold=cold)
    run_job("verify", job.run, options, run_options, _show_verify)


def _show_verify(report: VerifyJobReport) -> None:
    rows = [
        [
            "BAD" if finding.bad else "note",
            finding.file.removeprefix(f"{report.source}/"),
            "" if finding.offset is None else str(finding.offset),
            finding.kind,
            finding.meaning,
        ]
        for finding in report.findings
    ]
    if rows:
        say_table(["", "file", "offset", "kind", "meaning"], rows, "offset")
    state = "ok" if report.ok else "NOT SOUND"
    say(
        f"{state}: {shown_path(report.source)}: {report.topics:,} topics, "
        f"{report.segments:,} segments with {report.records:,} seqs in "
        f"{report.data_bytes / MIB:,.1f} MiB, {report.snapshots:,} snapshots, "
        f"{report.groups:,} groups in {report.log_files:,} log files, {report.seconds:,.1f} s"
    )
    if report.kafka_segments or report.machine_segments:
        say(
            f"Kafka: {report.kafka_batches:,} batches in {report.kafka_segments:,} segments; "
            f"machines: {report.machine_entries:,} entries in {report.machine_segments:,} segments"
        )


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
    run_options: RunOptions = ON_THIS_MACHINE,
) -> None:
    """Rewrite segments of the cold tier that are mostly deleted, and say what that freed.

    The directory must not be in use: a running Headwater does this by itself, one segment at a
    time. A segment with damage is left as it is. It may be killed at any moment and run again.
    """
    from headwater.spark.jobs import compact as job

    options = job.CompactOptions(
        path=path, cold=cold, topics=tuple(topic or ()), dead_ratio=dead_ratio
    )
    run_job("compact", job.run, options, run_options, _show_compact)


def _show_compact(report: CompactReport) -> None:
    for refusal in report.refused:
        say(f"left as it is: {printable(refusal.segment)}: {printable(refusal.reason)}")
    say(
        f"{shown_path(report.cold)}: {report.segments:,} segments of {report.topics:,} topics, "
        f"{report.rewritten:,} rewritten, {report.moved:,} moved back, "
        f"{report.bytes_freed / MIB:,.1f} of {report.bytes_before / MIB:,.1f} MiB freed, "
        f"{report.seconds:,.1f} s"
    )


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
    run_options: RunOptions = ON_THIS_MACHINE,
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
    run_job("checkpoint", job.run, options, run_options, _show_checkpoint)


def _show_checkpoint(report: CheckpointReport) -> None:
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
