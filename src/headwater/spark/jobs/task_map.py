"""A pure function over many independent items: the one thing a job asks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TASKS_PER_CORE = 8
"""More tasks than cores, so that one long item keeps no core waiting; not thousands of tiny
ones."""


class MapAll(Protocol):
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
