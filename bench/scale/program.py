"""`python -m bench scale`: runs the matrix and writes what it finds as it finds it."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, cast

from bench.conditions import describe_machine, load
from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOAD_BYTES
from bench.raw_disk import RawWrites
from bench.registry import MissingToolError
from bench.report import amount
from bench.scale import topics
from bench.scale.drawing import draw_all
from bench.scale.figures import Figure, compare, figure
from bench.scale.matrix import PRODUCE, WATCHERS, Cell, Matrix, chosen, parser
from bench.scale.scene import Contender, Scene, SceneModule
from bench.scale.tables import page
from bench.server.bare_loop import BareLoop
from bench.server.load import Load, needs_wrk, write_body
from bench.server.processes import versions
from bench.turns import percentile
from headwater.core.units import KIB, MIB

HEADWATER: Final = (sys.executable, "-c", "from headwater.cli import main; main()")
NOTHING_MEASURED: Final = 3
OPEN_FILES: Final = 65_536
CEILING_S: Final = 1.0
_FAILURES: Final = (WrongResultError, OSError, EOFError, ValueError, subprocess.SubprocessError)
"""Of one side in one cell; the others took their time, and their figures are sound."""


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    notes: list[str] = []
    try:
        needs_wrk()
    except MissingToolError as error:
        print(f"not measured: {error}")
        return NOTHING_MEASURED
    workers_known = given.workers is None or serve_has_workers()
    if not workers_known:
        notes.append("`headwater serve` has no --workers here: it runs without, in one process")
    matrix = chosen(given, workers_known=workers_known)
    if PRODUCE in matrix.what and find_spec("confluent_kafka") is None:
        notes.append("no confluent_kafka here: produce is not measured")
        matrix = replace(matrix, what=[kind for kind in matrix.what if kind != PRODUCE])
    if not matrix.what:
        print(f"not measured: {notes[-1]}")
        return NOTHING_MEASURED
    matrix.directory.mkdir(parents=True, exist_ok=True)
    matrix.out.mkdir(parents=True, exist_ok=True)
    allow_open_files()
    scratch = Path(tempfile.mkdtemp(prefix="scale-", dir=matrix.directory))
    try:
        return Program(matrix, scratch, notes, given.commit).run()
    finally:
        shutil.rmtree(scratch)


def serve_has_workers() -> bool:
    asked = subprocess.run(
        [*HEADWATER, "serve", "--help"], capture_output=True, text=True, check=False
    )
    return "--workers" in asked.stdout


def allow_open_files() -> None:
    """For this program and all it starts: a connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, OPEN_FILES), hard))


def scenes_of(what: str) -> SceneModule:
    """Imported when it is needed: the one of producers needs a library that the pack may lack."""
    name = {WATCHERS: "watchers", PRODUCE: "produce"}.get(what, "topics")
    return cast("SceneModule", import_module(f"bench.scale.{name}"))


