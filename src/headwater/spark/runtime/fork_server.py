"""Where Spark's Python workers are forked from, with everything they need already loaded.

A worker that reads or writes a topic imports numpy, Arrow and this package, which takes longer
than most small tasks. Loaded once before the fork, they cost each worker nothing, and their memory
is shared. Spark starts this module as `python -m headwater.spark.runtime.fork_server` in place of
its own daemon.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from typing import Any, Final

MODULE: Final = __name__ if __name__ != "__main__" else "headwater.spark.runtime.fork_server"
NEEDED: Final = (
    "numpy",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.plan_data_source_read",
    "headwater.spark.source.data_source",
    "headwater.spark.source.stream_reader",
)


def load() -> None:
    """Whatever cannot be had here is the worker's to miss, in its own words."""
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    gc.collect()
    gc.freeze()  # a collection in a worker would touch, and so copy, every page of it


def polite(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that ends without a word when Java has hung up.

    Spark hangs up on workers that still send when a query has its rows, as every `limit` and `show`
    does. Spark's daemon would print the traceback of that on the user's terminal.
    """

    def work(*given: Any) -> int:
        try:
            return worker(*given)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # this worker is not used again

    return work


def frozen_after_first(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that has what its first task loaded put aside with the rest.

    Spark collects garbage after every task, which took a tenth of the time of one: it went through
    everything that was loaded since the fork, and found it in use.
    """
    is_frozen = False

    def work(*given: Any) -> int:
        nonlocal is_frozen
        code = worker(*given)
        if not is_frozen:
            is_frozen = True
            gc.collect()
            gc.freeze()
        return code

    return work


if __name__ == "__main__":
    load()
    daemon: Any = importlib.import_module("pyspark.daemon")
    daemon.worker = frozen_after_first(polite(daemon.worker))
    daemon.manager()
