"""The class-data archive: Spark's classes as Java keeps them in memory, ready to be mapped.

A JVM that runs Spark loads many thousand classes, which is most of the time a session takes to
start. Java can write them to a file as it ends and map that file at the next start. The file fits
one Java and one Spark in one place, so all three are in its name; one that does not fit is ignored
by Java, never obeyed. It lies in the user's cache and is made by `make_archive`, in a process of
its own: a JVM writes the file in place, and a name that others look for must only appear once the
file is whole.

A Java that came without an archive of its own classes, like the one of the wheel, gets that
first: Java builds the archive of a program on top of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from headwater.core.errors import UnavailableError
from headwater.disk import PosixDisk
from headwater.disk.cache import cache_directory, make_directories, modified_ns
from headwater.spark.sessions.java import Java

MAKE_WITHIN_S: Final = 300
SWITCH: Final = "HEADWATER_SPARK_ARCHIVE"
"""Set to `off`, no archive is used: for those who doubt it."""


def archive_path(java: Java, spark_version: str) -> PurePath:
    """Its name holds Java, Spark, where Spark lies and since when: Java maps classes only of the
    same path, and only while the files there are those it has seen."""
    spec = importlib.util.find_spec("pyspark")
    where = "" if spec is None or spec.origin is None else spec.origin
    identity = f"{where} {modified_ns(PurePath(where))}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    name = f"spark-{spark_version}-{digest}-java-{java.version}-{java.key}.jsa"
    return cache_directory("spark", name)


def find_archive(java: Java, spark_version: str) -> PurePath | None:
    """The archive that a session will use; None when there is none, or none is wanted."""
    path = archive_path(java, spark_version)
    if os.environ.get(SWITCH) == "off" or not PosixDisk().exists(path):
        return None
    return path


def options_to_use(java: Java, archive: PurePath) -> str:
    """What a JVM's command line needs for the archive to be mapped."""
    base = _base(java)
    files = [archive] if base is None else [base, archive]
    mapped = f"-XX:SharedArchiveFile={os.pathsep.join(map(str, files))} -Xshare:auto"
    # What Java has to say goes to standard error: programs read what a job prints.
    return f"{mapped} -Xlog:disable -Xlog:all=warning:stderr"


def options_to_write(java: Java, archive: PurePath) -> str:
    """What a JVM's command line needs for the archive to be written as the JVM ends."""
    base = _base(java)
    onto = "" if base is None else f"-XX:SharedArchiveFile={base} "
    # Thousands of classes that cannot be archived are each worth a warning to Java, not to us.
    return f"{onto}-XX:ArchiveClassesAtExit={archive} -Xlog:disable -Xlog:all=error:stderr"


def make_archive(java: Java, spark_version: str) -> PurePath:
    """Run a small job in a process of its own, and keep the classes it needed."""
    base = _base(java)
    if base is not None and not PosixDisk().exists(base):
        dump = [str(java.program), "-Xshare:dump"]
        _make(base, lambda unfinished: [*dump, f"-XX:SharedArchiveFile={unfinished}"])
    train = [sys.executable, "-m", "headwater.spark.sessions.archive_training"]
    return _make(archive_path(java, spark_version), lambda unfinished: [*train, str(unfinished)])


def _base(java: Java) -> PurePath | None:
    """The archive of Java's own classes where Java has none itself."""
    if PosixDisk().exists(java.real_home / "lib" / "server" / "classes.jsa"):
        return None
    return cache_directory("spark", f"java-{java.version}-{java.key}.jsa")


def _make(path: PurePath, command: Callable[[PurePath], list[str]]) -> PurePath:
    make_directories(path.parent)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    disk = PosixDisk()
    try:
        done = subprocess.run(
            command(unfinished), capture_output=True, timeout=MAKE_WITHIN_S, check=False, text=True
        )
        if done.returncode or not disk.exists(unfinished):
            last = ((done.stderr + done.stdout).strip().splitlines() or ["no word of why"])[-1]
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
