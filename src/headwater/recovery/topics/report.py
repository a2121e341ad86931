"""Report: what was found, kept, cut and refused, for people and for programs.

A log that another process may be writing to is inspected until two inspections in a row agree: only
then a finding counts. Nothing is locked or written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from headwater.core.errors import AccessError
from headwater.disk import Disk
from headwater.format.names import CURRENT_NAME, wal_file_name
from headwater.recovery.finding import ATTEMPTS_MAX, Action, Finding, StoreReport, agreed_report
from headwater.recovery.topics.scan import NOTHING_COVERED, CoveredFrames, FileScan
from headwater.recovery.topics.survey import ShardSurvey, find_shard_directories, survey_shard
from headwater.recovery.topics.table import (
    CURRENT_TABLE,
    FILE_TABLE,
    ODDITY_TABLE,
    FilePosition,
    FileVerdict,
    LogOddity,
)
from headwater.store.segment import SegmentChangedError


def inspect_wal(
    disk: Disk,
    wal_directory: PurePath,
    *,
    deep: bool = False,
    covered: Mapping[PurePath, CoveredFrames] | None = None,
) -> WalReport:
    """Survey all shards and decide, without changing anything.

    `covered` says, by directory, what a snapshot has: nothing is said about those groups.
    """
    directories = find_shard_directories(disk, wal_directory)
    known = covered or {}
    shards = [
        survey_shard(disk, each, deep=deep, covered=known.get(each, NOTHING_COVERED))
        for each in directories
    ]
    return report_on(without_bare(shards))


def without_bare(shards: list[ShardSurvey]) -> list[ShardSurvey]:
    """The flat directory holds the shard directories; an empty one says nothing."""
    return [shard for shard in shards if not shard.is_bare] if len(shards) > 1 else shards


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


def inspect_until_stable(
    disk: Disk,
    wal_directory: PurePath,
    *,
    deep: bool = False,
    covered: Mapping[PurePath, CoveredFrames] | None = None,
) -> WalReport:
    return agreed_report(lambda: _inspect(disk, wal_directory, deep, covered))


def _inspect(
    disk: Disk,
    wal_directory: PurePath,
    deep: bool,
    covered: Mapping[PurePath, CoveredFrames] | None,
) -> WalReport:
    """One inspection; it starts again when a file was trimmed away in the middle of it."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return inspect_wal(disk, wal_directory, deep=deep, covered=covered)
        except AccessError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return inspect_wal(disk, wal_directory, deep=deep, covered=covered)


def refuse_unfinished(shards: Iterable[ShardSurvey]) -> None:
    """Only the last file of a shard can be in the middle of a write."""
    for shard in shards:
        for scan in shard.files[:-1]:
            if scan.verdict is not FileVerdict.CLEAN:
                raise SegmentChangedError(f"{scan.path} was changed while it was being read")
