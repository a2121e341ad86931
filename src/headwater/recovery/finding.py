"""What a survey of any store saw, and what follows: decision tables, findings, reports, plans.

Topics, Kafka's log and the machines each have a survey that changes nothing, verdicts and decision
tables of their own: rows of (what was found -> what is done). A case is one value of each of a
table's kinds: a verdict, and perhaps where the file stands. A row may be about several values of a
kind, or about all. A test goes through every case of every table: each has exactly one row. Nothing
here or in a table reads a disk. The actions of the rows become findings; a report is the findings
of one store.

A plan is what an operator may agree to when a start refuses a store. It is made first and shown. It
loses only what is already lost, and what leaves its place goes to quarantine. Each store knows how
to plan; `stores` lists them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from headwater.core.errors import (
    DamageError,
    ForeignFileError,
    NewerFormatError,
    StorageError,
)
from headwater.disk import Disk


class Action(Enum):
    KEEP = "kept"
    CUT = "cut at the last whole group"
    REWRITE = "written again from the files"
    REMOVE = "removed"
    QUARANTINE = "moved to quarantine"
    SKIP = "skipped, with a copy in quarantine"
    NOTE = "noted"
    REFUSE_DAMAGED = "refused as damaged"
    REFUSE_FOREIGN = "refused as foreign"
    REFUSE_NEWER = "refused as newer"

    @property
    def refuses(self) -> bool:
        return self in (Action.REFUSE_DAMAGED, Action.REFUSE_FOREIGN, Action.REFUSE_NEWER)


_REFUSALS: Final[dict[Action, tuple[type[StorageError], str]]] = {
    Action.REFUSE_DAMAGED: (
        DamageError,
        "nothing was changed; `headwater repair` shows what can be saved",
    ),
    Action.REFUSE_FOREIGN: (ForeignFileError, "move it away, or name another data directory"),
    Action.REFUSE_NEWER: (NewerFormatError, "use the version of Headwater that wrote it"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was seen and what follows from it."""

    path: PurePath
    offset: int | None
    action: Action
    what: str
    why: str

    @property
    def is_damage(self) -> bool:
        """Something that was promised is gone, whether a start goes on without it or not."""
        return self.action.refuses or self.action is Action.SKIP

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "offset": self.offset,
            "what": self.what,
            "action": self.action.value,
            "why": self.why,
        }

    def as_error(self) -> StorageError:
        error, advice = _REFUSALS[self.action]
        return error(self.what, path=self.path, offset=self.offset, advice=advice)

    def line(self) -> str:
        where = f"{self.path}" + ("" if self.offset is None else f" at byte {self.offset}")
        return f"{where}: {self.what}; {self.action.value} ({self.why})"


Value: TypeAlias = Enum | bool


class _Any(Enum):
    ANY = "every value of its kind"


ANY: Final = _Any.ANY
Case: TypeAlias = tuple[Value, ...]


class Row(NamedTuple):
    case: Value | tuple[Value | tuple[Value, ...], ...]
    """For each kind a value, several, or ANY; the value itself where there is one kind."""
    action: Action
    why: str

    def findings(self, path: PurePath, what: str, offset: int | None = None) -> Iterator[Finding]:
        """What is to be said of a file in this case: nothing when it is simply kept."""
        if self.action is not Action.KEEP:
            yield Finding(path, offset, self.action, what, self.why)

    def is_about(self, case: Case) -> bool:
        wanted = self.case if isinstance(self.case, tuple) else (self.case,)
        return all(
            one is ANY or value is one or (isinstance(one, tuple) and value in one)
            for one, value in zip(wanted, case, strict=True)
        )


class DecisionTable:
    def __init__(self, kinds: tuple[Iterable[Value], ...], *rows: Row) -> None:
        self.cases: Final[list[Case]] = list(itertools.product(*kinds))
        self.rows: Final = rows

    def rows_of(self, *case: Value) -> list[Row]:
        return [row for row in self.rows if row.is_about(case)]

    def decide(self, *case: Value) -> Row:
        (row,) = self.rows_of(*case)
        return row

    def oddities(self, found: Iterable[tuple[Enum, Iterable[PurePath]]]) -> Iterator[Finding]:
        """Of a table of files that are no part of a store: what each is, is what is said."""
        for oddity, paths in found:
            for path in paths:
                yield from self.decide(oddity).findings(path, oddity.value)

    def cases_of(self, action: Action) -> list[Case]:
        """Every case for which this is done."""
        return [case for case in self.cases if self.decide(*case).action is action]


ATTEMPTS_MAX: Final = 4


@dataclass(slots=True)
class StoreReport:
    """`findings` leaves out what is simply fine."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def refusals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.action.refuses]

    def raise_if_refused(self) -> None:
        for finding in self.refusals:
            raise finding.as_error()

    def raise_if_newer(self) -> None:
        """What a newer version wrote is no damage, and nothing to repair."""
        for finding in self.findings:
            if finding.action is Action.REFUSE_NEWER:
                raise finding.as_error()


Report = TypeVar("Report", bound=StoreReport)


def agreed_report(inspect: Callable[[], Report]) -> Report:
    """What two inspections in a row agree on, beside a writer that does not wait for them.

    A group can be half written, a file be rotated away between two reads. What is really there is
    there the second time too.
    """
    report = inspect()
    earlier: frozenset[Finding] = frozenset()
    for _ in range(ATTEMPTS_MAX):
        if not report.findings:
            return report
        earlier = frozenset(report.findings)
        report = inspect()
        if earlier.issuperset(report.refusals):
            break
    return replace(report, findings=[each for each in report.findings if each in earlier])


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
