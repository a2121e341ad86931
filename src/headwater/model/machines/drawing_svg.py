"""A picture of a machine as SVG: readable by itself, in light and in dark, with nothing in it but
shapes and escaped text."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from headwater.model.machines.drawing import Picture, shortened
from headwater.model.machines.drawing_layout import (
    MARGIN,
    ROW_HEIGHT,
    STATE_HEIGHT,
    Box,
    Path,
    lay_out,
    one_label_width,
)

CORNER: Final = 7.0
STYLE: Final = """
svg { background: #ffffff; font: 12px ui-monospace, Menlo, Consolas, monospace; }
.title { font-size: 14px; font-weight: 600; fill: #1f2328; }
.state rect { fill: #f6f8fa; stroke: #59636e; stroke-width: 1.2; }
.state text { fill: #1f2328; text-anchor: middle; }
.current rect { fill: #1a7f37; stroke: #116329; stroke-width: 2.4; }
.current text { fill: #ffffff; font-weight: 600; }
.arrow { fill: none; stroke: #59636e; stroke-width: 1.2; }
.head, .start { fill: #59636e; }
.label text { fill: #0550ae; text-anchor: middle; font-size: 11px; }
.label rect { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; }
  .title { fill: #f0f6fc; }
  .state rect { fill: #151b23; stroke: #9198a1; }
  .state text { fill: #f0f6fc; }
  .current rect { fill: #238636; stroke: #3fb950; }
  .current text { fill: #ffffff; }
  .arrow { stroke: #9198a1; }
  .head, .start { fill: #9198a1; }
  .label text { fill: #79c0ff; }
  .label rect { fill: #0d1117; }
}
"""


def svg(drawn: Picture) -> str:
    layout = lay_out(drawn)
    width, height = round(layout.width), round(layout.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={_attribute(_described(drawn))}>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" class="head" viewBox="0 0 10 10" refX="9" refY="5" '
        'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
        '<path d="M0 0 10 5 0 10z"/></marker></defs>',
        f'<text class="title" x="{MARGIN:g}" y="{MARGIN + 10:g}">{_text(drawn.title)}</text>',
    ]
    x, y = layout.start
    parts.append(f'<circle class="start" cx="{x:g}" cy="{y:g}" r="5"/>')
    first = layout.boxes[drawn.initial].y
    parts.append(f'<path class="arrow" d="M{x:g} {y:g}V{first:g}" marker-end="url(#head)"/>')
    parts += [_line(path) for path in layout.paths]
    parts += [_state(box, box.state == drawn.current) for box in layout.boxes.values()]
    parts += [_labels(path) for path in layout.paths]
    parts.append("</svg>\n")
    return "\n".join(parts)


def _described(drawn: Picture) -> str:
    where = "" if drawn.current is None else f", now in {drawn.current}"
    return f"{drawn.title}: {len(drawn.states)} states{where}"


def _line(path: Path) -> str:
    return f'<path class="arrow" d="{_rounded(path.points)}" marker-end="url(#head)"/>'


def _rounded(points: tuple[tuple[float, float], ...]) -> str:
    """A line through these corners, with its corners taken off."""
    corners = [points[0]]
    for point in points[1:]:
        if point != corners[-1]:
            corners.append(point)
    commands = [f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"]
    for before, here, after in zip(corners, corners[1:], corners[2:], strict=False):
        enter, leave = _towards(here, before), _towards(here, after)
        commands.append(f"L{enter[0]:.1f} {enter[1]:.1f}")
        commands.append(f"Q{here[0]:.1f} {here[1]:.1f} {leave[0]:.1f} {leave[1]:.1f}")
    commands.append(f"L{corners[-1][0]:.1f} {corners[-1][1]:.1f}")
    return "".join(commands)


def _towards(here: tuple[float, float], there: tuple[float, float]) -> tuple[float, float]:
    across, down = there[0] - here[0], there[1] - here[1]
    length = abs(across) + abs(down)
    step = min(CORNER, length / 2) / length
    return here[0] + across * step, here[1] + down * step


def _state(box: Box, is_current: bool) -> str:
    kind = "state current" if is_current else "state"
    return (
        f'<g class="{kind}"><title>{_text(box.state)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{STATE_HEIGHT:g}" rx="9"/>'
        f'<text x="{box.middle:.1f}" y="{box.y + STATE_HEIGHT / 2 + 4:.1f}">'
        f"{_text(shortened(box.state))}</text></g>"
    )


def _labels(path: Path) -> str:
    """On ground of their own: lines that cross do not make them harder to read."""
    parts = []
    for number, label in enumerate(path.arrow.labels):
        width = one_label_width(label)
        y = path.label_y + ROW_HEIGHT * number
        parts.append(
            f'<g class="label"><title>{_text(label)}</title>'
            f'<rect x="{path.label_x - width / 2:.1f}" y="{y - ROW_HEIGHT / 2:.1f}" '
            f'width="{width:.1f}" height="{ROW_HEIGHT:g}"/>'
            f'<text x="{path.label_x:.1f}" y="{y + 4:.1f}">{_text(shortened(label))}</text></g>'
        )
    return "".join(parts)


def _text(text: str) -> str:
    return escape(_allowed(text))


def _attribute(text: str) -> str:
    return quoteattr(_allowed(text))


def _allowed(text: str) -> str:
    """XML has no way to write some characters at all."""
    return "".join(each if each.isprintable() or each == " " else "�" for each in text)
