"""What makes queries faster by an inside of Spark, and whether it does so on this version.

Each of them is a small class compiled into the driver. Where Spark has changed and one cannot be
had, it is left out with one line in the log; what a query answers never hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.spark import apart, narrow, rows_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALL: Final[dict[str, Callable[[SparkSession], bool]]] = {
    apart.NAME: apart.pushes_safely,
    narrow.NAME: narrow.read_narrowly,
    rows_once.NAME: rows_once.put_together_once,
}


def optimize(spark: SparkSession) -> dict[str, bool]:
    """Have them in this session, each once however often this is called: name -> it is active."""
    return {name: install(spark) for name, install in _ALL.items()}
