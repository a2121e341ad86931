"""Who does the work of a checkpoint, step by step, and keeps what one step gives to the next.

A step is a pure function over many independent items. What stays with the workers between steps
is large: where every record lies. What comes back is small: what was found, planned and written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from headwater.core.units import MIB
from headwater.disk import PosixDisk
from headwater.format.snapshot import TopicMeta
from headwater.spark.jobs.log_files import FileJob, LoggedRows, ScannedFile, scan_log_file
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
