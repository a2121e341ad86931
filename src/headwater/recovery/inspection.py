"""Look at a log that somebody may be writing to.

A look takes time, and a writer does not wait for it: a group can be half written, a file rotated
away between two reads. What is really there is there the second time as well, so a finding counts
when two looks in a row agree on it. Nothing is locked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Final

from headwater.core.errors import AccessError
from headwater.disk import Disk
from headwater.recovery.report import WalReport
from headwater.recovery.scan import Covered
from headwater.recovery.survey import ShardSurvey
from headwater.recovery.verdict import Verdict
from headwater.recovery.wal_recovery import look
from headwater.store.segment import SegmentChangedError

LOOKS_MAX: Final = 4


def look_until_settled(
    disk: Disk,
    wal_directory: PurePath,
    *,
    deep: bool = False,
    covered: Mapping[PurePath, Covered] | None = None,
) -> WalReport:
    report = _look(disk, wal_directory, deep, covered)
    for _ in range(LOOKS_MAX - 1):
        if not report.findings:
            return report
        earlier = frozenset(report.findings)
        report = _look(disk, wal_directory, deep, covered)
        if earlier.issuperset(report.refusals):
            break
    else:
        earlier = frozenset(report.findings)
        report = _look(disk, wal_directory, deep, covered)
    agreed = [finding for finding in report.findings if finding in earlier]
    return WalReport(report.shards, agreed)


def _look(
    disk: Disk, wal_directory: PurePath, deep: bool, covered: Mapping[PurePath, Covered] | None
) -> WalReport:
    """One look; a file that was trimmed away in the middle of it is a reason to start again."""
    for _ in range(LOOKS_MAX - 1):
        try:
            return look(disk, wal_directory, deep=deep, covered=covered)
        except AccessError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return look(disk, wal_directory, deep=deep, covered=covered)


def refuse_unfinished(shards: Iterable[ShardSurvey]) -> None:
    """Only the last file of a shard can be in the middle of a write."""
    for shard in shards:
        for scan in shard.files[:-1]:
            if scan.verdict is not Verdict.CLEAN:
                raise SegmentChangedError(f"{scan.path} was changed while it was being read")
