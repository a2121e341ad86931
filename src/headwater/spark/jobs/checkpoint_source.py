"""What there is to checkpoint: the logs at a place, which of their files count, and the topics.

A data directory goes on from its snapshot and segments, as a start of the engine does. Log files
without one, or copies of logs taken at several times, must hold everything themselves: they have
to begin with the first frame.

And who does the work of a checkpoint, step by step, and keeps what one step gives to the next. A
step is a pure function over many independent items. What stays with the workers between steps is
large: where every record lies. What comes back is small: what was found, planned and written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from headwater.core.errors import DamageError, RequestError, UnavailableError
from headwater.core.units import MIB
from headwater.disk import Disk, PosixDisk
from headwater.format.control_frames import RouterMeta
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import topic_directory_name
from headwater.format.snapshot import Snapshot, TopicMeta
from headwater.recovery.topics.catalog import Catalog
from headwater.recovery.topics.parallel_survey import FileSurvey, FileSurveyTask
from headwater.recovery.topics.scan import FileScan
from headwater.recovery.topics.snapshots import load_snapshot
from headwater.recovery.topics.survey import ShardSurvey, find_shard_directories
from headwater.recovery.topics.table import FileVerdict
from headwater.spark.jobs.log_directories import JobLog
from headwater.spark.jobs.log_files import (
    Covered,
    FileJob,
    GivenGroups,
    LoggedRows,
    Noted,
    ScannedFile,
    covered_by,
    read_log,
    scan_log_file,
)
from headwater.spark.jobs.segment_plan import (
    PlanTask,
    SegmentItem,
    TopicPlan,
    Written,
    plan_topic,
    write_segment,
)
from headwater.spark.jobs.topic_replay import Counts

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.resultiterable import ResultIterable
    from pyspark.sql import SparkSession

TASK_BYTES = 32 * MIB
"""About so much is written by one task."""

Chosen = Mapping[tuple[int, int], int]
"""The label of a log and the number of a file -> the log it counts for. Others do not count."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be written of one topic; the items stay where they are."""

    meta: TopicMeta
    counts: Counts
    first_seqs: list[int]
    data_bytes: int


class Workers(Protocol):
    def scan(self, jobs: Sequence[FileJob]) -> list[ScannedFile]:
        """Scan files. May be called several times; the rows of all of them stay where they are."""

    def plan(self, tasks: Sequence[PlanTask], chosen: Chosen) -> list[Planned]:
        """Plan topics from the rows of the files that were chosen."""

    def write(self, output: PurePath) -> list[Written]:
        """Write everything that was planned."""


