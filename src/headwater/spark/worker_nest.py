"""Where Spark's Python workers are forked from, with everything they need already loaded.

A worker that reads or writes a topic imports numpy, Arrow and this package, which takes longer
than most small tasks. Loaded once before the fork, they cost each worker nothing, and their memory
is shared. Started by Spark as `python -m headwater.spark.worker_nest`, in place of its own daemon,
which it then is.
"""

from __future__ import annotations

import gc
import importlib
from typing import Final

MODULE: Final = __name__ if __name__ != "__main__" else "headwater.spark.worker_nest"
NEEDED: Final = (
    "numpy",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.plan_data_source_read",
    "headwater.spark.source",
    "headwater.spark.stream",
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


if __name__ == "__main__":
    load()
    daemon = importlib.import_module("pyspark.daemon")
    daemon.manager()
