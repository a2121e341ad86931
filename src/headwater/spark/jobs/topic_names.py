"""Which topic a name stands for, in a data directory that no process changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import PurePath

from headwater.core.errors import RequestError
from headwater.disk import Disk
from headwater.format.names import WAL_DIRECTORY
from headwater.format.snapshot import Snapshot
from headwater.recovery.topics.catalog import Catalog
from headwater.recovery.topics.parallel_survey import FileSurveyTask
from headwater.recovery.topics.snapshots import load_snapshot
from headwater.recovery.topics.survey import find_shard_directories
from headwater.spark.jobs.log_files import FileJob, GivenGroups, covered_by, scan_log_file
from headwater.spark.jobs.log_scan import LogRead, read_log
from headwater.spark.jobs.task_map import MapAll


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
