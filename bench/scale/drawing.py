"""Lines over logarithmic axes as SVG, drawn with nothing but text: the pack has no matplotlib.

A picture is a grid of panels: a row for each kind of cell, a column for each value of what the
panels differ in. Each panel has a y axis of its own. Its foot says how the figures were made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from bench.plots import COLOURS
from bench.scale.figures import Figure
from bench.scale.matrix import OVER_TOPICS, PRODUCE, SINGLES

Points = list[tuple[float, float]]

PANEL_WIDTH: Final = 230
PANEL_HEIGHT: Final = 170
LEFT: Final = 64
TOP: Final = 56
GAP: Final = 66
ROW_GAP: Final = 62
LEGEND_WIDTH: Final = 210
LINE_HEIGHT: Final = 13
OURS: Final = (
    "#0b5d7a",
    "#4aa3bf",
    "#c98a1b",
    "#5b7f2b",
    "#2f4f4f",
    "#9c5fa8",
    "#d0742f",
    "#7a7a2e",
)
INK: Final = "#333333"
PALE: Final = "#e3e3e3"


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    lines: Mapping[str, Points]


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    x: str
    y: str
    rows: Sequence[tuple[str, Sequence[Panel]]]
    y_is_log: bool = False


def draw_all(figures: Sequence[Figure], foot: Sequence[str], directory: Path) -> list[Path]:
    """Every picture that has more than one point on some line."""
    drawn = []
    for name, picture in pictures(figures):
        panels = [panel for _, row in picture.rows for panel in row]
        if any(len(points) > 1 for panel in panels for points in panel.lines.values()):
            path = directory / name
            path.write_text(drawing(picture, foot), encoding="utf-8")
            drawn.append(path)
    return drawn


def pictures(figures: Sequence[Figure]) -> Iterator[tuple[str, Picture]]:
    good = [f for f in figures if not f.failed and f.cell.what in (*OVER_TOPICS, PRODUCE)]
    if not good:
        return
    most = max(f.cell.cores for f in good)
    all_cores = [f for f in good if f.cell.cores == most]
    for axis, other in (("topics", "connections"), ("connections", "topics")):
        rows = _rows(all_cores, axis, other, lambda f: f.rate)
        yield (
            f"rate-{axis}.svg",
            Picture(f"Records a second against {axis}", axis, "records/s", rows),
        )
    largest = max(f.cell.topics for f in good)
    rows = _rows(
        [f for f in good if f.cell.topics == largest], "cores", "connections", lambda f: f.rate
    )
    title = f"Records a second against cores of the servers, {largest} topics"
    yield "rate-cores.svg", Picture(title, "cores", "records/s", rows)
    timed = [f for f in all_cores if f.cell.what == SINGLES]
    shares: dict[str, Callable[[Figure], float]] = {
        "50 % within": lambda f: f.p50_us / 1e3,
        "99 % within": lambda f: f.p99_us / 1e3,
        "99.9 % within": lambda f: f.p999_us / 1e3,
    }
    rows = []
    for topics in sorted({f.cell.topics for f in timed}):
        of_row = [f for f in timed if f.cell.topics == topics]
        panels = [
            Panel(share, _lines(of_row, "connections", value)) for share, value in shares.items()
        ]
        rows.append((f"{topics} topics", panels))
    title = "How long a single durable write waits for its answer"
    yield "latency.svg", Picture(title, "connections", "milliseconds", rows, y_is_log=True)


def _rows(
    figures: Sequence[Figure], axis: str, other: str, value: Callable[[Figure], float]
) -> list[tuple[str, list[Panel]]]:
    rows = []
    for what in dict.fromkeys(f.cell.what for f in figures):
        of_what = [f for f in figures if f.cell.what == what]
        panels = [
            Panel(
                f"{n} {other}",
                _lines([f for f in of_what if getattr(f.cell, other) == n], axis, value),
            )
            for n in sorted({getattr(f.cell, other) for f in of_what})
        ]
        rows.append((what, panels))
    return rows


def _lines(
    figures: Sequence[Figure], axis: str, value: Callable[[Figure], float]
) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for f in figures:
        found.setdefault(f.side, []).append((getattr(f.cell, axis), value(f)))
    return {side: sorted(points) for side, points in found.items()}


def drawing(picture: Picture, foot: Sequence[str]) -> str:
    sides = dict.fromkeys(side for _, row in picture.rows for panel in row for side in panel.lines)
    colours = dict(zip(sides, _colours(list(sides)), strict=True))
    columns = max(len(row) for _, row in picture.rows)
    width = LEFT + columns * (PANEL_WIDTH + GAP) + LEGEND_WIDTH
    grid_height = len(picture.rows) * (PANEL_HEIGHT + ROW_GAP)
    height = TOP + grid_height + LINE_HEIGHT * (len(foot) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(12, 20, picture.title, size=14, bold=True),
    ]
    for number, (name, panels) in enumerate(picture.rows):
        top = TOP + number * (PANEL_HEIGHT + ROW_GAP)
        parts.append(_text(12, top - 18, f"{name}: {picture.y}", bold=True))
        parts += _row(picture, panels, top, colours)
    for number, (side, colour) in enumerate(colours.items()):
        x, y = width - LEGEND_WIDTH + 10, TOP + 8 + number * 16
        parts.append(f'<path d="M{x} {y}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 24, y + 3, side))
    for number, line in enumerate(foot):
        parts.append(_text(12, TOP + grid_height + number * LINE_HEIGHT, line, colour="#555555"))
    return "\n".join([*parts, "</svg>\n"])


def _colours(sides: Sequence[str]) -> Iterator[str]:
    """A peer has the colour that it has in every picture."""
    own = iter(OURS * len(sides))
    for side in sides:
        known = [colour for name, colour in COLOURS.items() if side.startswith(name)]
        yield known[0] if known else next(own)


def _row(
    picture: Picture, panels: Sequence[Panel], top: int, colours: Mapping[str, str]
) -> Iterator[str]:
    points = [point for panel in panels for line in panel.lines.values() for point in line]
    across = Axis(sorted({x for x, _ in points}), LEFT, PANEL_WIDTH, is_log=True)
    for number, panel in enumerate(panels):
        yield f'<g transform="translate({number * (PANEL_WIDTH + GAP)} 0)">'
        yield from _frame(picture, panel, top, across)
        up = _y_axis(picture, panel, top)
        for side, line in panel.lines.items():
            there = [(across.at(x), up.at(y)) for x, y in line if y > 0]
            way = " ".join(f"{x:.1f},{y:.1f}" for x, y in there)
            style = f'fill="none" stroke="{colours[side]}" stroke-width="2"'
            yield f'<polyline points="{way}" {style}/>'
            for x, y in there:
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colours[side]}"/>'
        yield "</g>"


def _y_axis(picture: Picture, panel: Panel, top: int) -> Axis:
    ys = [y for line in panel.lines.values() for _, y in line if y > 0] or [1.0]
    low = 10 ** math.floor(math.log10(min(ys))) if picture.y_is_log else 0.0
    return Axis([low, max(ys) * 1.08], top + PANEL_HEIGHT, -PANEL_HEIGHT, is_log=picture.y_is_log)


def _frame(picture: Picture, panel: Panel, top: int, across: Axis) -> Iterator[str]:
    up, foot = _y_axis(picture, panel, top), top + PANEL_HEIGHT
    yield _text(LEFT, top - 4, panel.title)
    for tick in up.ticks():
        y = up.at(tick)
        yield f'<path d="M{LEFT} {y:.1f}h{PANEL_WIDTH}" stroke="{PALE}"/>'
        said = f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"
        yield _text(LEFT - 4, y + 3, said, anchor="end")
    for x in across.values:
        yield _text(across.at(x), foot + 13, f"{x:,.0f}", anchor="middle")
    yield _text(LEFT + PANEL_WIDTH / 2, foot + 27, picture.x, anchor="middle")


class Axis:
    """Values to places along a panel."""

    def __init__(self, values: Sequence[float], start: float, length: float, *, is_log: bool):
        self.values = values
        self._start = start
        self._length = length
        self._scale: Callable[[float], float] = math.log10 if is_log else float
        self._is_log = is_log
        self._low, self._high = self._scale(values[0]), self._scale(values[-1])

    def at(self, value: float) -> float:
        if self._high == self._low:
            return self._start + self._length / 2
        return self._start + self._length * (self._scale(value) - self._low) / (
            self._high - self._low
        )

    def ticks(self) -> list[float]:
        low, high = self.values[0], self.values[-1]
        if self._is_log:
            first = math.floor(math.log10(low))
            return [10.0**n for n in range(first, math.floor(math.log10(high)) + 1)]
        raw = (high - low) / 5
        unit = 10 ** math.floor(math.log10(raw))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= raw)
        return [step * n for n in range(int(high / step) + 1)]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 10,
    bold: bool = False,
    anchor: str = "start",
    colour: str = INK,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}"{weight}>{escape(text)}</text>'
    )
