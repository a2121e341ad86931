"""Offline repair: what an operator may agree to when a start refuses a store. One shape for all.

A plan is made first and shown. It loses only what is already lost, and what leaves its place goes
to quarantine. The topics' log, the machines and Kafka's log each know how to survey themselves and
how to plan; `stores` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import ClassVar, Final, NamedTuple

from headwater.disk import Disk
from headwater.recovery.finding import Finding


class StepKind(Enum):
    QUARANTINE = "move to quarantine"
    SKIP = "pass over"
    POINT_CURRENT = "point CURRENT at the last file that is there"
    REWRITE = "write again from what can be read"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing that is done, to one file or one stretch of it."""

    kind: StepKind
    path: PurePath
    what: str
    offset: int | None = None
    resume: int | None = None
    """Where reading goes on behind what is passed over; None: nowhere in this file."""
    lost: int | None = None
    """How many records, frames or entries are given up, where that can be told."""
    unit: str = "frame"
    reason: str = ""
    """Why these bytes are bad; `what` says it to people, with their place."""

    @property
    def gives_up(self) -> bool:
        """Something is lost by this, or rather was lost already."""
        return self.kind is StepKind.SKIP or self.lost is not None

    def line(self) -> str:
        loss = ""
        if self.gives_up:
            loss = f", number of {self.unit}s lost unknown"
            if self.lost is not None:
                loss = f", {self.lost} {self.unit}(s) lost"
        return f"{self.path}: {self.kind.value}: {self.what}{loss}"


@dataclass(frozen=True, slots=True)
class RepairPlan(ABC):
    """What would make one directory of a store readable. Equal plans see the same damage."""

    directory: PurePath
    steps: tuple[RepairStep, ...]
    store: ClassVar[str]

    @abstractmethod
    def carry_out(self, disk: Disk) -> None:
        """The caller holds the lock of the data directory. Can be repeated after a crash."""


class Store(NamedTuple):
    """One of the stores of a data directory, for those who check and repair all of them."""

    name: str
    findings: Callable[[Disk, PurePath], list[Finding]]
    """What a start would find in this data directory, beside a writer too: see `agreed`."""
    plans: Callable[[Disk, PurePath], Sequence[RepairPlan]]
    """What a repair would do now. Empty when a start refuses nothing."""

    def agreed_plans(self, disk: Disk, data: PurePath) -> Sequence[RepairPlan]:
        """On a store in use, what a single inspection refuses may be a writer at work."""
        refused = any(each.action.refuses for each in self.findings(disk, data))
        return self.plans(disk, data) if refused else ()


ATTEMPTS_MAX: Final = 4


def agreed_findings(inspect: Callable[[], list[Finding]]) -> list[Finding]:
    """Findings of two inspections in a row: what is really there is there the second time too."""
    findings = inspect()
    earlier: frozenset[Finding] = frozenset()
    for _ in range(ATTEMPTS_MAX):
        if not findings:
            return findings
        earlier = frozenset(findings)
        findings = inspect()
        if earlier.issuperset(each for each in findings if each.action.refuses):
            break
    return [finding for finding in findings if finding in earlier]
