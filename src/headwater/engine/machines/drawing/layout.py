"""Where the states and arrows of a picture go.

States stand in ranks, by how far they are from the initial one; within a rank near those they are
connected with. Arrows run at right angles: down from a state into the gap below its rank, along a
row of that gap that is theirs alone, and down to a state of the next rank. Those that go elsewhere
take a lane at the side, theirs alone too. So no two lines lie on each other, and every label has a
row to itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from headwater.engine.machines.drawing.picture import Arrow, Picture, shortened

CHARACTER_WIDTH: Final = 7.4
LABEL_SCALE: Final = 0.94
"""Labels are written a little smaller than states."""
STATE_HEIGHT: Final = 36.0
STATE_WIDTH_MIN: Final = 76.0
STATE_DISTANCE: Final = 34.0
ROW_HEIGHT: Final = 15.0
GAP_PADDING: Final = 16.0
LANE_DISTANCE: Final = 16.0
MARGIN: Final = 20.0
TITLE_HEIGHT: Final = 30.0
LOOP_WIDTH: Final = 26.0
SWEEPS: Final = 6


@dataclass(slots=True)
class Box:
    state: str
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    loop_width: float = 0.0
    """Room to the right for an arrow from the state to itself."""

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Path:
    """One arrow: the corners of its line, and where its labels stand, one below the other."""

    arrow: Arrow
    points: tuple[tuple[float, float], ...]
    label_x: float
    label_y: float
    is_loop: bool = False


@dataclass(slots=True)
class DrawingLayout:
    width: float
    height: float
    boxes: dict[str, Box]
    paths: list[Path]
    start: tuple[float, float]
    """Where the dot before the initial state is."""


@dataclass(slots=True)
class _RankGap:
    """The space above a rank: rows for the arrows that run through it."""

    rows: list[tuple[Arrow, float]] = field(default_factory=list)
    """Whose row, and how high it is."""
    top: float = 0.0

    @property
    def height(self) -> float:
        return 2 * GAP_PADDING + sum(height for _, height in self.rows)

    def row_of(self, arrow: Arrow) -> tuple[float, float]:
        """The line's height, and the first label's."""
        y = self.top + GAP_PADDING
        for owner, height in self.rows:
            if owner is arrow:
                return y + height - ROW_HEIGHT / 3, y + ROW_HEIGHT * 0.55
            y += height
        raise KeyError(arrow)


def text_width(text: str) -> float:
    """As wide as it will be drawn, or a little wider: wide characters take two columns."""
    columns = sum(2 if ord(each) > 0x2E80 else 1 for each in text)
    return columns * CHARACTER_WIDTH


def label_width(arrow: Arrow) -> float:
    return max(one_label_width(label) for label in arrow.labels)


def one_label_width(label: str) -> float:
    return text_width(shortened(label)) * LABEL_SCALE


def lay_out(drawn: Picture) -> DrawingLayout:
    return _LayoutBuilder(drawn).layout()


class _LayoutBuilder:
    def __init__(self, drawn: Picture) -> None:
        self._drawn = drawn
        self._ranks = _ranked(drawn)
        self._rank_of = {state: number for number, rank in enumerate(self._ranks) for state in rank}
        self._boxes = {state: Box(state) for state in drawn.states}
        self._start_x = 0.0
        self._gaps = [_RankGap() for _ in range(len(self._ranks) + 1)]
        self._loops = [arrow for arrow in drawn.arrows if arrow.source == arrow.target]
        between = [arrow for arrow in drawn.arrows if arrow.source != arrow.target]
        self._near = [arrow for arrow in between if self._is_near(arrow)]
        self._far = [arrow for arrow in between if not self._is_near(arrow)]

    def layout(self) -> DrawingLayout:
        self._order_ranks()
        self._size_boxes()
        content = self._position_columns()
        self._assign_rows()
        height = self._position_rows()
        ports = self._ports()
        paths = [self._loop_path(arrow) for arrow in self._loops]
        paths += [self._near_path(arrow, ports) for arrow in self._near]
        paths += [
            self._far_path(arrow, ports, content + LANE_DISTANCE * (number + 1))
            for number, arrow in enumerate(self._by_span())
        ]
        width = content + LANE_DISTANCE * (len(self._far) + 1)
        width = max([width, *(path.label_x + label_width(path.arrow) / 2 for path in paths)])
        first = self._boxes[self._drawn.initial]
        start = (self._start_x, first.y - GAP_PADDING - 4)
        title = text_width(self._drawn.title) * 1.2
        return DrawingLayout(max(width, title) + MARGIN, height + MARGIN, self._boxes, paths, start)

    # -- across

    def _is_near(self, arrow: Arrow) -> bool:
        return self._rank_of[arrow.target] == self._rank_of[arrow.source] + 1

    def _order_ranks(self) -> None:
        """Each state near the middle of those it is connected with, going down and up."""
        neighbours: dict[str, list[str]] = {state: [] for state in self._drawn.states}
        for arrow in self._near:
            neighbours[arrow.source].append(arrow.target)
            neighbours[arrow.target].append(arrow.source)
        for sweep in range(SWEEPS):
            order = range(len(self._ranks)) if sweep % 2 == 0 else range(len(self._ranks))[::-1]
            for number in order:
                position = {
                    state: index / max(1, len(rank) - 1)
                    for rank in self._ranks
                    for index, state in enumerate(rank)
                }
                rank = self._ranks[number]
                weight = {state: _mean([position[n] for n in neighbours[state]]) for state in rank}
                rank.sort(key=lambda state, weight=weight: weight[state])  # type: ignore[misc]

    def _size_boxes(self) -> None:
        for state, box in self._boxes.items():
            box.width = max(STATE_WIDTH_MIN, text_width(shortened(state)) + 24)
        for arrow in self._loops:
            box = self._boxes[arrow.source]
            box.loop_width = LOOP_WIDTH + label_width(arrow) + 6

    def _position_columns(self) -> float:
        """Ranks are centred. Gives the width of the widest."""
        widths = [
            sum(self._boxes[state].width + self._boxes[state].loop_width for state in rank)
            + STATE_DISTANCE * (len(rank) - 1)
            for rank in self._ranks
        ]
        widest = max([*widths, *(label_width(arrow) + 20 for arrow in self._near + self._far)])
        for rank, width in zip(self._ranks, widths, strict=True):
            x = MARGIN + (widest - width) / 2
            for state in rank:
                box = self._boxes[state]
                box.x = x
                x += box.width + box.loop_width + STATE_DISTANCE
        return MARGIN + widest

    # -- down

    def _by_span(self) -> list[Arrow]:
        """The shortest in the innermost lane."""

        def span(arrow: Arrow) -> int:
            return abs(self._rank_of[arrow.source] - self._rank_of[arrow.target])

        return sorted(self._far, key=span)

    def _assign_rows(self) -> None:
        for arrow in self._near:
            height = ROW_HEIGHT * (len(arrow.labels) + 0.5)
            self._gaps[self._rank_of[arrow.target]].rows.append((arrow, height))
        for arrow in self._far:
            height = ROW_HEIGHT * (len(arrow.labels) + 0.5)
            self._gaps[self._rank_of[arrow.source] + 1].rows.append((arrow, height))
            if self._rank_of[arrow.target] != self._rank_of[arrow.source] + 1:
                self._gaps[self._rank_of[arrow.target]].rows.append((arrow, ROW_HEIGHT))

    def _position_rows(self) -> float:
        y = MARGIN + TITLE_HEIGHT
        for number, rank in enumerate(self._ranks):
            gap = self._gaps[number]
            gap.top = y
            y += gap.height
            for state in rank:
                self._boxes[state].y = y
            y += max(STATE_HEIGHT, *(self._loop_height(state) for state in rank))
        self._gaps[-1].top = y
        return y + (self._gaps[-1].height if self._gaps[-1].rows else 0)

    def _loop_height(self, state: str) -> float:
        return max(
            (ROW_HEIGHT * len(each.labels) for each in self._loops if each.source == state),
            default=0.0,
        )

    # -- lines

    def _ports(self) -> dict[tuple[Arrow, str], float]:
        """Where each arrow leaves and enters: spread over the width of the state, in the order of
        where they come from and go to."""
        leaving: dict[str, list[Arrow]] = {}
        entering: dict[str, list[Arrow]] = {}
        for arrow in self._near + self._far:
            leaving.setdefault(arrow.source, []).append(arrow)
            entering.setdefault(arrow.target, []).append(arrow)
        ports: dict[tuple[Arrow, str], float] = {}
        self._start_x = self._boxes[self._drawn.initial].middle
        for side, sides in (("out", leaving), ("in", entering)):
            for state, arrows in sides.items():
                box = self._boxes[state]
                arrows.sort(key=lambda arrow, side=side: self._towards(arrow, side))  # type: ignore[misc]
                # The first port of the initial state is for the arrow from the dot.
                taken = int(side == "in" and state == self._drawn.initial)
                step = box.width / (len(arrows) + taken + 1)
                for index, arrow in enumerate(arrows):
                    ports[arrow, side] = box.x + step * (index + taken + 1)
                if taken:
                    self._start_x = box.x + step
        return ports

    def _towards(self, arrow: Arrow, side: str) -> float:
        if not self._is_near(arrow):
            return float("inf")  # to the lanes, on the right
        return self._boxes[arrow.target if side == "out" else arrow.source].middle

    def _near_path(self, arrow: Arrow, ports: dict[tuple[Arrow, str], float]) -> Path:
        begin, end = ports[arrow, "out"], ports[arrow, "in"]
        line, label = self._gaps[self._rank_of[arrow.target]].row_of(arrow)
        source, target = self._boxes[arrow.source], self._boxes[arrow.target]
        points = (
            (begin, source.y + STATE_HEIGHT),
            (begin, line),
            (end, line),
            (end, target.y),
        )
        return Path(arrow, points, _inside((begin + end) / 2, arrow), label)

    def _far_path(self, arrow: Arrow, ports: dict[tuple[Arrow, str], float], lane: float) -> Path:
        begin, end = ports[arrow, "out"], ports[arrow, "in"]
        source, target = self._boxes[arrow.source], self._boxes[arrow.target]
        leave, label = self._gaps[self._rank_of[arrow.source] + 1].row_of(arrow)
        arrive, _ = self._gaps[self._rank_of[arrow.target]].row_of(arrow)
        points = (
            (begin, source.y + STATE_HEIGHT),
            (begin, leave),
            (lane, leave),
            (lane, arrive),
            (end, arrive),
            (end, target.y),
        )
        beside = begin + label_width(arrow) / 2 + 6
        return Path(arrow, points, _inside(beside, arrow), label)

    def _loop_path(self, arrow: Arrow) -> Path:
        box = self._boxes[arrow.source]
        right, upper, lower = box.x + box.width, box.y + 10, box.y + STATE_HEIGHT - 10
        points = (
            (right, upper),
            (right + LOOP_WIDTH - 6, upper),
            (right + LOOP_WIDTH - 6, lower),
            (right, lower),
        )
        middle = right + LOOP_WIDTH + label_width(arrow) / 2
        first = box.y + STATE_HEIGHT / 2 - ROW_HEIGHT * (len(arrow.labels) - 1) / 2
        return Path(arrow, points, middle, first, is_loop=True)


def _inside(x: float, arrow: Arrow) -> float:
    return max(x, MARGIN + label_width(arrow) / 2)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.5


def _ranked(drawn: Picture) -> list[list[str]]:
    """By the fewest transitions from the initial state; what cannot be reached comes last."""
    ways: dict[str, list[str]] = {}
    for arrow in drawn.arrows:
        ways.setdefault(arrow.source, []).append(arrow.target)
    depth = {drawn.initial: 0}
    waiting = deque([drawn.initial])
    while waiting:
        state = waiting.popleft()
        for target in ways.get(state, ()):
            if target not in depth:
                depth[target] = depth[state] + 1
                waiting.append(target)
    beyond = max(depth.values()) + 1
    ranks: list[list[str]] = [[] for _ in range(beyond + 1)]
    for state in drawn.states:
        ranks[depth.get(state, beyond)].append(state)
    return [rank for rank in ranks if rank]
