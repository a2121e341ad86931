"""The benchmarks of queues run, check every job, and end what they start."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.queue import postgres
from bench.registry import BENCHMARKS, chosen_names, load_all

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "benchmarks.md"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_queue_benchmarks_run_and_leave_no_process_behind(tmp_path: Path) -> None:
    load_all()
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o711)  # PostgreSQL may run as somebody else
    results = tmp_path / "results.json"
    words = ("queue", "--quick", "--directory", str(tmp_path / "scratch"), "--json", str(results))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert {result["name"] for result in kept} == set(chosen_names(["queue"]))
    said = json.dumps(kept)
    assert ("Redis" in said) == (shutil.which("redis-server") is not None)
    assert ("SKIP LOCKED" in said) == (postgres.missing() is None)
    there = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in there if str(tmp_path / "scratch").encode() in line]


def test_the_page_has_a_place_for_every_benchmark_of_queues() -> None:
    load_all()
    text = PAGE.read_text(encoding="utf-8")
    named = [name for name in BENCHMARKS if name.startswith("queue-")]
    assert named == ["queue-jobs", "queue-latency", "queue-routers"]
    assert all(f"<!-- bench {name} -->" in text for name in named)


def test_a_machine_without_postgresql_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "_PLACES", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert postgres.missing() == "no initdb here: apt-get install postgresql"
