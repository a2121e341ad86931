"""What a benchmark is: a question, and a function that answers it in rows."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headwater.core.units import MIB


class MissingConditionsError(Exception):
    """A figure that does not say how it was made."""


class MissingToolError(Exception):
    """A program that the benchmark needs is not installed; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `conditions` must at least tell payload and durability."""

    name: str
    value: float
    unit: str
    conditions: Mapping[str, str]
    baseline: str = ""
    ratio: float | None = None

    def __post_init__(self) -> None:
        for needed in ("payload", "durability"):
            if not self.conditions.get(needed):
                raise MissingConditionsError(f"{self.name}: no {needed} in its conditions")
        if (self.ratio is None) != (not self.baseline):
            raise MissingConditionsError(f"{self.name}: a ratio must name its baseline")

    def against(self, other: Row) -> Row:
        """The same figure as a ratio to another one."""
        # A moment so short that the other got nothing done: it happens in quick runs only.
        ratio = self.value / other.value if other.value else math.inf
        return Row(self.name, self.value, self.unit, self.conditions, other.name, ratio)


@dataclass(frozen=True, slots=True)
class Run:
    """How long to measure and where the files go."""

    directory: Path
    quick: bool = False
    notes: list[str] = field(default_factory=list)
    """Versions, settings and commands that belong to the figures; printed with them."""

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 7

    @property
    def seconds(self) -> float:
        """Length of one contender's turn."""
        return 0.03 if self.quick else 0.6

    @property
    def file_bytes(self) -> int:
        """Length of a log file; short where only running matters, since zeros cost time."""
        return self.size(64 * MIB, 1 * MIB)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


Measure = Callable[[Run], list[Row]]

LIBRARY: Final = "library"
"""What runs when nothing is named: needs no other program."""
SERVER: Final = "server"
SPARK: Final = "spark"
QUEUE: Final = "queue"
KAFKA: Final = "kafka"
PEERS: Final = "peers"
MACHINES: Final = "machines"
TAILS: Final = "tails"
EVERYTHING: Final = "all"


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    question: str
    measure: Measure = field(repr=False)
    group: str = LIBRARY


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str, question: str, group: str = LIBRARY) -> Callable[[Measure], Measure]:
    def register(measure: Measure) -> Measure:
        BENCHMARKS[name] = Benchmark(name, question, measure, group)
        return measure

    return register


def chosen_names(names: Sequence[str]) -> list[str]:
    """The benchmarks that are meant: the name of a group is all of it, nothing the library."""
    if list(names) == [EVERYTHING]:
        return list(BENCHMARKS)
    groups = {benchmark.group for benchmark in BENCHMARKS.values()}
    chosen = [
        [known for known, its in BENCHMARKS.items() if its.group == name]
        if name in groups and name not in BENCHMARKS
        else [name]
        for name in names or [LIBRARY]
    ]
    return [name for several in chosen for name in several]


def load_all() -> None:
    """Import every module whose name starts with `measure_`; each registers itself."""
    package = importlib.import_module("bench")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("measure_"):
            importlib.import_module(f"bench.{module.name}")
