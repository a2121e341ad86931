"""The class-data archive: Spark's classes as Java keeps them in memory, ready to be mapped.

A JVM that runs Spark loads some fifteen thousand classes, which is most of the time a session
takes to start. Java can write them to a file as it ends and map that file at the next start. The
file fits one Java and one Spark, so both are in its name; one that does not fit is ignored by
Java, never obeyed. It lies in the user's cache and is made by `make_archive`, in a process of its
own: a JVM writes the file in place, and a name that others look for must only appear once the
file is whole.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import PurePath
from typing import Final

from headwater.core.errors import UnavailableError
from headwater.disk import PosixDisk
from headwater.disk.cache import cache_directory, make_directories
from headwater.format.checksum import checksum64
from headwater.spark.java import Java

MAKE_WITHIN_S: Final = 180
BASE_OPTION: Final = "-XX:SharedArchiveFile="
WRITE_OPTION: Final = "-XX:ArchiveClassesAtExit="
SWITCH: Final = "HEADWATER_SPARK_ARCHIVE"
"""Set to `off`, no archive is used: for those who doubt it."""


def archive_path(java: Java, spark_version: str) -> PurePath:
    key = f"{checksum64(bytes(java.real_home)):016x}"
    return cache_directory("spark", f"classes-{spark_version}-java-{java.version}-{key}.jsa")


def archive_options(java: Java, spark_version: str) -> str:
    """What to put on the command line of a JVM: the archive if there is one, else nothing."""
    path = archive_path(java, spark_version)
    if os.environ.get(SWITCH) == "off" or not PosixDisk().exists(path):
        return ""
    return f"{BASE_OPTION}{path} -Xshare:auto"


def make_archive(java: Java, spark_version: str) -> PurePath:
    """Run a small job in a process of its own, and keep the classes it needed."""
    path = archive_path(java, spark_version)
    make_directories(path.parent)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    command = [sys.executable, "-m", "headwater.spark.training", str(unfinished)]
    disk = PosixDisk()
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=MAKE_WITHIN_S, check=False, text=True
        )
        if done.returncode or not disk.exists(unfinished):
            last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
            raise UnavailableError(f"the class-data archive could not be made: {last}")
        disk.rename(unfinished, path)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"the class-data archive was not made within {MAKE_WITHIN_S} s"
        ) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(unfinished)
    return path
