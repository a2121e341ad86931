"""All files of one log directory, surveyed and noted by the workers of a job.

And which topic a name stands for, in a data directory that no process changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from headwater.core.errors import RequestError
from headwater.disk import Disk
from headwater.format.names import WAL_DIRECTORY
from headwater.format.snapshot import Snapshot
from headwater.recovery.topics.catalog import Catalog, TopicNotes
from headwater.recovery.topics.parallel_survey import FileSurvey, FileSurveyTask, survey_in_parallel
from headwater.recovery.topics.report import WalReport
from headwater.recovery.topics.scan import Surroundings
from headwater.recovery.topics.snapshots import load_snapshot
from headwater.recovery.topics.survey import FileTask, ShardSurvey, find_shard_directories
from headwater.spark.jobs.job import MapAll
from headwater.spark.jobs.log_files import (
    FileJob,
    GivenGroups,
    Order,
    ScannedFile,
    covered_by,
    scan_log_file,
)

Noted = tuple[Order, dict[int, TopicNotes]]


MakeJob = Callable[[FileSurveyTask, GivenGroups | None], FileJob]
Scan = Callable[[Sequence[FileJob]], Sequence[ScannedFile]]


@dataclass(frozen=True, slots=True)
class LogRead:
    report: WalReport
    files: dict[PurePath, ScannedFile]
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
    files: dict[PurePath, ScannedFile] = {}

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


def topic_ids(
    disk: Disk, directory: PurePath, names: Sequence[str], map_all: MapAll
) -> frozenset[int]:
    """The ids of topics by their names; a name that no topic has is refused."""
    snapshot = load_snapshot(disk, directory, [])
    log = noted_log(disk, directory, snapshot, map_all)
    log.report.raise_if_refused()
    catalog = catalog_of(log, snapshot)
    ids = []
    for name in names:
        topic = catalog.find(name)
        if topic is None:
            raise RequestError(f"there is no topic {name!r} in {directory}")
        ids.append(topic.topic_id)
    return frozenset(ids)


def noted_log(
    disk: Disk,
    directory: PurePath,
    snapshot: Snapshot | None,
    map_all: MapAll,
    *,
    deep: bool = False,
) -> LogRead:
    """Every log file scanned, and noted what it says of topics, but for their records."""
    wal = directory / WAL_DIRECTORY
    labels = {path: label for label, path in enumerate(find_shard_directories(disk, wal))}
    covered = covered_by(directory, snapshot)

    def job(task: FileSurveyTask, given: GivenGroups | None) -> FileJob:
        where = task.file.path.parent
        return FileJob(task, labels[where], covered.get(where), with_rows=False, given=given)

    return read_log(disk, wal, job, partial(map_all, partial(scan_log_file, disk)), deep=deep)


def catalog_of(log: LogRead, snapshot: Snapshot | None) -> Catalog:
    catalog = Catalog(snapshot)
    for _, notes in sorted(log.notes(), key=lambda noted: noted[0]):
        catalog.take(notes)
    return catalog
