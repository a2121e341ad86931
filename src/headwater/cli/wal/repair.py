"""`headwater wal verify` and `headwater repair`: is the log sound, and if not, where; what can be
saved in every store, shown, or done with --apply."""

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
from headwater.recovery.directory import accessing
from headwater.recovery.finding import Action, Finding, RepairPlan, RepairStep, StepKind
from headwater.recovery.stores import BESIDE_TOPICS, EVERY_STORE
from headwater.recovery.topics.plan import plan_repairs
from headwater.recovery.topics.repair import claim_directory
from headwater.recovery.topics.report import WalReport, inspect_until_stable, inspect_wal
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


Plans = list[RepairPlan]


def repair(
    directory: DirectoryArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Carry the plan out. Without it nothing is changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how a directory that Headwater refuses could be read again, and what that would lose.

    The topics' log, the machines and Kafka's log. What is damaged is passed over whole, and copied
    to quarantine first; files that are not ours are moved there. With --apply the data directory
    must not be in use. Given its wal/ directory, only the topics' log is repaired.
    """
    log = find_log(PosixDisk(), directory)
    with reading(log.wal, "Reading") as disk:
        plans = _plan(disk, log)
    if not (plans and apply):
        _show(plans, log, as_json, f"{directory}")
        return
    if log.data is None:
        raise RequestError(
            f"{log.wal} is not inside a data directory, so it cannot be locked; "
            "name it wal/ and put it into a directory of its own, then repair that"
        )
    disk = PosixDisk()
    lock = claim_directory(disk, log.data)
    try:
        plans = _plan_now(disk, log)  # again: under the lock no other process changes anything
        if not as_json:
            _say_plans(plans)
        _carry_out(disk, plans)
        report = inspect_wal(disk, log.wal)
        beside = [
            finding
            for store in BESIDE_TOPICS
            if log.is_whole
            for finding in store.findings(disk, log.data)
        ]
    finally:
        lock.release()
    _show_result(report, beside, plans, log, as_json)


def _plan(disk: Disk, log: LogDirectory) -> Plans:
    """Scans first: on a log in use, damage that a single scan reports may be a writer at work."""
    if not log.is_whole:
        report = inspect_until_stable(disk, log.wal)
        return list(plan_repairs(disk, log.wal)) if report.refusals else []
    assert log.data is not None
    return [plan for store in EVERY_STORE for plan in store.agreed_plans(disk, log.data)]


def _plan_now(disk: Disk, log: LogDirectory) -> Plans:
    if not log.is_whole:
        return list(plan_repairs(disk, log.wal))
    assert log.data is not None
    return [plan for store in EVERY_STORE for plan in store.plans(disk, log.data)]


def _carry_out(disk: Disk, plans: Plans) -> None:
    for plan in plans:
        with accessing(plan.directory):
            plan.carry_out(disk)


def _show(plans: Plans, log: LogDirectory, as_json: bool, typed: str) -> None:
    if as_json:
        say_json({"applied": False, "plans": [_plan_as_json(plan) for plan in plans]})
        return
    if not plans:
        say(f"{shown_path(shown_directory(log))}: nothing to repair")
        return
    _say_plans(plans)
    say("Nothing was changed. To carry this out, stop Headwater and run:")
    say(f"  headwater repair {printable(typed)} --apply")


def _say_plans(plans: Plans) -> None:
    for plan in plans:
        say(f"{shown_path(plan.directory)}:")
        for number, step in enumerate(plan.steps, start=1):
            say(f"  {number}. {_step_line(step, plan)}")
    steps = [step for plan in plans for step in plan.steps if step.gives_up]
    for unit in dict.fromkeys(step.unit for step in steps):
        lost = [step.lost for step in steps if step.unit == unit]
        known = sum(count for count in lost if count is not None)
        more = " or more" if None in lost else ""
        why = ": a group with damage in it is passed over whole" if unit == "frame" else ""
        say(f"Gives up {known:,} {unit}(s){more}{why}.")


def _step_line(step: RepairStep, plan: RepairPlan) -> str:
    return printable(step.line().removeprefix(f"{plan.directory}/"))


def _show_result(
    report: WalReport, beside: list[Finding], plans: Plans, log: LogDirectory, as_json: bool
) -> None:
    refusals = [*report.refusals, *(each for each in beside if each.action.refuses)]
    if as_json:
        shown = [_plan_as_json(plan) for plan in plans]
        after = report_as_json(report) | {"ok": not refusals}
        after["findings"] += [finding.as_dict() for finding in beside]
        say_json({"applied": True, "plans": shown, "after": after})
    else:
        for finding in [*report.findings, *beside]:
            say(finding_line(finding))
        if not refusals:
            where = shown_path(shown_directory(log))
            say(f"repaired: {where}: {report.groups:,} groups of the topics' log can be read")
    if refusals:
        complain(f"still not sound: {refusals[0].as_error()}")
        raise typer.Exit(StorageError.exit_code)


def _plan_as_json(plan: RepairPlan) -> dict[str, Any]:
    return {
        "store": plan.store,
        "directory": str(plan.directory),
        "steps": [
            {
                "kind": step.kind.name.lower(),
                "path": str(step.path),
                "what": step.what,
                "offset": step.offset,
                "resume": step.resume,
                "lost": step.lost,
                "unit": step.unit if step.gives_up else None,
            }
            for step in plan.steps
        ],
    }
