"""Offline repair: what an operator may agree to when a start refuses a store. One shape for all.

A plan is made first and shown. It loses only what is already lost, and what leaves its place goes
to quarantine. The topics' log, the machines and Kafka's log each know how to survey themselves and
how to plan; `stores` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import ClassVar

from headwater.disk import Disk


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
