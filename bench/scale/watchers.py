"""The scene of watchers: how long a record takes from its writer to all who watch its topic.

Writes come at fixed times, fewer of them the more watchers there are, so that nothing is saturated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.scale.matrix import Cell, Matrix
from bench.scale.scene import Contender, Scene, Side, started
from bench.server.delivery import command, measure
from bench.server.load import Load
from bench.server.processes import HeadwaterServer

DELIVERIES_A_SECOND: Final = 10_000
WRITES_A_SECOND_MAX: Final = 200.0


def missing_peers(_wanted: Sequence[str]) -> Iterator[str]:
    yield from ()


def peers(_wanted: Sequence[str], _kinds: Collection[str]) -> list[str]:
    return []


@contextmanager
def scene(matrix: Matrix, cells: Sequence[Cell], directory: Path) -> Iterator[Scene]:
    sides = [
        Side(variant.name, HeadwaterServer(directory / f"watched-{number}", variant.options))
        for number, variant in enumerate(matrix.variants)
    ]
    with started(sides, cells[0].cores):
        yield Scene(
            sides,
            lambda cell: {side.name: contender(side, cell) for side in sides},
            lambda _: None,  # the program that watches has counted every record
        )


def contender(side: Side, cell: Cell) -> Contender:
    rate = min(DELIVERIES_A_SECOND / cell.connections, WRITES_A_SECOND_MAX)

    def turn(seconds: float) -> Load:
        server = side.server
        found = measure(command(server.port, server.pid, cell.connections, rate, seconds))
        return Load(
            int(found["deliveries"]),
            found["elapsed_s"],
            found["server_cpu_s"],
            found["p50_us"],
            found["p99_us"],
            found["p999_us"],
            found["max_us"],
            client_cpu_s=found["client_cpu_s"],
        )

    return turn
