"""What all scenes have in common: sides, and the cores they run on."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.scale.matrix import Cell, Matrix
from bench.server.load import Load
from bench.server.processes import ServerProcess

Contender = Callable[[float], Load]
"""Makes load for about so many seconds."""


@dataclass(slots=True)
class Side:
    """One server under load."""

    name: str
    server: ServerProcess
    durability: str = "fsync"
    acked: int = 0
    sent_at_most: int = 0
    """Acknowledged, and what may have been on its way when the load ended."""

    def sent(self, acked: int, unanswered: int) -> None:
        self.acked += acked
        self.sent_at_most += acked + unanswered


@dataclass(slots=True)
class Scene:
    """Servers that are ready, and how a cell makes load on them; `check` counts what they hold."""

    sides: Sequence[Side]
    contenders: Callable[[Cell], dict[str, Contender]]
    check: Callable[[Side], None]


class SceneModule(Protocol):
    """What the modules of scenes have."""

    def missing_peers(self, wanted: Sequence[str]) -> Iterator[str]:
        """Why one that should be measured beside is not."""

    def peers(self, wanted: Sequence[str], kinds: Collection[str]) -> list[str]:
        """Who is measured beside Headwater with cells of these kinds."""

    def scene(
        self, matrix: Matrix, cells: Sequence[Cell], directory: Path
    ) -> AbstractContextManager[Scene]:
        """Servers ready for these cells, which differ in connections and kind only."""


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What is started meanwhile runs on these, and so does this program."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def server_cores(count: int) -> set[int]:
    return set(sorted(os.sched_getaffinity(0))[:count])


def load_cores(count: int) -> set[int]:
    """Those that the servers do not use; all of them where none is left."""
    there = os.sched_getaffinity(0)
    return there - server_cores(count) or there


@contextmanager
def started(sides: Sequence[Side], cores: int) -> Iterator[None]:
    """All of them run, and all of them are killed, whatever happens: nobody needs their data.

    A clean stop would write a checkpoint of it, for longer than a cell takes.
    """
    with ExitStack() as ends:
        for side in sides:
            with on_cores(server_cores(cores)):
                side.server.start()
            ends.callback(side.server.kill)
        with on_cores(load_cores(cores)):
            yield
