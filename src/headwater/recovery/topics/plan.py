"""Repair of the topics' log: what an operator may agree to when it refuses to start.

A plan is made first and shown. It loses only what is already lost: damaged stretches are passed
over (REPAIRS says where), foreign files are moved to quarantine, CURRENT is pointed at what is
there. Every file that is passed over in part is copied to quarantine before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar, Final

from headwater.core.errors import InvariantError, RequestError
from headwater.disk import Disk, remove_files, replace_file
from headwater.format.log_state import Current, Repairs, Skip, encode_current, encode_repairs
from headwater.format.names import CURRENT_NAME, REPAIRS_NAME
from headwater.recovery.finding import RepairPlan, RepairStep, StepKind
from headwater.recovery.repair import keep_copy, move_to_quarantine
from headwater.recovery.topics.report import report_on
from headwater.recovery.topics.scan import END_OF_FILE, FileScan
from headwater.recovery.topics.survey import (
    ShardSurvey,
    find_shard_directories,
    read_log_file,
    survey_shard,
)
from headwater.recovery.topics.table import CurrentState, FileVerdict

SKIPS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class LogRepairPlan(RepairPlan):
    """Of one shard of the topics' log."""

    store: ClassVar[str] = "topics"
    repairs: Repairs

    def carry_out(self, disk: Disk) -> None:
        apply_repairs(disk, self)


def plan_repairs(disk: Disk, wal_directory: PurePath) -> list[LogRepairPlan]:
    """One plan per shard that needs one. Raises when a newer version wrote the log."""
    plans = []
    for directory in find_shard_directories(disk, wal_directory):
        plan = _plan_shard(disk, directory)
        if plan.steps:
            plans.append(plan)
    return plans


def apply_repairs(disk: Disk, plan: LogRepairPlan) -> None:
    """Carry out a plan. The caller holds the directory lock. Can be repeated after a crash."""
    for step in plan.steps:
        if step.kind is StepKind.QUARANTINE:
            move_to_quarantine(disk, step.path)
    for path in dict.fromkeys(step.path for step in plan.steps if step.kind is StepKind.SKIP):
        keep_copy(disk, path, f"{path.name}.damaged", bytes(read_log_file(disk, path)))
    if any(step.kind is StepKind.SKIP for step in plan.steps):
        replace_file(disk, plan.directory / REPAIRS_NAME, encode_repairs(plan.repairs))
    if any(step.kind is StepKind.POINT_CURRENT for step in plan.steps):
        _point_current(disk, plan)


def _plan_shard(disk: Disk, directory: PurePath) -> LogRepairPlan:
    survey = survey_shard(disk, directory)
    report_on([survey]).raise_if_newer()
    strangers = [*survey.foreign, *_foreign_files(survey)]
    if survey.current_state is CurrentState.OF_ANOTHER_LOG:
        strangers.append(directory / CURRENT_NAME)
    steps = [RepairStep(StepKind.QUARANTINE, path, "not a file of this log") for path in strangers]
    if survey.current_state is CurrentState.NAMES_MISSING or survey.oldest_missing:
        what = "what the missing file held is lost"
        steps.append(RepairStep(StepKind.POINT_CURRENT, directory / CURRENT_NAME, what))
    repairs = survey.repairs
    for _ in range(SKIPS_MAX):
        damaged = next((s for s in survey.files if _needs_skip(s, survey)), None)
        if damaged is None:
            return LogRepairPlan(directory, tuple(steps), repairs)
        skip = Skip(
            damaged.number,
            damaged.end,
            END_OF_FILE if damaged.resume is None else damaged.resume,
            damaged.reason,
        )
        repairs = Repairs((*repairs.skips, skip))
        what = f"{damaged.reason}, from byte {skip.offset} " + (
            "to the end of the file" if skip.resume == END_OF_FILE else f"to byte {skip.resume}"
        )
        steps.append(
            RepairStep(
                StepKind.SKIP,
                damaged.path,
                what,
                damaged.end,
                skip.resume,
                damaged.frames_lost,
                reason=damaged.reason,
            )
        )
        survey = survey_shard(disk, directory, repairs=repairs)
    raise RequestError(f"{directory} has more than {SKIPS_MAX} damaged places; restore a backup")


def _foreign_files(survey: ShardSurvey) -> list[PurePath]:
    return [scan.path for scan in survey.files if scan.verdict is FileVerdict.FOREIGN]


def _needs_skip(scan: FileScan, survey: ShardSurvey) -> bool:
    if scan.verdict is FileVerdict.DAMAGED:
        return True
    return scan.verdict in (FileVerdict.EMPTY, FileVerdict.TORN) and scan is not survey.last


def _point_current(disk: Disk, plan: LogRepairPlan) -> None:
    survey = survey_shard(disk, plan.directory, repairs=plan.repairs)
    path = plan.directory / CURRENT_NAME
    if not survey.files:
        remove_files(disk, [path])
        return
    last = survey.files[-1]
    if last.length == 0:
        raise InvariantError(f"{last.path} is empty and cannot be the active file")
    log_id = survey.chain.log_id
    if log_id is None:
        raise InvariantError(f"{plan.directory} has a CURRENT and no log id")
    current = Current(last.number, last.length, 0, survey.files[0].number, log_id)
    replace_file(disk, path, encode_current(current))
