"""The steps of a checkpoint in this process and on any disk: what Spark's tasks do, without Spark.

Whatever goes from step to step is packed and unpacked on the way, as between processes.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeVar

from headwater.disk import Disk
from headwater.spark.jobs.checkpoint_source import (
    Chosen,
    Planned,
    planned_of,
    rows_of,
    without_rows,
)
from headwater.spark.jobs.log_files import FileJob, LoggedRows, ScannedFile, scan_log_file
from headwater.spark.jobs.segment_plan import (
    PlanTask,
    SegmentItem,
    Written,
    plan_topic,
    write_segment,
)

T = TypeVar("T")


def sent(thing: T) -> T:
    """As it arrives elsewhere."""
    there: T = pickle.loads(pickle.dumps(thing))
    return there


class OneProcess:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._scanned: list[ScannedFile] = []
        self.items: list[SegmentItem] = []

    def scan(self, jobs: Sequence[FileJob]) -> list[ScannedFile]:
        results = [sent(scan_log_file(self._disk, sent(job))) for job in jobs]
        self._scanned += results
        return [without_rows(file) for file in results]

    def plan(self, tasks: Sequence[PlanTask], chosen: Chosen) -> list[Planned]:
        history: dict[int, list[LoggedRows]] = defaultdict(list)
        for file in reversed(self._scanned):  # a shuffle keeps no order
            for topic_id, rows in rows_of(chosen, file):
                history[topic_id].append(rows)
        plans = [
            sent(plan_topic(self._disk, sent(task), history[task.known.topic_id])) for task in tasks
        ]
        self.items = [item for plan in plans for item in plan.items]
        return [planned_of(plan) for plan in plans]

    def write(self, output: PurePath) -> list[Written]:
        return [sent(write_segment(self._disk, output, item)) for item in reversed(self.items)]