class SparkWorkers:
    """Tasks of a Spark session. Files must be where every executor can reach them."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark import StorageLevel

        self._kept = StorageLevel.MEMORY_AND_DISK
        self._context = spark.sparkContext
        self._scanned: list[RDD[ScannedFile]] = [self._context.emptyRDD()]
        self._planned: RDD[TopicPlan] | None = None
        self._segments = 0
        self._bytes = 0

    def scan(self, jobs: Sequence[FileJob]) -> list[ScannedFile]:
        if not jobs:
            return []
        scanned = self._context.parallelize(jobs, len(jobs)).map(_scan).persist(self._kept)
        self._scanned.append(scanned)
        return scanned.map(without_rows).collect()

    def plan(self, tasks: Sequence[PlanTask], chosen: Chosen) -> list[Planned]:
        context = self._context
        known = context.parallelize([(task.known.topic_id, task) for task in tasks])
        rows = context.union(self._scanned).flatMap(partial(rows_of, chosen))
        together = known.cogroup(rows, context.defaultParallelism)
        self._planned = together.flatMap(_plan).persist(self._kept)
        planned = self._planned.map(planned_of).collect()
        self._segments = sum(len(each.first_seqs) for each in planned)
        self._bytes = sum(each.data_bytes for each in planned)
        return planned

    def write(self, output: PurePath) -> list[Written]:
        assert self._planned is not None
        least = self._context.defaultParallelism
        tasks = max(min(self._segments, max(self._bytes // TASK_BYTES, 2 * least)), 1)
        items = self._planned.flatMap(lambda plan: plan.items).repartition(tasks)
        return items.map(partial(_write, str(output))).collect()

    def close(self) -> None:
        for scanned in self._scanned:
            scanned.unpersist()
        if self._planned is not None:
            self._planned.unpersist()


def rows_of(chosen: Chosen, file: ScannedFile) -> Iterator[tuple[int, LoggedRows]]:
    """The rows of a file that was chosen, by topic and under the log it counts for."""
    for rows in file.rows:
        log = chosen.get((rows.order.log, rows.order.number))
        if log is not None:
            rows.order = rows.order._replace(log=log)
            yield rows.topic_id, rows


def without_rows(file: ScannedFile) -> ScannedFile:
    return replace(file, rows=[])


def planned_of(plan: TopicPlan) -> Planned:
    return Planned(
        plan.meta,
        plan.counts,
        [item.first_seq for item in plan.items],
        sum(item.data_bytes for item in plan.items),
    )


def _scan(job: FileJob) -> ScannedFile:
    return scan_log_file(PosixDisk(), job)


def _plan(
    topic: tuple[int, tuple[ResultIterable[PlanTask], ResultIterable[LoggedRows]]],
) -> Iterator[TopicPlan]:
    _, (tasks, rows) = topic
    for task in tasks:  # none for a topic that is gone, or was not chosen
        yield plan_topic(PosixDisk(), task, list(rows))


def _write(output: str, item: SegmentItem) -> Written:
    return write_segment(PosixDisk(), PurePath(output), item)


@dataclass(slots=True)
class LogsRead:
    """The logs of all directories, scanned."""

    catalog: Catalog
    snapshot: Snapshot | None
    data: PurePath | None
    """The data directory that is gone on from; None when there are only log files."""
    chosen: dict[tuple[int, int], int]
    scans: list[FileScan]
    """Of the files that count."""
    routers: tuple[RouterMeta, ...]

    @property
    def clean_runs(self) -> tuple[int, ...]:
        """Runs after which no seq was left that was handed out and has no record."""
        return tuple(sorted({run for scan in self.scans for run in scan.clean_runs}))

    @property
    def torn(self) -> list[FileScan]:
        return [scan for scan in self.scans if scan.verdict is FileVerdict.TORN]

    def segments_of(self, topic_id: int) -> str | None:
        if self.data is None:
            return None
        return str(self.data / TOPICS_DIRECTORY / topic_directory_name(topic_id))


def read_logs(disk: Disk, logs: Sequence[JobLog], workers: Workers, now_ms: int) -> LogsRead:
    """Scan every log file. Refuses what a start of the engine would refuse."""
    data = logs[0].data if len(logs) == 1 else None
    snapshot = None if data is None else load_snapshot(disk, data, [])
    reader = _LogSetReader(disk, workers, covered_by(data, snapshot), data is None, now_ms)
    for log_directory in logs:
        reader.read(log_directory)
    chosen = reader.choose()
    catalog = Catalog(snapshot, with_segments=data is not None)
    for _, notes in sorted(_counted(reader.notes, chosen), key=lambda each: each[0]):
        catalog.take(notes)
    scans = [file.scan for file in reader.files if (file.label, file.scan.number) in chosen]
    routers = _routers_at_rest(snapshot, catalog, reader.results)
    return LogsRead(catalog, snapshot, data, chosen, scans, routers)


def _routers_at_rest(
    snapshot: Snapshot | None, catalog: Catalog, results: Sequence[ScannedFile]
) -> tuple[RouterMeta, ...]:
    """The routers as the snapshot knows them, if the log knows nothing newer."""
    metas = {} if snapshot is None else {meta.router_id: meta for meta in snapshot.routers}
    changed = {topic.topic_id for topic in catalog if topic.changed}
    at_work = any(file.routing for file in results) or any(
        meta.source_id in changed or meta.dest_id in changed for meta in metas.values()
    )
    for router_id, number in (each for file in results for each in file.router_marks.items()):
        at_work = at_work or router_id not in metas or metas[router_id].number < number
    if at_work:
        raise RequestError(
            "there are routers, and what they copied last is in no log; start Headwater on this "
            "directory, stop it, and checkpoint what it leaves"
        )
    return tuple(metas.values())


def _counted(notes: list[Noted], chosen: Chosen) -> Iterator[Noted]:
    for order, by_topic in notes:
        log = chosen.get((order.log, order.number))
        if log is not None:
            yield order._replace(log=log), by_topic


@dataclass(frozen=True, slots=True)
class _LogFile:
    label: int
    """Of the log directory it is in."""
    log_id: int | None
    scan: FileScan
    survey: FileSurvey | None
    """None where losses were agreed to: there the chain has holes."""


@dataclass(slots=True)
class _LogSetReader:
    disk: Disk
    workers: Workers
    covered: dict[PurePath, Covered]
    log_only: bool
    now_ms: int
    files: list[_LogFile] = field(default_factory=list)
    results: list[ScannedFile] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)
    _labels: dict[PurePath, int] = field(default_factory=dict)
    _writers: dict[tuple[str, int], tuple[int, PurePath]] = field(default_factory=dict)
    """Name of a log's directory and a run -> the log that was written there then, and where."""

    def read(self, log_directory: JobLog) -> None:
        for directory in find_shard_directories(self.disk, log_directory.wal):
            self._labels[directory] = len(self._labels)
        log = read_log(self.disk, log_directory.wal, self._job, self.workers.scan)
        log.report.raise_if_refused()
        if log.changed is not None:
            raise UnavailableError(f"{log.changed} was changed while it was being read")
        for shard in log.report.shards:
            label = self._labels[shard.directory]
            for scan in shard.files:
                survey = None if shard.repairs.skips else log.files[scan.path].survey
                self.files.append(_LogFile(label, shard.chain.log_id, scan, survey))
        self.results += log.files.values()
        notes = log.notes()
        self._refuse_strangers(log_directory, log.report.shards, notes)
        self.notes += notes

    def _job(self, task: FileSurveyTask, given: GivenGroups | None) -> FileJob:
        directory = task.file.path.parent
        return FileJob(
            task,
            self._labels[directory],
            self.covered.get(directory),
            with_marks=self.log_only,
            now_ms=self.now_ms,
            given=given,
        )

    def _refuse_strangers(
        self, log_directory: JobLog, shards: Sequence[ShardSurvey], notes: Sequence[Noted]
    ) -> None:
        """Two databases have both had a first run; copies of one have the same log in each."""
        by_label = {self._labels[shard.directory]: shard for shard in shards}
        for label, run in {(order.log, order.run) for order, _ in notes}:
            shard = by_label[label]
            name = shard.directory.relative_to(log_directory.wal).as_posix()
            here = (shard.chain.log_id or 0, shard.directory)
            first = self._writers.setdefault((name, run), here)
            if first[0] != here[0]:
                raise RequestError(
                    f"{first[1]} and {here[1]} are logs of different databases; "
                    "checkpoint them one by one"
                )

    def choose(self) -> dict[tuple[int, int], int]:
        """Of every file of every log the copy that reaches furthest; the chain must be whole."""
        by_log: dict[int, dict[int, list[_LogFile]]] = defaultdict(lambda: defaultdict(list))
        for file in self.files:
            by_log[file.log_id or 0][file.scan.number].append(file)
        chosen: dict[tuple[int, int], int] = {}
        for copies in by_log.values():
            best = [max(copies[n], key=lambda each: each.scan.end) for n in sorted(copies)]
            self._check_reach(best[0])
            for one, other in pairwise(best):
                _check_join(one, other)
            log = min(file.label for file in best)
            chosen.update({(file.label, file.scan.number): log for file in best})
        return chosen

    def _check_reach(self, first: _LogFile) -> None:
        covered, scan = self.covered.get(first.scan.path.parent), first.scan
        ends = 0
        if covered is not None and first.log_id in (None, covered.log_id):
            ends = covered.frame
        if scan.number > ends + 1:
            raise DamageError(
                f"the log begins at frame {scan.number}, and what is known of it ends at {ends}",
                path=scan.path,
                advice="name the data directory with its snapshots, or the log from its beginning",
            )


def _check_join(one: _LogFile, other: _LogFile) -> None:
    """Two files of one log, maybe from different places: the second must go on from the first."""
    if one.survey is None or other.survey is None:
        return
    chain, first = one.survey.chain, other.survey.first
    if first is None or first.frame != chain.next_frame or first.chain != chain.chain:
        raise DamageError(
            f"frames {chain.next_frame} to {other.scan.number - 1} are in no file: "
            f"{other.scan.path} does not go on from here",
            path=one.scan.path,
            offset=one.scan.end,
            advice="add the files that are missing",
        )
