"""What one side did in one cell: a line of the results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bench.scale.matrix import PRODUCE, Cell
from bench.server.load import Load

UNITS = {"watchers": "deliveries/s"}


@dataclass(slots=True)
class Figure:
    """Medians over the turns. Times are those of a request, whatever it carries."""

    cell: Cell
    side: str
    durability: str
    rate: float = 0.0
    rates: Sequence[float] = ()
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    max_us: float = 0.0
    server_cpu_us: float = 0.0
    """For one record or delivery."""
    server_cores: float = 0.0
    client_cores: float = 0.0
    errors: int = 0
    """Answers that refuse, and requests without an answer."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Peer -> our rate in units of its own."""
    failed: str = ""

    @property
    def unit(self) -> str:
        return UNITS.get(self.cell.what, "records/s")

    def missing(self) -> list[str]:
        """Names of figures that the cell should have and does not."""
        needed = ["rate", "server_cpu_us", "server_cores", "client_cores"]
        if self.cell.what != PRODUCE:  # its clients report no single ack
            needed += ["p50_us", "p99_us", "p999_us", "max_us"]
        return [name for name in needed if not getattr(self, name) > 0]

    def line(self) -> str:
        told = {name: value for name, value in asdict(self).items() if name != "cell"}
        return json.dumps(asdict(self.cell) | {"unit": self.unit} | told)


def figure(cell: Cell, side: str, durability: str, loads: Sequence[Load]) -> Figure:
    def median(name: str) -> float:
        return float(statistics.median(getattr(load, name) for load in loads))

    return Figure(
        cell,
        side,
        durability,
        rate=median("rate"),
        rates=[load.rate for load in loads],
        p50_us=median("p50_us"),
        p99_us=median("p99_us"),
        p999_us=median("p999_us"),
        max_us=max(load.max_us for load in loads),
        server_cpu_us=median("cpu_us"),
        server_cores=statistics.median(load.cpu_s / load.elapsed_s for load in loads),
        client_cores=statistics.median(load.client_cpu_s / load.elapsed_s for load in loads),
        errors=sum(load.errors for load in loads),
    )


def compare(figures: Mapping[str, Figure], ours: Sequence[str]) -> None:
    """Each of ours with each peer."""
    for name in ours:
        mine = figures[name]
        for peer, theirs in figures.items():
            if peer not in ours and theirs.rate and mine.rate:
                mine.ratios[peer] = mine.rate / theirs.rate
