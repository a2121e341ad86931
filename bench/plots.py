"""Pictures of kept results: `python -m bench.plots RESULTS.json docs/images`.

The same results give the same bytes. Each picture says under its axes how its figures were made;
one that cannot say it is refused, and so are the figures of a quick run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.registry import MissingConditionsError

Points = dict[str, list[tuple[float, float]]]
"""Line -> x and y, in the order of x."""

TOLD: Final = ("processor", "cores", "kernel", "file system", "python", "commit", "load")
OURS: Final = "Headwater"
COLOURS: Final = {
    "Headwater POST, fsync": "#0b5d7a",
    "Headwater POST, disk": "#4aa3bf",
    "Redis": "#b23a2e",
    "PostgreSQL": "#6b6b6b",
    "NATS": "#8a6bb1",
}
"""Of lines that begin so: a peer has the same colour in every picture."""
OTHERS: Final = ("#0b5d7a", "#c98a1b", "#5b7f2b", "#8a6bb1")
SETTINGS: Final[Any] = {"svg.hashsalt": "headwater", "svg.fonttype": "none", "font.size": 9}


@dataclass(frozen=True, slots=True)
class Picture:
    """`lines` takes the rows of a benchmark; several panels share the x axis."""

    file: str
    benchmark: str
    title: str
    x: str
    y: str
    panels: Mapping[str, Callable[[list[Any]], Points]]


def _number(text: str) -> float:
    return float(text.replace(",", "").split()[0])


def _by_connections(value: Callable[[Any], float]) -> Callable[[list[Any]], Points]:
    def points(rows: list[Any]) -> Points:
        found: Points = {}
        for row in rows:
            name, durability = row["name"].rpartition(", ")[0], row["conditions"]["durability"]
            if not name.endswith(durability):
                name = f"{name}, {durability}"
            point = (_number(row["conditions"]["connections"]), value(row))
            if point not in found.setdefault(name, []):  # a row for each peer it is compared with
                found[name].append(point)
        return found

    return points


def _by_records(unit: str, pattern: str) -> Callable[[list[Any]], Points]:
    named = re.compile(pattern + r", ([\d,]+) records$")

    def points(rows: list[Any]) -> Points:
        found: Points = {}
        for row in rows:
            fits = named.match(row["name"])
            if fits and row["unit"] == unit:
                found.setdefault(fits[1], []).append((_number(fits[2]), row["value"]))
        return found

    return points


PICTURES: Final = (
    Picture(
        "throughput.svg",
        "peers-writes",
        "Single durable writes against connections",
        "connections",
        "writes a second",
        {"": _by_connections(lambda row: float(row["value"]))},
    ),
    Picture(
        "latency.svg",
        "peers-writes",
        "How long a single durable write waits for its answer",
        "connections",
        "microseconds",
        {
            "half of them within": _by_connections(lambda row: _number(row["conditions"]["p50"])),
            "99 % within": _by_connections(lambda row: _number(row["conditions"]["p99"])),
        },
    ),
    Picture(
        "size.svg",
        "embedded-size",
        "What one more record costs in a longer log",
        "records in the log",
        "CPU microseconds a record",
        {"": _by_records("CPU us a record", "(append, batch of 100|read, 1000 a call)")},
    ),
    Picture(
        "restart.svg",
        "embedded-size",
        "From the start of the process to the first answer",
        "records in the log",
        "milliseconds",
        {"": _by_records("ms to first answer", r"(restart after .*)")},
    ),
)


def draw_all(kept: Any, directory: Path) -> dict[Path, str]:
    """Every picture whose benchmark was run; gives the files and their titles."""
    directory.mkdir(parents=True, exist_ok=True)
    results = {result["name"]: result for result in kept["results"]}
    return {
        draw(picture, results[picture.benchmark], directory / picture.file): picture.title
        for picture in PICTURES
        if picture.benchmark in results
    }


def conditions(result: Any) -> Iterator[str]:
    if result["quick"]:
        raise MissingConditionsError(f"{result['name']}: figures of a quick run mean nothing")
    missing = [name for name in TOLD if not result["machine"].get(name)]
    if missing:
        raise MissingConditionsError(f"{result['name']}: no {', '.join(missing)}")
    machine = result["machine"]
    for row in result["rows"]:
        for needed in ("payload", "durability"):
            if not row["conditions"].get(needed):
                raise MissingConditionsError(f"{row['name']}: no {needed} in its conditions")
    durabilities = sorted({row["conditions"]["durability"] for row in result["rows"]})
    payloads = sorted({row["conditions"]["payload"] for row in result["rows"]})
    yield f"payload {', '.join(payloads)}; durability {', '.join(durabilities)}"
    yield "; ".join(f"{name} {machine[name]}" for name in TOLD[:4])
    yield "; ".join(f"{name} {machine[name]}" for name in TOLD[4:])


def draw(picture: Picture, result: Any, target: Path) -> Path:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    told = "\n".join(conditions(result))
    with mpl.rc_context(SETTINGS):
        count = len(picture.panels)
        figure = Figure(figsize=(4.2 * count + 3.2, 4.4), facecolor="white", layout="constrained")
        axes: Any = figure.subplots(1, count, squeeze=False)[0]
        for part, (name, points) in zip(axes, picture.panels.items(), strict=True):
            _panel(part, name, picture, points(result["rows"]))
        axes[0].set_ylabel(picture.y)
        axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.suptitle(picture.title, x=0.01, ha="left", fontsize=11, weight="bold")
        figure.supxlabel(told, x=0.01, ha="left", fontsize=7, color="#555555")
        figure.savefig(target, metadata={"Date": None, "Creator": None})
    return target


def _colour(line: str, number: int) -> str:
    known = [colour for name, colour in COLOURS.items() if line.startswith(name)]
    return known[0] if known else OTHERS[number % len(OTHERS)]


def _panel(part: Any, name: str, picture: Picture, points: Points) -> None:
    if not points:
        raise MissingConditionsError(f"{picture.benchmark} has no rows for {picture.file}")
    for number, (line, values) in enumerate(points.items()):
        xs, ys = zip(*sorted(values), strict=True)
        part.plot(
            xs,
            ys,
            marker="o",
            markersize=4,
            linewidth=2.2 if line.startswith(OURS) else 1.4,
            color=_colour(line, number),
            label=line,
        )
        part.set_xscale("log")
        part.set_xticks(xs, [f"{x:,.0f}" for x in xs], minor=False)
    part.set_xticks([], minor=True)
    part.set_ylim(bottom=0)
    part.yaxis.set_major_formatter("{x:,.6g}")  # halves too, where a few units are all there is
    part.set_xlabel(picture.x)
    part.set_title(name, loc="left", fontsize=9)
    part.grid(axis="y", color="#e3e3e3", linewidth=0.8)
    part.set_axisbelow(True)
    part.spines[["top", "right"]].set_visible(False)


def main(arguments: list[str]) -> int:
    results, directory = map(Path, arguments)
    for path in draw_all(json.loads(results.read_text(encoding="utf-8")), directory):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
