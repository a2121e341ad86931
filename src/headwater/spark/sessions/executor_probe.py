"""What executors have: reported by a tiny job, in the Python that will do the work."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

import headwater
from headwater.disk import PosixDisk
from headwater.spark.sessions.package_zip import NEEDED_THERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Executor(msgspec.Struct, frozen=True):
    """One Python worker of an executor."""

    host: str
    parent: int
    """The process that started it: the daemon of one executor."""
    python: str
    interpreter: str
    package: str
    """Where headwater was imported from."""
    modules: dict[str, str]
    """What the package builds on -> its version; empty when it is not there."""


def probe(spark: SparkSession, tasks: int = 2) -> list[Executor]:
    """Run that many tasks and collect what each reports."""
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(_probe_batches, "found string").collect()
    return [msgspec.json.decode(row["found"], type=Executor) for row in rows]


def hosts_that_miss(spark: SparkSession, file: PurePath, tasks: int = 2) -> set[str]:
    """Where tasks run that do not see this file; it may be there and be another's."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            host = "" if PosixDisk().exists(file) else platform.node()
            yield pa.RecordBatch.from_arrays([pa.array([host] * batch.num_rows)], names=["host"])

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(check, "host string").collect()
    return {row["host"] for row in rows} - {""}


def _probe_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        answer = msgspec.json.encode(_this_one()).decode()
        yield pa.RecordBatch.from_arrays([pa.array([answer] * batch.num_rows)], names=["found"])


def _this_one() -> Executor:
    return Executor(
        host=platform.node(),
        parent=os.getppid(),
        python=platform.python_version(),
        interpreter=sys.executable,
        package=str(headwater.__file__),
        modules={name: _version(name) for name in NEEDED_THERE},
    )


def _version(name: str) -> str:
    try:
        module = import_module(name)
    except ImportError:
        return ""
    return str(getattr(module, "__version__", getattr(module, "VERSION", "unknown")))
