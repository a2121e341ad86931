"""Recovery of a directory of machines: scan, decide, replay in memory, only then repair files.

Each segment is read once: while the survey reads it, what follows without a gap is folded into the
tables. What is behind damage follows when the survey has said what counts (`recovery.machines`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.config.machines import FsyncKind, FsyncPolicy, MachineSettings
from headwater.config.wal import WalSettings
from headwater.disk import Disk, have_directory
from headwater.engine.machines.snapshots import fill_from_snapshot
from headwater.engine.machines.tables import Tables
from headwater.format.machines.names import SNAPSHOTS_DIRECTORY, segment_of, within_segment
from headwater.format.machines.snapshot import SnapshotHeading
from headwater.format.names import WAL_DIRECTORY
from headwater.recovery.finding import Action, Finding
from headwater.recovery.history.machines import MachineFold
from headwater.recovery.machines.judge import BadStretch
from headwater.recovery.machines.repair import repair_machines
from headwater.recovery.machines.replay import MachineLogReport, MachineReplay, log_report
from headwater.recovery.machines.survey import (
    MachineSurvey,
    begin_survey,
    report_on_machines,
    scan_survey,
)
from headwater.recovery.machines.table import MachineOddity
from headwater.wal.policy import EveryMs, EveryN, EveryWrite, Never, SyncPolicy

Progress = Callable[[float], None]
_IGNORED: Final = (MachineOddity.LEFTOVER.value, MachineOddity.FOREIGN_NAME.value)
_log = logging.getLogger("headwater.machines")


@dataclass(slots=True)
class MachineReport:
    """The results of a start, for the operator."""

    log: MachineLogReport
    snapshot: SnapshotHeading | None
    instances: int
    damaged_entries: int
    """Now and before: what a snapshot remembers is counted too."""
    doubtful: bool
    """Some instances may not be in their last state; each of them is marked."""
    findings: list[Finding]
    """Everything that was not simply fine, and what was done about it."""

    @property
    def worth_reporting(self) -> list[Finding]:
        """Without files that no reader opens."""
        return [each for each in self.findings if not each.what.endswith(_IGNORED)]

    @property
    def repaired(self) -> list[Finding]:
        """Without what every interrupted write leaves, too."""
        return [each for each in self.worth_reporting if each.action is not Action.CUT]

    def lines(self) -> list[str]:
        """What an operator should know; empty when all is well."""
        log = self.log
        lines = [
            f"damaged bytes in segment {segment_of(each.offset)} at {within_segment(each.offset)} "
            f"(offset {each.offset}): {each.reason}; skipped, reading went on at {each.resume}"
            for each in log.damage
        ]
        if log.torn is not None:
            lines.append(
                f"torn tail at offset {log.torn.offset}: {log.torn.reason}; "
                f"{log.torn_bytes} bytes were never acknowledged and are in quarantine now"
            )
        lines += [
            each.line()
            for each in self.worth_reporting
            if each.action not in (Action.SKIP, Action.CUT)
        ]
        if self.damaged_entries:
            lines.append(
                f"{self.damaged_entries} entries of the log were damaged and skipped; "
                f"instances that may be affected say so"
            )
        return lines


@dataclass(slots=True)
class Opened:
    tables: Tables
    report: MachineReport


def wal_directory(directory: PurePath) -> PurePath:
    return directory / WAL_DIRECTORY


def snapshots_directory(directory: PurePath) -> PurePath:
    return directory / SNAPSHOTS_DIRECTORY


def make_directories(disk: Disk, directory: PurePath) -> None:
    for each in (directory, wal_directory(directory), snapshots_directory(directory)):
        have_directory(disk, each)


def recover(
    disk: Disk, directory: PurePath, settings: MachineSettings, progress: Progress
) -> Opened:
    """Read everything, cut a torn tail, say what was lost. A second run finds the same."""
    opened, survey = _read(disk, directory, settings, progress)
    repair_machines(disk, survey)
    for line in opened.report.lines():
        _log.warning("%s", line)
    return opened


def inspect_machines(disk: Disk, directory: PurePath, settings: MachineSettings) -> Opened:
    """What a start would find. Changes nothing, not even a torn tail."""
    return _read(disk, directory, settings, lambda _: None)[0]


def _read(
    disk: Disk, directory: PurePath, settings: MachineSettings, progress: Progress
) -> tuple[Opened, MachineSurvey]:
    survey = begin_survey(disk, directory, whole=False)
    report_on_machines(survey).raise_if_refused()
    tables = _empty_tables(settings)
    if survey.chosen is not None:
        fill_from_snapshot(disk, survey.chosen.path, tables)
    fold = MachineFold(tables.machines, tables.instances, tables)
    replay = MachineReplay(disk, survey, fold.take)
    scan_survey(disk, survey, progress, replay.deliver)
    found = report_on_machines(survey)
    found.raise_if_refused()
    replay.finish()
    tables.complete()
    log = log_report(disk, survey, replay)
    _mark_doubt(tables, log.damage)
    heading = survey.heading
    earlier = heading.damaged_entries if heading else 0
    report = MachineReport(
        log,
        heading,
        len(tables.instances),
        earlier + log.damaged_entries,
        tables.doubt_before > 0,
        found.findings,
    )
    return Opened(tables, report), survey


def _empty_tables(settings: MachineSettings) -> Tables:
    return Tables(
        keeps_retired_ids=not settings.ids_may_be_reused,
        keys_bytes_max=settings.idempotency_bytes_max,
    )


def _mark_doubt(tables: Tables, damage: list[BadStretch]) -> None:
    """An instance that was not seen after damaged bytes may have had an entry there."""
    for each in damage:
        tables.doubt_before = max(tables.doubt_before, each.offset + 1)


def sync_policy(policy: FsyncPolicy) -> SyncPolicy:
    made: dict[FsyncKind, Callable[[], SyncPolicy]] = {
        FsyncKind.EVERY_WRITE: EveryWrite,
        FsyncKind.EVERY_N: lambda: EveryN(policy.amount),
        FsyncKind.EVERY_MS: lambda: EveryMs(policy.amount),
        FsyncKind.NEVER: Never,
    }
    return made[policy.kind]()


def shard_settings(settings: MachineSettings) -> WalSettings:
    """Settings for the group-commit loop, which topics use as well."""
    return WalSettings(
        shards=1,
        file_bytes=settings.wal_segment_bytes,
        reserve_bytes=settings.reserve_bytes,
        queue_submissions_max=settings.queue_submissions_max,
        idle_mark_after_us=settings.idle_mark_after_us,
        full_retry_interval_us=settings.full_retry_interval_us,
        zero_chunk_bytes=settings.zero_chunk_bytes,
    )
