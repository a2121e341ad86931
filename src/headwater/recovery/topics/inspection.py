"""Inspect a log that another process may be writing to.

A finding counts when two inspections in a row agree on it. Nothing is locked or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from headwater.core.errors import AccessError
from headwater.disk import Disk
from headwater.recovery.report import ATTEMPTS_MAX, agreed_report
from headwater.recovery.topics.repair import inspect_wal
from headwater.recovery.topics.report import WalReport
from headwater.recovery.topics.scan import CoveredFrames
from headwater.recovery.topics.survey import ShardSurvey
from headwater.recovery.topics.verdict import FileVerdict
from headwater.store.segment import SegmentChangedError


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
