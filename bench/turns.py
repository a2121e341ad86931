"""Contenders take turns, ABAB, so that a noisy moment hits all of them; medians are reported."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.registry import Run


@dataclass(slots=True)
class Turn:
    """What one contender did in one of its turns."""

    operations: int
    elapsed_s: float
    syncs: int = 0
    latencies_us: list[float] = field(default_factory=list)
    background: int = 0
    """Work that something else got done meanwhile."""

    @property
    def rate(self) -> float:
        return self.operations / self.elapsed_s

    @property
    def sync_rate(self) -> float:
        return self.syncs / self.elapsed_s


Contender = Callable[[float], Turn]
"""Works for about this many seconds and tells what it did."""


def take_turns(run: Run, contenders: Mapping[str, Contender]) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    if not run.quick:
        for contender in contenders.values():
            contender(0.1)  # warm up: caches, first files, predictions
    for _ in range(run.rounds):
        for name, contender in contenders.items():
            turns[name].append(contender(run.seconds))
    return turns


def median_rate(turns: Sequence[Turn]) -> float:
    return statistics.median(turn.rate for turn in turns)


def median_sync_rate(turns: Sequence[Turn]) -> float:
    return statistics.median(turn.sync_rate for turn in turns)


def latency_us(turns: Sequence[Turn], percent: int) -> float:
    """The median over turns of a percentile within each; turns too short for any do not count."""
    found = [percentile(turn.latencies_us, percent) for turn in turns if turn.latencies_us]
    return statistics.median(found) if found else math.nan


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def repeated(step: Callable[[], int]) -> Contender:
    """A contender that calls `step` over and over; `step` returns the operations it did."""

    def contender(seconds: float) -> Turn:
        clock = time.perf_counter
        operations = 0
        started = clock()
        deadline = started + seconds
        while True:
            operations += step()
            now = clock()
            if now >= deadline:
                return Turn(operations, now - started)

    return contender
