"""`headwater wal verify`: is this log sound, and if not, where."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any

import typer

from headwater.cli.log_directory import DirectoryArgument, LogDirectory, find_log
from headwater.cli.option_groups import JsonOption
from headwater.cli.output import complain, printable, say, say_json, say_table, shown_path
from headwater.cli.progress import reading
from headwater.core.errors import NewerFormatError, RequestError, StorageError
from headwater.disk import Disk, PosixDisk
from headwater.recovery.finding import Action, Finding, StepKind
from headwater.recovery.stores import BESIDE_TOPICS
from headwater.recovery.topics.plan import plan_repairs
from headwater.recovery.topics.report import WalReport, inspect_until_stable
from headwater.recovery.topics.scan import FileScan
from headwater.recovery.topics.table import FileVerdict

BEING_WRITTEN = "being written"


def verify(
    directory: DirectoryArgument,
    as_json: JsonOption = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Check every frame's own checksum too, not only each group's."),
    ] = False,
) -> None:
    """Read every log, of topics, machines and Kafka, and say whether a start would take it.

    Changes nothing, takes no lock, and may be run while Headwater is writing. Exit code 5 when
    Headwater would refuse to start from this log. An unfinished write at the end is no damage: the
    next start cuts it off.
    """
    log = find_log(PosixDisk(), directory)
    with reading(log.wal, "Reading the log") as disk:
        report = inspect_until_stable(disk, log.wal, deep=deep)
        report.findings += further_damage(disk, log.wal, report)
        if log.is_whole and log.data is not None:
            for store in BESIDE_TOPICS:
                report.findings += store.findings(disk, log.data)
    if as_json:
        say_json(report_as_json(report))
    else:
        say_report(report, log.wal)
    refusals = report.refusals
    if refusals:
        problems = _count(len(refusals), "problem")
        complain(f"{problems} in {shown_directory(log)}; {_advice(report, directory)}")
        raise typer.Exit(StorageError.exit_code)


def shown_directory(log: LogDirectory) -> PurePath:
    """What was scanned: the whole directory, or the topics' log alone."""
    return log.data if log.is_whole and log.data is not None else log.wal


def _advice(report: WalReport, directory: PurePath) -> str:
    for finding in report.refusals:
        if finding.action is Action.REFUSE_NEWER:
            return f"{finding.as_error().advice}"
    return f"nothing was changed, `headwater repair {directory}` shows what can be done"


def further_damage(disk: Disk, wal_directory: PurePath, report: WalReport) -> list[Finding]:
    """A scan stops at the first damage in a file. A repair plan shows the damage behind it."""
    if not any(finding.action is Action.REFUSE_DAMAGED for finding in report.findings):
        return []
    known = {(finding.path, finding.offset) for finding in report.findings}
    try:
        plans = plan_repairs(disk, wal_directory)
    except (NewerFormatError, RequestError):
        return []
    return [
        Finding(step.path, step.offset, Action.REFUSE_DAMAGED, step.reason, "more damage")
        for plan in plans
        for step in plan.steps
        if step.kind is StepKind.SKIP and (step.path, step.offset) not in known
    ]


def say_report(report: WalReport, wal_directory: PurePath) -> None:
    rows = [
        [
            str(scan.path.relative_to(wal_directory)),
            state_of(scan, report),
            f"{scan.groups:,}",
            f"{scan.frames:,}",
            f"{scan.end:,}",
            f"{scan.length:,}",
        ]
        for shard in report.shards
        for scan in shard.files
    ]
    if rows:
        numbers = "groups frames used bytes"
        say_table(["file", "state", "groups", "frames", "used", "bytes"], rows, numbers)
    for finding in report.findings:
        say(finding_line(finding))
    counts = (
        (len(report.shards), "shard"),
        (len(rows), "file"),
        (report.groups, "group"),
        (report.frames, "frame"),
    )
    state = "NOT SOUND" if report.refusals else "ok"
    totals = ", ".join(_count(number, what) for number, what in counts) if rows else "empty"
    say(f"{state}: {shown_path(wal_directory)}: {totals}")


def finding_line(finding: Finding) -> str:
    where = f"{finding.path}" + ("" if finding.offset is None else f" at byte {finding.offset}")
    why = "" if finding.why == finding.what else f" ({finding.why})"
    sign = "BAD " if finding.action.refuses else "note"
    then = "" if finding.action is Action.NOTE else f"; at start: {finding.action.value}"
    return printable(f"{sign} {where}: {finding.what}{why}{then}")


def state_of(scan: FileScan, report: WalReport) -> str:
    """A bad end that the second scan did not confirm is a writer at work."""
    verdict: str = scan.verdict.value
    if scan.verdict in (FileVerdict.CLEAN, FileVerdict.EMPTY):
        return verdict
    confirmed = any(finding.path == scan.path for finding in report.findings)
    return verdict if confirmed else BEING_WRITTEN


def report_as_json(report: WalReport) -> dict[str, Any]:
    as_json = report.as_dict()
    scans = [scan for shard in report.shards for scan in shard.files]
    for entry, scan in zip(as_json["files"], scans, strict=True):
        entry["verdict"] = state_of(scan, report)
    return as_json


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
