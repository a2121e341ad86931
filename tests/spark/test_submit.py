"""Pipeline jobs run by spark-submit, from the files that `headwater pipeline package` writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater.spark.sessions.java import find_java
from tests.rig.server_process import clean_environment
from tests.rig.spark_cluster import LOOPBACK, SPARK_HOME

pytestmark = pytest.mark.spark
SCRIPT = Path(sys.executable).with_name("headwater")


def submit(package: Path, work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "TMPDIR": str(work),
        "PATH": os.environ["PATH"],
    }
    quick = ("--driver-java-options", "-XX:TieredStopAtLevel=1", "--driver-memory", "512m")
    files = ("--py-files", str(package / "headwater.zip"), str(package / "headwater_pipeline.py"))
    return subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]", *quick, *files, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=work,
        env=clean_environment(**environment),
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    directory_path = tmp_path / "package"
    words = [str(SCRIPT), "pipeline", "package", str(directory_path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "zip": str(directory_path / "headwater.zip"),
        "script": str(directory_path / "headwater_pipeline.py"),
    }
    return directory_path


def test_spark_submit_runs_a_job_and_gives_its_report(package: Path, tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as db:
        db.append("clicks", [{"data": number} for number in range(10)])
    done = submit(package, tmp_path, "stats", "--path", str(tmp_path / "data"), "--json")
    assert done.returncode == 0, done.stderr
    (topic,) = json.loads(done.stdout)["topics"]
    assert (topic["topic"], topic["records"]) == ("clicks", 10)


@pytest.mark.slow
def test_spark_submit_leaves_with_the_exit_code_of_the_job(package: Path, tmp_path: Path) -> None:
    done = submit(package, tmp_path, "stats", "--path", str(tmp_path / "nothing"))
    assert done.returncode == 2, done.stderr
    # spark-submit puts both outputs of Python into its own stdout.
    assert "headwater: " in done.stdout
