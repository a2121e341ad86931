"""The server's benchmarks run, end what they start, and put tables where they belong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.page import fill_page, has_place
from bench.registry import BENCHMARKS, Benchmark, Row, Run, chosen_names, load_all
from bench.report import Result

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "benchmarks.md"


def nothing(_: Run) -> list[Row]:
    return []


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk: apt-get install wrk")
def test_the_server_benchmarks_run_and_leave_no_process_behind(tmp_path: Path) -> None:
    load_all()
    results = tmp_path / "results.json"
    words = ("server", "--quick", "--directory", str(tmp_path / "scratch"), "--json", str(results))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert {result["name"] for result in kept} == set(chosen_names(["server"]))
    assert all(result["rows"] and result["notes"] for result in kept)
    there = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in there if str(tmp_path / "scratch").encode() in line]


def test_a_table_is_put_between_its_markers_and_replaces_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench a -->\nold\n<!-- /bench a -->\nafter\n", encoding="utf-8")
    row = Row("x", 1.0, "y", {"payload": "1 B", "durability": "none"})
    machine = {"cores": "2"}
    results = [
        Result(Benchmark(name, f"How {name}?", nothing), [row], machine, quick=False)
        for name in ("a", "b")
    ]
    assert fill_page(page, results) == ["b"]
    filled = page.read_text(encoding="utf-8")
    assert "old" not in filled
    assert "### How a?" in filled
    assert filled.startswith("before\n<!-- bench a -->\n")
    assert filled.endswith("<!-- /bench a -->\nafter\n")
    fill_page(page, results)
    assert page.read_text(encoding="utf-8") == filled


def test_the_page_has_a_place_for_every_benchmark_of_library_and_server() -> None:
    load_all()
    text = PAGE.read_text(encoding="utf-8")
    named = [name for name in BENCHMARKS if name.startswith(("embedded-", "server-"))]
    assert len(named) == 10
    assert [name for name in named if not has_place(text, name)] == []


def test_nothing_named_means_the_library_and_a_group_means_all_of_it() -> None:
    load_all()
    assert chosen_names(["server"]) == [name for name in BENCHMARKS if name.startswith("server-")]
    assert not [name for name in chosen_names([]) if name.startswith("server-")]
    assert chosen_names(["durable", "unheard-of"]) == ["durable", "unheard-of"]
