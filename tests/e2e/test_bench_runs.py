"""The benchmarks run and tell their conditions. How fast they are is nobody's test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.registry import MissingConditionsError, Row

REPOSITORY = Path(__file__).resolve().parents[2]
CONDITIONS = {"payload": "200 B", "durability": "fsync"}


@pytest.mark.e2e
def test_every_benchmark_runs_and_tells_its_conditions(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--directory", str(tmp_path)]
    ran = subprocess.run(
        [*command, "--json", str(results)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert {"durable", "encode", "scan", "switch"} <= {result["name"] for result in kept}
    for result in kept:
        assert result["rows"], result["name"]
        assert {"cores", "kernel", "file system", "python"} <= set(result["machine"])
        assert all(row["conditions"]["payload"] for row in result["rows"])


@pytest.mark.parametrize("missing", CONDITIONS)
def test_a_figure_without_conditions_is_refused(missing: str) -> None:
    told = {name: value for name, value in CONDITIONS.items() if name != missing}
    with pytest.raises(MissingConditionsError, match=missing):
        Row("appends", 1.0, "appends/s", told)


def test_a_ratio_that_names_no_baseline_is_refused() -> None:
    with pytest.raises(MissingConditionsError, match="baseline"):
        Row("appends", 1.0, "appends/s", CONDITIONS, ratio=2.0)


def test_the_page_has_one_place_for_each_benchmark_and_none_inside_another() -> None:
    """Filling one place replaces everything between its markers, those of others too."""
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    listed = subprocess.run(
        [sys.executable, "-m", "bench", "--list"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    found = re.findall(r"<!-- (/?)bench ([a-z-]+) -->", page)
    opened, closed = found[::2], found[1::2]
    assert opened == [("", name) for _, name in closed]
    assert closed == [("/", name) for _, name in opened]
    assert sorted(name for _, name in opened) == sorted({*names, "plots"})
