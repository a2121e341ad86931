"""Progress of a Spark action: how many of its tasks are done, polled from Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from headwater.core.clock import Clock, Doorbell, SystemClock
from headwater.core.units import US_PER_S
from headwater.spark.jobs.job import NoProgress, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_US: Final = US_PER_S // 4
LAST_EVENTS_MS: Final = 2_000


@contextmanager
def tasks_shown(
    spark: SparkSession, progress: Progress | None, clock: Clock | None = None
) -> Iterator[None]:
    """While the block runs, `progress` counts every task of the session that ends.

    For jobs that are one action or a few. One that counts bytes or records itself does not need it.
    An action that is over before the first poll is reported at the end, all at once.
    """
    if progress is None or isinstance(progress, NoProgress):
        yield
        return
    watcher = _TaskWatcher(spark, progress, clock or SystemClock())
    thread = threading.Thread(target=watcher.watch, name="spark-tasks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watcher.end()
        thread.join()


class _TaskWatcher:
    def __init__(self, spark: SparkSession, progress: Progress, clock: Clock) -> None:
        self._context = spark.sparkContext
        self._tracker = spark.sparkContext.statusTracker()
        self._older_jobs = set(self._tracker.getJobIdsForGroup(None))
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
            self._poll()
            self._clock.wait(self._doorbell, self._clock.monotonic_us() + EVERY_US)
        self._await_events()
        self._poll()
        # What ended between two polls ended: a stage is forgotten only when it is over.
        self._progress.advance(sum(self._tasks.values()) - sum(self._done.values()))

    def _await_events(self) -> None:
        """Spark reports its tasks in a queue of its own: the action can be over before its events.

        When they take longer than this, the bar is short of its end for once, and nothing else.
        """
        from py4j.protocol import Py4JJavaError

        with suppress(Py4JJavaError):
            self._context._jsc.sc().listenerBus().waitUntilEmpty(LAST_EVENTS_MS)

    def _stages(self) -> set[int]:
        """Those that run, and those of jobs that began since: one may begin and end unseen."""
        stages = set(self._tracker.getActiveStageIds())
        for job in set(self._tracker.getJobIdsForGroup(None)) - self._older_jobs:
            info = self._tracker.getJobInfo(job)
            if info is not None:
                stages.update(info.stageIds)
        return stages

    def _poll(self) -> None:
        for stage in self._stages() | self._tasks.keys():
            if self._full(stage):
                continue
            info = self._tracker.getStageInfo(stage)
            if info is None:
                continue
            if self._tasks.get(stage) != info.numTasks:
                self._tasks[stage] = info.numTasks
                self._progress.total(sum(self._tasks.values()))
            more = info.numCompletedTasks - self._done.get(stage, 0)
            if more > 0:
                self._done[stage] = info.numCompletedTasks
                self._progress.advance(more)

    def _full(self, stage: int) -> bool:
        return stage in self._tasks and self._done.get(stage, 0) >= self._tasks[stage]
