"""Results as a table for the terminal, as markdown for the documentation, as JSON to keep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.registry import Benchmark, MissingConditionsError, Row


@dataclass(frozen=True, slots=True)
class Result:
    benchmark: Benchmark
    rows: list[Row]
    machine: Mapping[str, str]
    quick: bool
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        missing = [name for name, value in self.machine.items() if not value]
        if missing or not self.machine:
            raise MissingConditionsError(f"the machine does not say: {', '.join(missing) or 'all'}")


def amount(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _cells(row: Row) -> list[str]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} x {row.baseline}"
    rest = ", ".join(f"{name} {value}" for name, value in row.conditions.items())
    return [row.name, amount(row.value), row.unit, ratio, rest]


def _about(result: Result) -> str:
    note = "quick run, figures mean nothing; " if result.quick else ""
    return note + "; ".join(f"{name} {value}" for name, value in result.machine.items())


HEADINGS = ["what", "figure", "unit", "ratio", "conditions"]


def table(result: Result) -> str:
    lines = [HEADINGS, *map(_cells, result.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = ["", f"{result.benchmark.name}: {result.benchmark.question}", _about(result), ""]
    for line in lines:
        cells = [
            cell.rjust(width) if column == 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    text.extend(f"# {note}" for note in result.notes)
    return "\n".join(text)


def markdown(result: Result) -> str:
    lines = [HEADINGS, ["---", "---:", "---", "---", "---"], *map(_cells, result.rows)]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"- `{note}`\n" for note in result.notes)
    about = f"Made on: {_about(result)}.\n" + (f"\n{notes}" if notes else "")
    return f"### {result.benchmark.question}\n\n{rows}\n\n{about}"


def as_json(results: list[Result]) -> str:
    return json.dumps(
        {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "results": [
                {
                    "name": result.benchmark.name,
                    "question": result.benchmark.question,
                    "quick": result.quick,
                    "machine": dict(result.machine),
                    "notes": list(result.notes),
                    "rows": [asdict(row) for row in result.rows],
                }
                for result in results
            ],
        },
        indent=1,
    )


def keep(results: list[Result], directory: Path) -> Path:
    """Write one JSON file per run; never over an older one."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.json"
    path.write_text(as_json(results), encoding="utf-8")
    return path
