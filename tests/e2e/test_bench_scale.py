"""The matrix of scale runs, gives every figure, and leaves no process behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.conditions import describe_machine
from bench.log_under_test import WrongResultError
from bench.scale import program, topics
from bench.scale.drawing import draw_all
from bench.scale.figures import Figure, compare
from bench.scale.matrix import (
    BATCHES,
    EVERYTHING,
    OVER_TOPICS,
    PRODUCE,
    SINGLES,
    Cell,
    Matrix,
    chosen,
    parser,
)
from bench.scale.scene import Contender, Scene, Side
from bench.server.load import Load
from bench.server.processes import HeadwaterServer, family_cpu_s_of, has_redis

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDED = ("rate", "server_cpu_us", "server_cores", "client_cores")
WAITS = ("p50_us", "p99_us", "p999_us", "max_us")
CELL = Cell(SINGLES, 32, 64, 2)
LOAD = Load(1000, 2.0, 0.5, 100.0, 200.0, 300.0, 400.0, client_cpu_s=0.1)


def matrix_of(*words: str, workers_known: bool = True) -> Matrix:
    return chosen(parser().parse_args(words), workers_known=workers_known)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk: apt-get install wrk")
def test_every_cell_of_a_quick_matrix_has_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--quick", "--directory", str(tmp_path / "scratch"), "--out", str(out))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "scale", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    first, *lines = map(json.loads, (out / "results.jsonl").read_text("utf-8").splitlines())
    assert all(first["conditions"][name] for name in ("fdatasync", "cores", "payload", "load by"))
    for line in lines:
        needed = NEEDED if line["what"] == PRODUCE else (*NEEDED, *WAITS)
        assert [name for name in needed if not line[name] > 0] == [], line
        assert not line["failed"]
    matrix = matrix_of("--quick")
    ours = {(line["what"], line["topics"], line["connections"]) for line in lines
            if line["side"].startswith("Headwater")}  # fmt: skip
    assert ours == {(cell.what, cell.topics, cell.connections) for cell in matrix.cells()}
    assert {line["what"] for line in lines if line["side"] == "Redis"} == (
        {*OVER_TOPICS} if has_redis() else set()
    )
    assert all("Redis" in line["ratios"] for line in lines
               if has_redis() and line["what"] in OVER_TOPICS
               and line["side"].startswith("Headwater"))  # fmt: skip
    assert "| 8 | 4 | Headwater |" in (out / "results.md").read_text("utf-8")
    ET.parse(out / "rate-topics.svg")
    there = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in there if str(tmp_path / "scratch").encode() in line]


def test_a_figure_that_lacks_a_percentile_is_noticed() -> None:
    whole = Figure(CELL, "Redis", "fsync", 1.0, [1.0], 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert whole.missing() == []
    whole.p999_us = 0.0
    assert whole.missing() == ["p999_us"]


class Idle(HeadwaterServer):
    """Never started."""


def run_with(
    contenders: dict[str, Contender],
    lost: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *words: str,
) -> tuple[int, list[dict[str, object]]]:
    """The program over one cell whose sides are made up; `lost` names one that lost records."""

    @contextmanager
    def scene(_: Matrix, cells: Sequence[Cell], directory: Path) -> Iterator[Scene]:
        def check(side: Side) -> None:
            if side.name == lost:
                raise WrongResultError("1 record of 2")

        sides = [Side(name, Idle(directory / name)) for name in contenders]
        yield Scene(sides, lambda _: contenders, check)

    monkeypatch.setattr(topics, "scene", scene)
    monkeypatch.setattr(program.Program, "_conditions", lambda _: {"cores": "2", "load": "0"})
    options = ("--topics", "1", "--connections", "4", "--what", SINGLES, "--quick", *words)
    matrix = matrix_of("--out", str(tmp_path), "--directory", str(tmp_path), *options)
    ended = program.Program(matrix, tmp_path, [], None).run()
    lines = (tmp_path / "results.jsonl").read_text("utf-8").splitlines()[1:]
    return ended, [json.loads(line) for line in lines]


def fails(_: float) -> Load:
    raise WrongResultError("the server ended")


def test_a_side_that_fails_gets_no_figure_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides: dict[str, Contender] = {"Redis": fails, "Headwater": lambda _: LOAD}
    ended, lines = run_with(sides, "", tmp_path, monkeypatch)
    assert ended == 1
    assert {str(line["side"]): line["rate"] for line in lines} == {"Redis": 0.0, "Headwater": 500.0}
    assert "the server ended" in (tmp_path / "results.md").read_text("utf-8")


def test_a_side_that_lost_records_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides: dict[str, Contender] = {"Redis": lambda _: LOAD, "Headwater": lambda _: LOAD}
    assert run_with(sides, "", tmp_path, monkeypatch)[0] == 0
    ended, lines = run_with(sides, "Redis", tmp_path, monkeypatch)
    assert ended == 1
    assert [line["side"] for line in lines if line["failed"]] == ["Redis"] * 2


def test_no_cell_begins_that_would_end_behind_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides: dict[str, Contender] = {"Headwater": lambda _: LOAD}
    ended, lines = run_with(sides, "", tmp_path, monkeypatch, "--limit", "1")
    assert (ended, lines) == (0, [])
    assert "2 cells left out" in (tmp_path / "results.md").read_text("utf-8")


def test_rates_are_compared_with_peers_and_not_with_ourselves() -> None:
    made = {
        name: Figure(CELL, name, "fsync", rate=rate)
        for name, rate in (("Redis", 100.0), ("Headwater, 1 shards", 50.0), ("Headwater", 200.0))
    }
    compare(made, ["Headwater", "Headwater, 1 shards"])
    assert made["Headwater"].ratios == {"Redis": 2.0}
    assert made["Headwater, 1 shards"].ratios == {"Redis": 0.5}
    assert made["Redis"].ratios == {}


def test_shards_times_workers_are_variants_and_workers_need_a_server_that_knows_them() -> None:
    words = ("--shards", "1,8", "--workers", "0,4")
    named = [variant.name for variant in matrix_of(*words).variants]
    assert named == [
        "Headwater, 1 shards, 0 workers",
        "Headwater, 1 shards, 4 workers",
        "Headwater, 8 shards, 0 workers",
        "Headwater, 8 shards, 4 workers",
    ]
    without = matrix_of(*words, workers_known=False).variants
    assert [variant.options for variant in without] == [
        ["--wal-shards", "1"],
        ["--wal-shards", "8"],
    ]


def test_the_matrix_is_every_kind_over_its_own_axes() -> None:
    words = ("--topics", "1,500", "--connections", "1,64", "--watchers", "100", "--cores", "1,2")
    cells = matrix_of(*words, "--load-threads", "4").cells()
    count = {what: len([c for c in cells if c.what == what]) for what in EVERYTHING}
    assert {count[what] for what in OVER_TOPICS} == {8}
    assert count["watchers"] == 2
    producers = {cell.connections for cell in cells if cell.what == PRODUCE}
    assert producers == {1, 4}
    with pytest.raises(SystemExit):
        matrix_of("--what", "writes")


@pytest.mark.parametrize(
    ("connections", "threads"), [(1, 1), (16, 4), (64, 4), (1000, 5), (7, 1), (6, 6)]
)
def test_the_threads_of_wrk_have_as_many_connections_as_were_chosen(
    connections: int, threads: int
) -> None:
    assert topics.threads_for(connections, 6) == threads


def test_a_picture_has_a_line_for_each_side_in_each_panel(tmp_path: Path) -> None:
    figures = [
        Figure(Cell(what, n, c, 2), side, "fsync", rate=n * c, p50_us=c, p99_us=c, p999_us=c)
        for what in (SINGLES, BATCHES)
        for n in (1, 32)
        for c in (1, 64, 256)
        for side in ("Redis", "Headwater & more")
    ]
    drawn = {path.name: path for path in draw_all(figures, ["kernel <6>"], tmp_path)}
    assert list(drawn) == ["rate-topics.svg", "rate-connections.svg", "latency.svg"]
    panels = {"rate-topics.svg": 2 * 3, "rate-connections.svg": 2 * 2, "latency.svg": 2 * 3}
    for name, count in panels.items():
        root = ET.parse(drawn[name]).getroot()
        assert len(root.findall(".//{*}polyline")) == count * 2
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"kernel <6>", "Headwater & more"} <= set(texts)


def test_conditions_are_told_without_git_and_without_what_pip_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = describe_machine(tmp_path)

    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_machine(tmp_path) == whole | {"commit": "unknown"}


WORK_S = 0.3
GRANDPARENT = f"""
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        while time.process_time() < {WORK_S}:
            pass
        print("done", flush=True)
        time.sleep(60)
    time.sleep(60)
sys.stdin.readline()
os.killpg(0, 9)
"""


def test_cpu_of_processes_below_processes_counts_as_that_of_a_server_with_workers() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GRANDPARENT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as parent:  # fmt: skip
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "done\n"
        assert WORK_S * 0.9 <= family_cpu_s_of(parent.pid) < WORK_S * 2
