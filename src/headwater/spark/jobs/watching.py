"""Progress of a Spark action: how many of its tasks are done, asked from Spark now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headwater.core.clock import Clock, Doorbell, SystemClock
from headwater.core.units import US_PER_S
from headwater.spark.jobs.job import NoProgress, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_US: Final = US_PER_S // 4


@contextmanager
def tasks_shown(
    spark: SparkSession, progress: Progress | None, clock: Clock | None = None
) -> Iterator[None]:
    """While the block runs, `progress` hears of every task of the session that ends.

    For jobs that are one action or a few. One that counts bytes or records itself does not need it.
    """
    if progress is None or isinstance(progress, NoProgress):
        yield
        return
    watcher = _Watcher(spark, progress, clock or SystemClock())
    thread = threading.Thread(target=watcher.watch, name="spark-tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watcher.end()
        thread.join()


class _Watcher:
    def __init__(self, spark: SparkSession, progress: Progress, clock: Clock) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._progress = progress
        self._clock = clock
        self._doorbell = Doorbell()
        self._ended = False
        self._tasks: dict[int, int] = {}
        """stage -> how many tasks it has"""
        self._done: dict[int, int] = {}

    def end(self) -> None:
        self._ended = True
        self._doorbell.ring()

    def watch(self) -> None:
        while not self._ended:
            self._look()
            self._clock.wait(self._doorbell, self._clock.monotonic_us() + EVERY_US)
        # What ended between two looks ended: a stage is forgotten only when it is over.
        self._progress.advance(sum(self._tasks.values()) - sum(self._done.values()))

    def _look(self) -> None:
        active = set(self._tracker.getActiveStageIds())
        for stage in active | (self._tasks.keys() - {s for s in self._tasks if self._full(s)}):
            found = self._tracker.getStageInfo(stage)
            if found is None:
                continue
            if self._tasks.get(stage) != found.numTasks:
                self._tasks[stage] = found.numTasks
                self._progress.total(sum(self._tasks.values()))
            more = found.numCompletedTasks - self._done.get(stage, 0)
            if more > 0:
                self._done[stage] = found.numCompletedTasks
                self._progress.advance(more)

    def _full(self, stage: int) -> bool:
        return self._done.get(stage, 0) >= self._tasks[stage]
