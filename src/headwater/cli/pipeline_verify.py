"""`headwater pipeline verify`: every checksum of a data directory and its cold tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli.log_directory import JsonOption
from headwater.cli.output import say, say_table, shown_path
from headwater.cli.pipeline_files import ColdFlag, DirectoryFlag
from headwater.cli.pipeline_flags import (
    ConfFlag,
    MasterFlag,
    ReportFlag,
    RunOptions,
)
from headwater.cli.pipeline_run import run_job
from headwater.core.units import MIB

if TYPE_CHECKING:
    from headwater.spark.jobs.verify import VerifyReport


def verify(
    path: DirectoryFlag,
    cold: ColdFlag = None,
    master: MasterFlag = "local[*]",
    conf: ConfFlag = None,
    report: ReportFlag = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether everything in a data directory is what was written, and where it is not.

    Log, segments in both tiers, snapshots, Kafka's log, machines: every checksum, every index entry
    against its record, every seq in its place. Changes nothing, and may be run while Headwater is
    writing.
    Exit code 5 when something is BAD; a `note` is resolved by Headwater itself, or does no harm.
    """
    from headwater.spark.jobs import verify as job

    options = job.VerifyOptions(path=path, cold=cold)
    run_job("verify", job.run, options, RunOptions(master, conf, as_json, report), _show)


def _show(report: VerifyReport) -> None:
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
