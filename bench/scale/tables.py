"""The figures of a run as Markdown: a table for each kind of cell, under its conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.report import amount
from bench.scale.figures import Figure
from bench.scale.matrix import PRODUCE, WATCHERS

HEADINGS = (
    "side",
    "rate",
    "ratio",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "server CPU us each",
    "server cores",
    "load cores",
    "turns",
    "errors",
)
PLACES = {
    WATCHERS: ("cores", "watchers"),
    PRODUCE: ("cores", "partitions", "producers"),
}
PLACES_OF_THE_REST = ("cores", "topics", "connections")


def page(conditions: Mapping[str, str], notes: Sequence[str], figures: Sequence[Figure]) -> str:
    lines = ["# Scale", ""]
    lines += [f"- {name}: {value}" for name, value in conditions.items()]
    lines += [f"- {note}" for note in notes]
    for what in dict.fromkeys(figure.cell.what for figure in figures):
        lines += ["", f"## {what}", ""]
        lines += table([figure for figure in figures if figure.cell.what == what])
    return "\n".join(lines) + "\n"


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Of one kind."""
    places = PLACES.get(figures[0].cell.what, PLACES_OF_THE_REST)
    headings = (*places, *HEADINGS)
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for figure in figures:
        yield f"| {' | '.join((*_place(figure), *_cells(figure)))} |"


def _place(figure: Figure) -> list[str]:
    cell = figure.cell
    axes = [cell.cores, cell.topics, cell.connections]
    if cell.what == WATCHERS:
        axes.remove(cell.topics)
    return [f"{n:,}" for n in axes]


def _cells(figure: Figure) -> list[str]:
    if figure.failed:
        return [figure.side, f"no figure: {figure.failed}", *[""] * (len(HEADINGS) - 2)]
    times = (figure.p50_us, figure.p99_us, figure.p999_us, figure.max_us)
    return [
        figure.side,
        f"{amount(figure.rate)} {figure.unit}",
        ", ".join(f"{ratio:.2f} x {peer}" for peer, ratio in figure.ratios.items()),
        *(f"{us / 1e3:,.2f}" if us else "" for us in times),
        f"{figure.server_cpu_us:.2f}",
        f"{figure.server_cores:.2f}",
        f"{figure.client_cores:.2f}",
        f"{amount(min(figure.rates))} to {amount(max(figure.rates))}",
        str(figure.errors),
    ]
