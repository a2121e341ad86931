"""What makes queries faster by an inside of Spark, and whether it does so on this version.

Each of them is a small class compiled into the driver. Where Spark has changed and one cannot be
had, it is left out with one line in the log; what a query answers never hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.spark.runtime import column_pruning, filter_pushdown, projection_removal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALL: Final[dict[str, Callable[[SparkSession], bool]]] = {
    filter_pushdown.NAME: filter_pushdown.pushes_safely,
    column_pruning.NAME: column_pruning.read_narrowly,
    projection_removal.NAME: projection_removal.put_together_once,
}


def optimize(spark: SparkSession) -> dict[str, bool]:
    """Have them in this session, each once however often this is called: name -> it is active."""
    return {name: install(spark) for name, install in _ALL.items()}