class Program:
    def __init__(self, matrix: Matrix, scratch: Path, notes: list[str], commit: str | None) -> None:
        self._matrix = matrix
        self._scratch = scratch
        self._notes = notes
        self._commit = commit
        self._began = time.monotonic()
        self._figures: list[Figure] = []
        self._left_out = 0

    def run(self) -> int:
        matrix = self._matrix
        said = (why for what in matrix.what for why in scenes_of(what).missing_peers(matrix.peers))
        self._notes += dict.fromkeys(said)
        whole = matrix.estimate_s(self._sides)
        print(f"{len(matrix.cells())} cells, about {whole / 60:.1f} minutes, ends before "
              f"{matrix.limit_s / 60:.0f}", flush=True)  # fmt: skip
        conditions = self._conditions()
        for line in (*(f"{name}: {value}" for name, value in conditions.items()), *self._notes):
            print(f"# {line}", flush=True)
        with (matrix.out / "results.jsonl").open("w", encoding="utf-8") as results:
            first: dict[str, Any] = {"conditions": conditions, "notes": self._notes}
            self._write(results, json.dumps(first))
            for cells in matrix.scenes():
                self._run_scene(cells, results)
        if self._left_out:
            self._notes.append(f"{self._left_out} cells left out: no time for them")
            print(f"# {self._notes[-1]}")
        conditions["load"] += f" before, {load()} after"
        self._publish(conditions)
        return 1 if any(f.failed or f.missing() for f in self._figures) else 0

    def _conditions(self) -> dict[str, str]:
        matrix = self._matrix
        found = describe_machine(matrix.directory)
        if self._commit:
            found["commit"] = self._commit
        found["payload"] = f"{PAYLOAD_BYTES} B of JSON"
        found["durability"] = "fsync, if a row says nothing else"
        found["fdatasync"] = fdatasync_times(self._scratch)
        found["programs"] = "; ".join([*versions(), *topics.nats_version(self._scratch)])
        found["turns"] = f"{matrix.rounds} of {matrix.seconds:g} s, in turns; medians"
        found["load by"] = f"{matrix.load_threads} threads; wrk alone: {self._ceilings()}"
        found["load"] = load()
        return found

    def _ceilings(self) -> str:
        """What wrk reaches against processes that answer everything alike and look at nothing."""
        matrix = self._matrix
        body = write_body(self._scratch / "ceiling.json", 1)
        found = []
        with BareLoop(self._scratch / "bare", False, matrix.load_threads + 1) as bare:
            for connections in matrix.connections:
                requests = topics.HttpRequests(
                    bare,
                    body,
                    f"/v0/topics/{topics.TOPIC}",
                    max(matrix.topics),
                    connections,
                    matrix.load_threads,
                )
                rate = requests.run(CEILING_S, 1).rate
                found.append(f"{amount(rate)}/s with {connections}")
        return ", ".join(found)

    def _sides(self, what: str) -> int:
        """How many take turns in a cell of this kind."""
        beside = scenes_of(what).peers(self._matrix.peers, [what])
        return len(self._matrix.variants) + len(beside)

    def _run_scene(self, cells: Sequence[Cell], results: IO[str]) -> None:
        if self._is_late(cells[0]):
            self._left_out += len(cells)
            return
        directory = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            with scenes_of(cells[0].what).scene(self._matrix, cells, directory) as scene:
                for cell in cells:
                    if self._is_late(cell):
                        self._left_out += 1
                        continue
                    self._run_cell(scene, cell, results)
                self._check(scene, cells, results)
        except _FAILURES as error:  # a server did not start, or could not be prepared
            self._fail(cells[0], "all", "", error, results)
        shutil.rmtree(directory)

    def _is_late(self, cell: Cell) -> bool:
        end = time.monotonic() - self._began + self._matrix.cell_s(self._sides(cell.what))
        return end > self._matrix.limit_s

    def _run_cell(self, scene: Scene, cell: Cell, results: IO[str]) -> None:
        loads: dict[str, list[Load]] = {}
        failed: dict[str, Exception] = {}
        contenders = scene.contenders(cell)

        def turn(name: str, contender: Contender, seconds: float) -> None:
            if name not in failed:
                try:
                    loads.setdefault(name, []).append(contender(seconds))
                except _FAILURES as error:
                    failed[name] = error

        if self._matrix.warm_up_s:
            for name, contender in contenders.items():
                turn(name, contender, self._matrix.warm_up_s)
            loads.clear()
        for _ in range(self._matrix.rounds):
            for name, contender in contenders.items():
                turn(name, contender, self._matrix.seconds)
        durability = {side.name: side.durability for side in scene.sides}
        made = {
            name: figure(cell, name, durability[name], loads[name])
            for name in contenders
            if name not in failed
        }
        compare(made, [name for name in made if name.startswith("Headwater")])
        for name in contenders:
            if name in failed:
                self._fail(cell, name, durability[name], failed[name], results)
            else:
                self._add(made[name], results)

    def _check(self, scene: Scene, cells: Sequence[Cell], results: IO[str]) -> None:
        for side in scene.sides:
            try:
                scene.check(side)
            except _FAILURES as error:
                self._fail(cells[-1], side.name, side.durability, error, results)

    def _fail(
        self, cell: Cell, side: str, durability: str, error: Exception, results: IO[str]
    ) -> None:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        self._add(Figure(cell, side, durability, failed=said.replace("|", "/")), results)

    def _add(self, made: Figure, results: IO[str]) -> None:
        self._figures.append(made)
        self._write(results, made.line())
        if made.failed:
            print(f"{made.cell.name}: {made.side}: no figure: {made.failed}", flush=True)
            return
        ratios = "".join(f", {ratio:.2f} x {peer}" for peer, ratio in made.ratios.items())
        times = (("p50", made.p50_us), ("p99", made.p99_us), ("p99.9", made.p999_us))
        waits = "".join(f"{name} {us / 1e3:.2f} ms, " for name, us in times if us)
        print(
            f"{made.cell.name}: {made.side}: {amount(made.rate)} {made.unit}{ratios}, "
            f"{waits}{made.server_cpu_us:.1f} us each, "
            f"{made.server_cores:.2f} cores (load {made.client_cores:.2f}), {made.errors} errors",
            flush=True,
        )

    def _write(self, results: IO[str], line: str) -> None:
        results.write(line + "\n")
        results.flush()

    def _publish(self, conditions: dict[str, str]) -> None:
        out = self._matrix.out
        text = page(conditions, self._notes, self._figures)
        (out / "results.md").write_text(text, encoding="utf-8")
        foot = [f"{name}: {value}" for name, value in conditions.items() if name != "libraries"]
        drawn = draw_all(self._figures, foot, out)
        print(
            f"kept in {out}: {', '.join(['results.jsonl', 'results.md', *(p.name for p in drawn)])}"
        )


def fdatasync_times(directory: Path) -> str:
    """Of 4 KiB, written over zeros: what a lone durable write waits for at the least."""
    writes = RawWrites(directory / "fdatasync", 8 * MIB, 4 * KIB)
    times = writes(0.5).latencies_us
    writes.close_and_check()
    return f"p50 {statistics.median(times):.0f} us, p99 {percentile(times, 99):.0f} us (4 KiB)"
