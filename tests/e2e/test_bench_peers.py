"""The peers are measured fairly, checked, and drawn with their conditions or not at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.log_under_test import WrongResultError
from bench.page import fill_page, has_place, show_plots
from bench.peers.nats import has_nats
from bench.plots import PICTURES, TOLD, draw_all
from bench.queue import postgres
from bench.registry import (
    BENCHMARKS,
    Benchmark,
    MissingConditionsError,
    Row,
    Run,
    chosen_names,
    load_all,
)
from bench.server.processes import family_cpu_s_of

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "benchmarks.md"
MACHINE = dict.fromkeys(TOLD, "told")


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk: apt-get install wrk")
def test_every_peer_that_is_here_is_measured_and_ended(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o711)  # PostgreSQL may run as somebody else
    results = tmp_path / "results.json"
    words = ("peers", "--quick", "--directory", str(tmp_path / "scratch"), "--json", str(results))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (result,) = json.loads(results.read_text(encoding="utf-8"))["results"]
    said = " ".join(row["name"] for row in result["rows"])
    assert ("Redis" in said) == (shutil.which("redis-server") is not None)
    assert ("NATS" in said) == has_nats()
    assert ("PostgreSQL" in said) == (postgres.missing() is None)
    assert "Headwater POST, fsync, 64 connections" in said
    for row in result["rows"]:  # what is not worth the same is not compared
        if row["baseline"].startswith("NATS") and "synced by timer" in json.dumps(result["rows"]):
            assert row["conditions"]["durability"] == "disk"
    there = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in there if str(tmp_path / "scratch").encode() in line]


WORK_S = 0.3
PARENT = f"""
import os, sys, time
child = os.fork()
if child == 0:
    while time.process_time() < {WORK_S}:
        pass
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("ended", flush=True)
sys.stdin.readline()
os.waitpid(child, 0)
print("noted", flush=True)
sys.stdin.readline()
"""


def test_cpu_of_a_child_that_ended_counts_before_its_parent_has_taken_note() -> None:
    """As of a connection of PostgreSQL; pgbench ends before the parent has heard of it."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for word in ("ended", "noted"):
            assert parent.stdout.readline() == f"{word}\n"
            assert WORK_S * 0.9 <= family_cpu_s_of(parent.pid) < WORK_S * 2
            parent.stdin.write("\n")
            parent.stdin.flush()


def test_a_contender_that_lost_a_record_gets_no_figure_and_stops_nobody_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses(_: Run) -> list[Row]:
        raise WrongResultError("1 record came back of 2")

    def works(_: Run) -> list[Row]:
        return [Row("appends", 5.0, "appends/s", {"payload": "200 B", "durability": "fsync"})]

    load_all()
    for name, measure in (("loses", loses), ("works", works)):
        monkeypatch.setitem(BENCHMARKS, name, Benchmark(name, f"Does it: {name}?", measure))
    words = ["loses", "works", "--quick", "--directory", str(tmp_path)]
    assert main([*words, "--json", str(tmp_path / "kept.json")]) == 1
    said = capsys.readouterr().out
    assert "loses: no figure, because the work was not done: 1 record came back of 2" in said
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))["results"]
    assert [result["name"] for result in kept] == ["works"]


def row(name: str, value: float, unit: str, **conditions: str) -> dict[str, Any]:
    told = {"payload": "200 B", "durability": "fsync", "p50": "1,000 us", "p99": "2 us"}
    return {"name": name, "value": value, "unit": unit, "conditions": told | conditions}


def results() -> dict[str, Any]:
    writes = [
        row(f"{who}, {count} connections", count * 10.0, "writes/s", connections=str(count))
        for who in ("Redis XADD", "Headwater POST, fsync")
        for count in (1, 4)
    ]
    costs = [
        row(f"{what}, {count:,} records", count / 1e3, unit)
        for what, unit in (
            ("append, batch of 100", "CPU us a record"),
            ("restart after kill -9", "ms to first answer"),
        )
        for count in (100_000, 1_000_000)
    ]
    kept = {"peers-writes": writes, "embedded-size": costs}
    return {
        "results": [
            {"name": name, "rows": rows, "quick": False, "machine": dict(MACHINE)}
            for name, rows in kept.items()
        ]
    }


def test_the_same_results_make_the_same_pictures_with_their_conditions(tmp_path: Path) -> None:
    first, second = (draw_all(results(), tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == [picture.file for picture in PICTURES]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        text = one.read_text(encoding="utf-8")
        assert "payload 200 B; durability fsync" in text
        assert "kernel told" in text


@pytest.mark.parametrize("missing", ["commit", "kernel", "payload", "durability", "quick"])
def test_a_picture_that_cannot_tell_its_conditions_is_refused(tmp_path: Path, missing: str) -> None:
    kept = results()
    for result in kept["results"]:
        result["machine"].pop(missing, None)
        result["quick"] = missing == "quick"
        result["rows"][0]["conditions"].pop(missing, None)
    with pytest.raises(MissingConditionsError, match=missing):
        draw_all(kept, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_put_into_their_place_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- bench plots -->\nold\n<!-- /bench plots -->\nb\n", encoding="utf-8")
    assert show_plots(page, {tmp_path / "images" / "x.svg": "How it grows"})
    assert "![How it grows](images/x.svg)" in page.read_text(encoding="utf-8")
    assert "old" not in page.read_text(encoding="utf-8")
    page.write_text("no place\n", encoding="utf-8")
    assert not show_plots(page, {})
    assert fill_page(page, []) == []


def test_a_full_run_fills_the_page_draws_the_pictures_and_keeps_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Run) -> list[Row]:
        return [
            Row(each["name"], each["value"], each["unit"], each["conditions"])
            for each in results()["results"][0]["rows"]
        ]

    load_all()
    name = "peers-writes"
    monkeypatch.setitem(BENCHMARKS, name, Benchmark(name, "How do they take it?", measure))
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr("bench.__main__.REPOSITORY", tmp_path)
    page = tmp_path / "page.md"
    markers = (f"<!-- {slash}bench {each} -->" for each in ("plots", name) for slash in ("", "/"))
    page.write_text("\n".join(markers), encoding="utf-8")
    words = [name, "--page", str(page), "--plots", str(tmp_path / "images")]
    assert main([*words, "--directory", str(tmp_path / "scratch")]) == 0
    text = page.read_text(encoding="utf-8")
    assert "![Single durable writes against connections](images/throughput.svg)" in text
    assert "### How do they take it?" in text
    assert "cores" in text.partition("Made on: ")[2]
    assert {path.name for path in (tmp_path / "images").iterdir()} == {
        "throughput.svg",
        "latency.svg",
    }
    (kept,) = (tmp_path / "bench" / "results").iterdir()
    assert draw_all(json.loads(kept.read_text(encoding="utf-8")), tmp_path / "again")


def test_the_page_has_a_place_for_every_benchmark_and_the_plots() -> None:
    load_all()
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*BENCHMARKS, "plots") if not has_place(text, name)] == []
    assert chosen_names(["all"]) == list(BENCHMARKS)


@pytest.mark.parametrize("flag", ["--page", "--plots"])
def test_figures_of_a_quick_run_are_never_published(
    tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["encode", "--quick", flag, str(tmp_path / "there")]) == 2
    assert "mean nothing" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
