"""What became of an operation, what was counted, and what went against a promise."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class RunOutcome(Enum):
    """What a client knows of an operation."""

    PENDING = "sent"
    ACKED = "acked"
    REFUSED = "refused"
    """The answer promised that nothing was kept."""
    UNKNOWN = "unknown"
    """No answer, or one that promises nothing: it is there whole or not at all."""
    ABSENT = "absent"
    """It was unknown, and after a start it was not there: it must stay away."""


class End(Enum):
    """How a round ends, and so which acks the next start must honour."""

    STOP = "stop"
    KILL = "kill"
    POWER_LOSS = "power loss"


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise that was not kept."""

    who: str
    """The actor whose ledger says so."""
    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.who}: {self.what}"


def violations_of(who: str, wrong: Iterable[str]) -> list[BrokenPromise]:
    """From lines that say the promise first."""
    split = [each.partition(": ") for each in wrong]
    return [BrokenPromise(who, promise, what) for promise, _, what in split]


class Tally:
    """Counts of operations, faults and checks by name, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)
