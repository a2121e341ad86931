"""The package itself, sent to executors that may not have it.

Executors run the source, the sink and the jobs, so their Python must be able to import headwater.
On a cluster the session sends a zip of the package as it is installed here, unless
`spark.headwater.ship` is false because it is installed there. The zip is the same, byte for byte,
for the same package, so it is made once and its name says which package it holds.

What the package builds on (numpy, pyarrow, xxhash, msgspec) has machine code in it and cannot be
sent like this: it must be installed for the Python of the executors. What they have is reported by
a tiny job, in the Python that will do the work (`probe`).
"""

from __future__ import annotations

import io
import os
import platform
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

import headwater
from headwater.core.errors import RequestError
from headwater.disk import PosixDisk
from headwater.disk.cache import cache_directory, write_cached
from headwater.disk.package import package_files
from headwater.format.checksum import checksum64

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PACKAGE: Final = "headwater"
SETTING: Final = "spark.headwater.ship"
NEEDED_THERE: Final = ("numpy", "pyarrow", "xxhash", "msgspec")
"""Modules the executors' Python must have."""

_SAME_DATE: Final = (1980, 1, 1, 0, 0, 0)
_CHOICES: Final = {"true": True, "false": False}


def ship(context: SparkContext, settings: Mapping[str, str | None], *, has_executors: bool) -> bool:
    """Send the package to the executors if they may lack it. True when it was sent."""
    choice = settings.get(SETTING) or ("true" if has_executors else "false")
    if choice not in _CHOICES:
        raise RequestError(f"{SETTING} is true or false, not {choice!r}")
    if not _CHOICES[choice]:
        return False
    context.addPyFile(str(package_zip()))
    return True


def package_zip() -> PurePath:
    """A zip of the package as it is installed here, in the cache."""
    contents = zip_of(package_files(PACKAGE, ".py"))
    path = cache_directory("package", f"{PACKAGE}-{checksum64(contents):016x}.zip")
    if not PosixDisk().exists(path):
        write_cached(path, contents)
    return path


def zip_of(files: list[tuple[str, bytes]]) -> bytes:
    """The same files always give the same bytes: no dates, no owners, one order."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in files:
            entry = zipfile.ZipInfo(f"{PACKAGE}/{name}", _SAME_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents)
    return packed.getvalue()


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
