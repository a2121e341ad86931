"""The mechanism of the decision tables: rows of (what was found -> what is done).

A case is one value of each of a table's kinds: a verdict, and perhaps where the file stands. A row
may be about several values of a kind, or about all. A test goes through every case of every table:
each has exactly one row. Nothing here or in a table reads a disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias

from headwater.recovery.finding import Action, Finding

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
