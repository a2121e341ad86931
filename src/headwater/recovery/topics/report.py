"""Report: what was found, kept, cut and refused, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.format.names import CURRENT_NAME, wal_file_name
from headwater.recovery.finding import Action, Finding
from headwater.recovery.report import StoreReport
from headwater.recovery.topics.survey import ShardSurvey
from headwater.recovery.topics.table import (
    CURRENT_TABLE,
    FILE_TABLE,
    ODDITY_TABLE,
    FilePosition,
)
from headwater.recovery.topics.verdict import FileScan, FileVerdict, LogOddity


@dataclass(slots=True)
class WalReport(StoreReport):
    """What an inspection of the log gave."""

    shards: list[ShardSurvey] = field(default_factory=list)

    @property
    def groups(self) -> int:
        return sum(scan.groups for shard in self.shards for scan in shard.files)

    @property
    def frames(self) -> int:
        return sum(scan.frames for shard in self.shards for scan in shard.files)

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
    report = WalReport(shards=shards)
    for shard in shards:
        report.findings += _about_shard(shard)
        for scan in shard.files:
            report.findings += _about_file(scan, is_last=scan is shard.last)
    return report


def _about_file(scan: FileScan, *, is_last: bool) -> Iterator[Finding]:
    position = FilePosition.LAST if is_last else FilePosition.EARLIER
    row = FILE_TABLE.decide(scan.verdict, position)
    yield from row.findings(scan.path, scan.reason or row.why, scan.end)
    if row.action is not Action.KEEP:
        return
    if scan.skipped:
        what = f"{scan.skipped} damaged stretch(es) passed over, as agreed in REPAIRS"
        yield Finding(scan.path, None, Action.NOTE, what, "an operator agreed to the loss")
    elif scan.verdict is FileVerdict.CLEAN and is_last and scan.length < scan.file_bytes:
        what = f"shorter than the {scan.file_bytes} bytes it was made with; nothing is missing"
        yield Finding(scan.path, scan.length, Action.NOTE, what, "only unused zeros are gone")


def _about_shard(shard: ShardSurvey) -> Iterator[Finding]:
    row = CURRENT_TABLE.decide(shard.current_state)
    if shard.files or row.action.refuses:
        what = f"CURRENT {shard.current_state.value}"
        if shard.current is not None:
            # Which file: two inspections beside a writer may each miss another one.
            what += f" ({wal_file_name(shard.current.active)})"
        yield from row.findings(shard.directory / CURRENT_NAME, what)
    yield from ODDITY_TABLE.oddities(
        (
            (LogOddity.LEFTOVER, shard.leftovers),
            (LogOddity.UNTRIMMED, shard.untrimmed),
            (LogOddity.FOREIGN_NAME, shard.foreign),
            (LogOddity.OLDEST_MISSING, [shard.directory] if shard.oldest_missing else []),
            (LogOddity.REPAIRS_UNREADABLE, [shard.directory] if shard.repairs_unreadable else []),
        )
    )
