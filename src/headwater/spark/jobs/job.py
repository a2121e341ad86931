"""What every pipeline job shares: where the data is, how it runs tasks, its progress, its report.

A job is a module with a frozen struct of options, a frozen struct of findings (a `Report`) and a
plain function `run(spark, options, progress=None)`. It prints nothing and exits nowhere: the
command line, a notebook and spark-submit show the same report each in their way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from headwater.core.clock import Clock, Doorbell, SystemClock
from headwater.core.errors import RequestError, StorageError
from headwater.core.units import US_PER_S

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession


class Progress(Protocol):
    """What shows the progress of a job. May be called from any thread, and as often as it suits."""

    def total(self, count: int) -> None:
        """So many units there are in all, as far as is known by now."""

    def advance(self, count: int) -> None:
        """So many more units are done."""

    def say(self, text: str) -> None:
        """What is being done now, in a few words."""


class NoProgress:
    """Shows nothing."""

    def total(self, count: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def say(self, text: str) -> None: ...


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the topics are: a data directory, or a server."""

    path: str | None = None
    url: str | None = None
    token: str | None = None
    topics: tuple[str, ...] = ()

    def options(self) -> dict[str, str]:
        """Where it is, as options of `spark.read.format("headwater")` and of its writer."""
        if (self.path is None) == (self.url is None):
            raise RequestError("name a data directory (--path) or a server (--url), one of them")
        given = {"path": self.path, "url": self.url, "token": self.token}
        return {key: value for key, value in given.items() if value is not None}

    def reading(self) -> dict[str, str]:
        """The same with the topics, as options of a reader; without names it is all topics."""
        if self.topics:
            return {**self.options(), "topics": ",".join(self.topics)}
        return {**self.options(), "topicPattern": ".*"}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a job did. Subclasses add their findings as further fields."""

    exit_code: ClassVar[int] = StorageError.exit_code
    """What the command line ends with when not all is well."""

    ok: bool
    """All is well: the command line ends with 0 only then."""

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, in the order of the fields."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_plain)
        return values


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"a report cannot hold {type(value).__name__}")


Item = TypeVar("Item")
Answer = TypeVar("Answer")

TASKS_PER_CORE = 8
"""More tasks than cores, so that one long item keeps no core waiting; not thousands of tiny
ones."""


class MapAll(Protocol):
    """A pure function over many independent items: the one thing a job asks of Spark."""

    def __call__(
        self, function: Callable[[Item], Answer], items: Sequence[Item]
    ) -> list[Answer]: ...


class SparkMap:
    """Tasks of a session; function, items and answers must be small enough to be sent."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def __call__(self, function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        if not items:
            return []
        slices = min(len(items), self._context.defaultParallelism * TASKS_PER_CORE)
        return self._context.parallelize(items, slices).map(function).collect()


EVERY_US: Final = US_PER_S // 4
LAST_EVENTS_MS: Final = 2_000


def read_items(
    spark: SparkSession,
    items: Sequence[Any],
    read: Callable[[Any], Iterator[pyarrow.RecordBatch]],
    schema: pyarrow.Schema,
) -> DataFrame:
    """A table of what each of these structs stands for: each is read by a task, when it is run."""
    from headwater.spark.runtime.arrow_schema import to_spark

    texts = [(msgspec.json.encode(item).decode(),) for item in items]
    source = spark.sparkContext.parallelize(texts, max(len(texts), 1))
    kind = type(items[0]) if items else None
    given = spark.createDataFrame(source, "item string")
    return given.mapInArrow(partial(_read_each, kind, read), to_spark(schema))


def _read_each(
    kind: Any,
    read: Callable[[Any], Iterator[pyarrow.RecordBatch]],
    batches: Iterable[pyarrow.RecordBatch],
) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for text in batch.column(0).to_pylist():
            yield from read(msgspec.json.decode(text, type=kind))


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
    """Progress of a Spark action: how many of its tasks are done, polled from Spark."""

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
