"""The runner: chooses benchmarks, runs them, prints tables and keeps the results."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from bench.conditions import describe_machine, load
from bench.log_under_test import WrongResultError
from bench.page import fill_page, show_plots
from bench.plots import draw_all
from bench.registry import BENCHMARKS, EVERYTHING, MissingToolError, Run, chosen_names, load_all
from bench.report import Result, as_json, keep, markdown, table
from bench.scale import program as scale

SCALE = "scale"
"""Has options of its own: a matrix, where the others are questions."""
REPOSITORY = Path(__file__).resolve().parent.parent


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help="names, groups of them, or all; library")
    parser.add_argument("--quick", action="store_true", help="a moment each: shows that they run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write tables for a page")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="replace the tables between markers there"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw pictures there, as SVG")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument(
        "--directory",
        type=Path,
        default=REPOSITORY / "build" / "bench",
        help="where the files are written: the disk that is measured",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    if arguments[:1] == [SCALE]:
        return scale.main(arguments[1:])
    chosen = parse(arguments)
    load_all()
    if chosen.list:
        for benchmark in BENCHMARKS.values():
            print(f"{benchmark.name:20}{benchmark.group:10}{benchmark.question}")
        return 0
    names = chosen_names(chosen.names)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    if chosen.quick and (chosen.page or chosen.plots):
        print("figures of a quick run mean nothing; --page and --plots take those of a full run")
        return 2
    chosen.directory.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(chosen.directory)
    results: list[Result] = []
    skipped, wrong = 0, 0
    for name in names:
        try:
            results.append(measured(name, machine, chosen.directory, quick=chosen.quick))
        except MissingToolError as error:
            print(f"\n{name}: not measured: {error}", flush=True)
            skipped += 1
        except WrongResultError as error:
            # The others took their time, and their figures are sound.
            print(f"\n{name}: no figure, because the work was not done: {error}", flush=True)
            wrong += 1
        else:
            print(table(results[-1]), flush=True)
    if results and not chosen.quick:
        print(f"kept in {keep(results, REPOSITORY / 'bench' / 'results')}")
    write_out(chosen, results)
    if wrong:
        return 1
    # Everything means everything that can be measured here.
    return 3 if skipped and chosen.names != [EVERYTHING] else 0


def write_out(chosen: argparse.Namespace, results: list[Result]) -> None:
    """Wherever the flags ask for."""
    if chosen.json is not None:
        chosen.json.write_text(as_json(results), encoding="utf-8")
    if chosen.markdown is not None:
        chosen.markdown.write_text("\n".join(map(markdown, results)), encoding="utf-8")
    if chosen.page is not None:
        for name in fill_page(chosen.page, results):
            print(f"{chosen.page} has no markers for {name}")
    if chosen.plots is not None:
        pictures = draw_all(json.loads(as_json(results)), chosen.plots)
        if chosen.page is not None and pictures and not show_plots(chosen.page, pictures):
            print(f"{chosen.page} has no markers for plots")


def measured(name: str, machine: dict[str, str], directory: Path, *, quick: bool) -> Result:
    load_before = load()
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
    run = Run(scratch, quick=quick)
    try:
        rows = BENCHMARKS[name].measure(run)
    finally:
        shutil.rmtree(scratch)
    told = machine | {"load": f"{load_before} before, {load()} after"}
    return Result(BENCHMARKS[name], rows, told, quick=quick, notes=tuple(run.notes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
