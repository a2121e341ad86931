"""All files of one log directory, surveyed and noted by the workers of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from headwater.disk import Disk
from headwater.recovery.topics.catalog import TopicNotes
from headwater.recovery.topics.parallel_survey import FileSurvey, FileSurveyTask, survey_in_parallel
from headwater.recovery.topics.report import WalReport
from headwater.recovery.topics.scan import Surroundings
from headwater.recovery.topics.survey import FileTask, ShardSurvey
from headwater.spark.jobs.log_files import FileJob, GivenGroups, Order

Noted = tuple[Order, dict[int, TopicNotes]]


class ScanResult(Protocol):
    """What the scan of one file gives."""

    @property
    def survey(self) -> FileSurvey: ...

    @property
    def notes(self) -> list[Noted]: ...

    @property
    def ends_in_zeros(self) -> bool: ...

    @property
    def routing(self) -> bool: ...

    @property
    def router_marks(self) -> dict[int, int]: ...


MakeJob = Callable[[FileSurveyTask, GivenGroups | None], FileJob]
Scan = Callable[[Sequence[FileJob]], Sequence[ScanResult]]


@dataclass(frozen=True, slots=True)
class LogRead:
    report: WalReport
    files: dict[PurePath, ScanResult]
    """By path; those of a log with agreed losses were read by the groups found in order."""

    @property
    def changed(self) -> PurePath | None:
        """A file that was not the same when it was read again, and yet is not damaged."""
        for shard in self.report.shards:
            for scan in shard.files:
                result = self.files.get(scan.path)
                if not shard.repairs.skips and (result is None or result.survey.scan is not scan):
                    return scan.path
        return None

    def notes(self) -> list[Noted]:
        return [noted for result in self.files.values() for noted in result.notes]


def read_log(
    disk: Disk, wal_directory: PurePath, job: MakeJob, scan: Scan, *, deep: bool = False
) -> LogRead:
    """Scan every file by itself. The caller decides whether to trust the log."""
    files: dict[PurePath, ScanResult] = {}

    def survey(tasks: Sequence[FileSurveyTask]) -> list[FileSurvey]:
        results = scan([job(task, None) for task in tasks])
        files.update(zip((task.file.path for task in tasks), results, strict=True))
        return [each.survey for each in results]

    report = survey_in_parallel(disk, wal_directory, survey, deep=deep)
    for shard in report.shards:
        if shard.repairs.skips and not report.refusals:
            jobs = [job(task, given) for task, given in _as_read(shard)]
            paths = [scan.path for scan in shard.files]
            files.update(zip(paths, scan(jobs), strict=True))
    return LogRead(report, files)


def _as_read(shard: ShardSurvey) -> list[tuple[FileSurveyTask, GivenGroups]]:
    """Its files with the groups that were found by reading in order."""
    return [
        (
            FileSurveyTask(FileTask(scan.path, scan.number, Surroundings()), shard.chain.log_id),
            GivenGroups(scan.spans.tobytes(), scan.end),
        )
        for scan in shard.files
    ]
