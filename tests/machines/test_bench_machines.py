"""The benchmarks of state machines run, check what they measure, and end what they start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.registry import BENCHMARKS, chosen_names, load_all

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "benchmarks.md"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_benchmarks_of_machines_run_and_leave_no_process_behind(tmp_path: Path) -> None:
    load_all()
    results, scratch = tmp_path / "results.json", tmp_path / "scratch"
    words = ("machines", "--quick", "--directory", str(scratch), "--json", str(results))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert {result["name"] for result in kept} == set(chosen_names(["machines"]))
    there = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in there if str(scratch).encode() in line]


def test_the_page_has_a_place_for_every_benchmark_of_machines() -> None:
    load_all()
    text = PAGE.read_text(encoding="utf-8")
    named = [name for name in BENCHMARKS if name.startswith("machine-")]
    assert named == ["machine-events", "machine-million", "machine-watchers"]
    assert all(f"<!-- bench {name} -->" in text for name in named)
