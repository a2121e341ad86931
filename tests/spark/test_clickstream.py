"""examples/clickstream: the script, the declarative pipeline and the notebook give the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from deltalake import DeltaTable

import headwater
from headwater.spark.sessions.java import find_java
from tests.rig.server_process import ServerProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "clickstream"
SCRIPTS = Path(sys.executable).parent
SESSIONS, COUNTS = 120, 42


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy: Spark and notebooks leave files where they run."""
    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "example"


def environment(**more: str) -> dict[str, str]:
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable, **more}


def run(words: list[str], directory: Path, **more: str) -> str:
    done = subprocess.run(
        words,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment(**more),
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def send(example: Path, server: ServerProcess) -> None:
    run([sys.executable, "-c", f"import clicks; clicks.send({server.url!r})"], example)


def check(server: ServerProcess, table: Path) -> None:
    rows = DeltaTable(table).to_pyarrow_table()
    keys = set(zip(rows["user"].to_pylist(), rows["start"].to_pylist(), strict=True))
    assert rows.num_rows == len(keys) == SESSIONS
    with headwater.Client(server.url) as client:
        counts = [record.data for record in client.diff("page-counts", limit=1_000).records]
    assert len({(count["page"], count["hour"]) for count in counts}) == len(counts) == COUNTS
    clicks = sum(rows["clicks"].to_pylist())
    assert sum(count["views"] for count in counts) == clicks


@pytest.mark.slow
def test_the_script_prints_what_it_found_and_may_be_run_again(
    server: ServerProcess, example: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "run.py", "--url", server.url, "--table", str(tmp_path / "sessions")]
    for flags in (["--send"], []):
        said = run([*words, *flags], example)
        assert f"{SESSIONS} sessions of 40 users\n" in said
        assert f"{COUNTS} page counts\n" in said
    check(server, tmp_path / "sessions")


@pytest.mark.slow
def test_the_declarative_pipeline_gives_the_same_and_may_be_run_again(
    server: ServerProcess, example: Path, tmp_path: Path
) -> None:
    send(example, server)
    pipeline = example / "pipeline"
    spec = pipeline / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/headwater-clickstream" in text
    spec.write_text(
        text.replace("file:///tmp/headwater-clickstream", f"file://{tmp_path / 'storage'}")
    )
    for _ in range(2):
        run(
            ["spark-pipelines", "run", "--spec", str(spec)],
            pipeline,
            PYTHONPATH=f"{pipeline / 'formats'}{os.pathsep}{example}",
            CLICKS_URL=server.url,
            SESSIONS_TABLE=str(tmp_path / "sessions"),
            JAVA_HOME=str(find_java().home),
            SPARK_LOCAL_IP="127.0.0.1",
        )
    check(server, tmp_path / "sessions")


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(
    server: ServerProcess, example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICKS_URL", server.url)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    read: Any = nbformat.read
    notebook = read(example / "clickstream.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=400, resources={"metadata": {"path": str(example)}}
    )
    client.execute()
    shown = [
        output["data"].get("text/plain", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    assert any(f"{SESSIONS} sessions, {COUNTS} page counts" in text for text in shown), shown
    (table,) = tmp_path.glob("clickstream-*/sessions")
    check(server, table)
