"""`headwater wal repair`: show what can be saved; do it when told to."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any

import typer

from headwater.cli.output import complain, printable, say, say_json, shown_path
from headwater.cli.place import DirectoryArgument, JsonOption, Place, find_log
from headwater.cli.progress import reading
from headwater.cli.wal_verify import finding_line, report_as_json
from headwater.core.errors import RequestError, StorageError
from headwater.disk import Disk, PosixDisk
from headwater.recovery.looking import look_until_settled
from headwater.recovery.mending import RepairPlan, RepairStep, StepKind, apply_repairs, plan_repairs
from headwater.recovery.opening import claim_directory
from headwater.recovery.recover import look
from headwater.recovery.report import WalReport
from headwater.recovery.survey import access_error


def repair(
    directory: DirectoryArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Carry the plan out. Without it nothing is changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show how a log that Headwater refuses could be read again, and what that would lose.

    Groups with damage in them are passed over whole (REPAIRS remembers where), their files are
    copied to quarantine first, files that are not ours are moved there. No byte of a log file is
    changed. With --apply the data directory must not be in use.
    """
    place = find_log(PosixDisk(), directory)
    with reading(place.wal, "Reading the log") as disk:
        plans = _plan(disk, place.wal)
    if not (plans and apply):
        _show(plans, place, as_json, f"{directory}")
        return
    if place.data is None:
        raise RequestError(
            f"{place.wal} is not inside a data directory, so it cannot be locked; "
            "name it wal/ and put it into a directory of its own, then repair that"
        )
    disk = PosixDisk()
    lock = claim_directory(disk, place.data)
    try:
        plans = plan_repairs(disk, place.wal)  # again: nobody can change anything from here on
        if not as_json:
            _say_plans(plans)
        _apply(disk, plans)
        report = look(disk, place.wal)
    finally:
        lock.release()
    _show_result(report, plans, place, as_json)


def _plan(disk: Disk, wal_directory: PurePath) -> list[RepairPlan]:
    """Looking comes first: on a log in use, what a single look dislikes may be a writer at work."""
    report = look_until_settled(disk, wal_directory)
    return plan_repairs(disk, wal_directory) if report.refusals else []


def _apply(disk: Disk, plans: list[RepairPlan]) -> None:
    for plan in plans:
        try:
            apply_repairs(disk, plan)
        except OSError as error:
            raise access_error(plan.directory, error) from error


def _show(plans: list[RepairPlan], place: Place, as_json: bool, typed: str) -> None:
    if as_json:
        say_json({"applied": False, "plans": [_plan_as_json(plan) for plan in plans]})
        return
    if not plans:
        say(f"{shown_path(place.wal)}: nothing to repair")
        return
    _say_plans(plans)
    say("Nothing was changed. To carry this out, stop Headwater and run:")
    say(f"  headwater wal repair {printable(typed)} --apply")


def _say_plans(plans: list[RepairPlan]) -> None:
    for plan in plans:
        say(f"{shown_path(plan.directory)}:")
        for number, step in enumerate(plan.steps, start=1):
            say(f"  {number}. {_step_line(step)}")
    steps = [step for plan in plans for step in plan.steps if step.kind is StepKind.SKIP]
    if steps:
        lost = [step.frames_lost for step in steps]
        known = sum(count for count in lost if count is not None)
        more = " or more" if None in lost else ""
        say(f"Gives up {known:,} frame(s){more}: a group with damage in it is passed over whole.")


def _step_line(step: RepairStep) -> str:
    return printable(step.line().removeprefix(f"{step.path.parent}/"))


def _show_result(report: WalReport, plans: list[RepairPlan], place: Place, as_json: bool) -> None:
    if as_json:
        shown = [_plan_as_json(plan) for plan in plans]
        say_json({"applied": True, "plans": shown, "after": report_as_json(report)})
    else:
        for finding in report.findings:
            say(finding_line(finding))
        if not report.refusals:
            say(f"repaired: {shown_path(place.wal)}: {report.groups:,} groups can be read")
    if report.refusals:
        complain(f"the log is still not sound: {report.refusals[0].as_error()}")
        raise typer.Exit(StorageError.exit_code)


def _plan_as_json(plan: RepairPlan) -> dict[str, Any]:
    return {
        "directory": str(plan.directory),
        "steps": [
            {
                "kind": step.kind.name.lower(),
                "path": str(step.path),
                "what": step.what,
                "offset": None if step.skip is None else step.skip.offset,
                "resume": None if step.skip is None else step.skip.resume,
                "frames_lost": step.frames_lost,
            }
            for step in plan.steps
        ],
    }
