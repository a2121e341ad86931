"""Report: what was found, kept, cut and refused, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.format.names import wal_file_name
from headwater.recovery.finding import Action, Finding
from headwater.recovery.topics.survey import CurrentState, ShardSurvey
from headwater.recovery.topics.table import (
    CURRENT_ROWS,
    ODDITY_ROWS,
    FilePosition,
    LogOddity,
    decide_file,
)
from headwater.recovery.topics.verdict import FileScan, FileVerdict


@dataclass(slots=True)
class WalReport:
    """What an inspection of the log gave. `findings` leaves out files that are simply fine."""

    shards: list[ShardSurvey] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def refusals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.action.refuses]

    @property
    def groups(self) -> int:
        return sum(scan.groups for shard in self.shards for scan in shard.files)

    @property
    def frames(self) -> int:
        return sum(scan.frames for shard in self.shards for scan in shard.files)

    def raise_if_refused(self) -> None:
        refusals = self.refusals
        if refusals:
            raise refusals[0].as_error()

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": not self.refusals,
            "shards": len(self.shards),
            "groups": self.groups,
            "frames": self.frames,
            "files": [
                {
                    "path": str(scan.path),
                    "verdict": scan.verdict.value,
                    "bytes": scan.length,
                    "end": scan.end,
                    "groups": scan.groups,
                    "frames": scan.frames,
                    "skipped": scan.skipped,
                }
                for shard in self.shards
                for scan in shard.files
            ],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def report_on(shards: list[ShardSurvey]) -> WalReport:
    report = WalReport(shards)
    for shard in shards:
        report.findings.extend(_about_shard(shard))
        for scan in shard.files:
            position = FilePosition.LAST if scan is shard.last else FilePosition.EARLIER
            finding = _about_file(scan, position)
            if finding is not None:
                report.findings.append(finding)
    return report


def _about_file(scan: FileScan, position: FilePosition) -> Finding | None:
    row = decide_file(position, scan.verdict)
    if row.action is not Action.KEEP:
        return Finding(scan.path, scan.end, row.action, scan.reason or row.why, row.why)
    if scan.skipped:
        what = f"{scan.skipped} damaged stretch(es) passed over, as agreed in REPAIRS"
        return Finding(scan.path, None, Action.NOTE, what, "an operator agreed to the loss")
    if (
        scan.verdict is FileVerdict.CLEAN
        and position is FilePosition.LAST
        and scan.length < scan.file_bytes
    ):
        what = f"shorter than the {scan.file_bytes} bytes it was made with; nothing is missing"
        return Finding(scan.path, scan.length, Action.NOTE, what, "only unused zeros are gone")
    return None


def _about_shard(shard: ShardSurvey) -> Iterator[Finding]:
    action, why = CURRENT_ROWS[shard.current_state]
    if action is not Action.KEEP and (shard.files or action.refuses):
        what = f"CURRENT {_SAYS[shard.current_state]}"
        if shard.current is not None:
            # Which file: two inspections beside a writer may each miss another one.
            what += f" ({wal_file_name(shard.current.active)})"
        yield Finding(shard.directory / "CURRENT", None, action, what, why)
    for oddity, paths in (
        (LogOddity.LEFTOVER, shard.leftovers),
        (LogOddity.UNTRIMMED, shard.untrimmed),
        (LogOddity.FOREIGN_NAME, shard.foreign),
        (LogOddity.OLDEST_MISSING, [shard.directory] if shard.oldest_missing else []),
        (LogOddity.REPAIRS_UNREADABLE, [shard.directory] if shard.repairs_unreadable else []),
    ):
        action, why = ODDITY_ROWS[oddity]
        for path in paths:
            yield Finding(path, None, action, oddity.value, why)


_SAYS = {
    CurrentState.ABSENT: "is not there",
    CurrentState.UNREADABLE: "is damaged",
    CurrentState.NAMES_LAST: "names the last file",
    CurrentState.NAMES_EARLIER: "names an earlier file",
    CurrentState.NAMES_MISSING: "names a file that is not there",
    CurrentState.OF_ANOTHER_LOG: "belongs to another log",
}
