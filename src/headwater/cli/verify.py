"""`headwater verify`: is this data directory sound, and if not, where."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import complain, say, say_json, say_table, shown_path
from headwater.cli.pipeline.flags import ColdFlag
from headwater.cli.progress import transferring
from headwater.cli.wal.repair import further_damage, report_as_json
from headwater.core.clock import SystemClock
from headwater.core.errors import RequestError, StorageError, UnavailableError
from headwater.disk import PosixDisk
from headwater.engine.maintenance.reports import keep_report
from headwater.engine.read_only.directory_check import DirectoryReport, verify_directory
from headwater.format.names import WAL_DIRECTORY
from headwater.recovery.directory import accessing


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory.")],
    as_json: JsonOption = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="In the log, check every frame's own checksum too."),
    ] = False,
    cold: ColdFlag = None,
) -> None:
    """Read a whole data directory and say whether it is sound.

    The log, the snapshots, the checksum of every record in segments, every index entry against its
    record, whether each seq is where it should be, and unknown names; the same of Kafka's
    shared log and of the machines. Segments in the cold tier are read from it: from `--cold`, or
    from where the directory's server last had it. Changes nothing, takes no lock, and
    may be run while Headwater is writing: a finding counts when two scans agree. Exit code 5 when
    something is BAD, 3 when nothing is but the cold tier could not be read; a `note` is resolved by
    Headwater itself. The report is kept for the dashboard in reports/, if a server has made
    that directory.
    """
    disk = PosixDisk()
    _refuse_other_places(disk, directory)
    with transferring("Verifying") as begin:
        report = verify_directory(disk, directory, SystemClock(), begin, deep=deep, cold=cold)
        wal_directory = directory / WAL_DIRECTORY
        report.wal.findings += further_damage(disk, wal_directory, report.wal)
    problems = len(report.bad) + len(report.wal.refusals)
    as_dict = _as_json(report, problems)
    keep_report(disk, directory, "verify", SystemClock().wall_ms(), as_dict)
    if as_json:
        say_json(as_dict)
    else:
        _say_report(report, directory, problems)
    if problems:
        complain(
            f"{problems} problem{'' if problems == 1 else 's'} in {directory}; nothing was changed"
        )
        raise typer.Exit(StorageError.exit_code)
    if report.unchecked:
        complain("not everything could be checked; nothing that was is damaged")
        raise typer.Exit(UnavailableError.exit_code)


def _refuse_other_places(disk: PosixDisk, directory: PurePath) -> None:
    with accessing(directory):
        if not disk.exists(directory):
            raise RequestError(f"there is no directory {directory}; check the path")
        if not disk.is_directory(directory / WAL_DIRECTORY):
            raise RequestError(
                f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it"
            )


def _findings(report: DirectoryReport) -> list[dict[str, Any]]:
    rows = [
        {
            "path": str(finding.path),
            "offset": finding.offset,
            "what": finding.what,
            "bad": finding.action.refuses,
        }
        for finding in report.wal.findings
    ]
    return rows + [
        {"path": str(f.path), "offset": f.offset, "what": f.what, "bad": f.bad}
        for f in report.faults
    ]


def _as_json(report: DirectoryReport, problems: int) -> dict[str, Any]:
    return {
        "ok": not problems,
        "unchecked": [
            {"path": str(f.path), "offset": f.offset, "what": f.what} for f in report.unchecked
        ],
        "topics": report.topics,
        "segments": report.segments,
        "snapshots": report.snapshots,
        "kafka": {"segments": report.kafka_segments, "batches": report.kafka_batches},
        "machines": {"segments": report.machine_segments, "entries": report.machine_entries},
        "findings": _findings(report),
        "wal": report_as_json(report.wal),
    }


def _say_report(report: DirectoryReport, directory: PurePath, problems: int) -> None:
    rows = []
    for finding in _findings(report):
        path = PurePath(finding["path"])
        shown = path.relative_to(directory) if path.is_relative_to(directory) else path
        offset = "" if finding["offset"] is None else str(finding["offset"])
        rows.append(["BAD" if finding["bad"] else "note", str(shown), offset, finding["what"]])
    rows += [["unchecked", str(f.path), "", f.what] for f in report.unchecked]
    if rows:
        say_table(["", "file", "offset", "what"], rows, "offset")
    state = "NOT SOUND" if problems else "ok"
    say(
        f"{state}: {shown_path(directory)}: {report.topics:,} topics, "
        f"{report.segments:,} segments, {report.snapshots:,} snapshots, "
        f"{report.wal.groups:,} groups in the log"
    )
    if report.kafka_segments or report.machine_segments:
        say(
            f"Kafka: {report.kafka_batches:,} batches in {report.kafka_segments:,} segments; "
            f"machines: {report.machine_entries:,} entries in {report.machine_segments:,} segments"
        )
