"""What a task can read about itself from Spark."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark import TaskContext

from headwater.core.errors import InvariantError

_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"


class MicroBatch(NamedTuple):
    query: str
    batch: int


def micro_batch() -> MicroBatch:
    """Which micro-batch of which query this task writes."""
    return MicroBatch(_property(_QUERY), int(_property(_BATCH)))


def task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InvariantError("rows are written by tasks of Spark only")
    return context


def _property(name: str) -> str:
    value = task_context().getLocalProperty(name)
    if value is None:
        raise InvariantError(f"Spark did not say {name} of the micro-batch being written")
    return value
