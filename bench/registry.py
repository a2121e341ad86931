"""What a benchmark is: a question, and a function that answers it in rows."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.core.units import MIB


class MissingConditionsError(Exception):
    """A figure that does not say how it was made."""


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
        ratio = self.value / other.value
        return Row(self.name, self.value, self.unit, self.conditions, other.name, ratio)


@dataclass(frozen=True, slots=True)
class Run:
    """How long to measure and where the files go."""

    directory: Path
    quick: bool = False

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


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    question: str
    measure: Measure = field(repr=False)


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str, question: str) -> Callable[[Measure], Measure]:
    def register(measure: Measure) -> Measure:
        BENCHMARKS[name] = Benchmark(name, question, measure)
        return measure

    return register


def load_all() -> None:
    """Import every module whose name starts with `measure_`; each registers itself."""
    package = importlib.import_module("bench")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("measure_"):
            importlib.import_module(f"bench.{module.name}")
