"""A plot of the kept results: `python -m bench.spark.plot RESULTS.json docs/spark-reads.svg`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BENCHMARK = "spark-reads"
QUESTIONS = ("scan of all columns", "group by tag", "sum of a payload field")
COLOURS = {"JSON": "#b0b0b0", "Parquet": "#707070"}


def bars(kept: Any) -> dict[str, dict[str, float]]:
    """Question -> way of reading -> records a second."""
    found: dict[str, dict[str, float]] = {}
    for result in kept["results"]:
        if result["name"] != BENCHMARK:
            continue
        for row in result["rows"]:
            question, _, way = row["name"].partition(": ")
            if question in QUESTIONS:
                found.setdefault(question, {})[way] = row["value"]
    return found


def draw(kept: Any, target: Path) -> None:
    from matplotlib.figure import Figure

    found = bars(kept)
    if not found:
        raise SystemExit(f"there are no results of {BENCHMARK} in this file")
    figure = Figure(figsize=(8, 1.2 + 1.7 * len(found)), layout="constrained")
    axes: Any = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for part, (question, ways) in zip(axes, found.items(), strict=True):
        names = list(ways)[::-1]
        values = [ways[name] / 1e6 for name in names]
        part.barh(names, values, color=[COLOURS.get(name, "#2a6f97") for name in names])
        part.bar_label(part.containers[0], fmt="%.2f", padding=3)
        part.set_title(question, loc="left", fontsize=10)
        part.margins(x=0.12)
        part.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("million records of 200 bytes a second, local[2]")
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)


def main(arguments: list[str]) -> int:
    results, target = map(Path, arguments)
    draw(json.loads(results.read_text(encoding="utf-8")), target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
