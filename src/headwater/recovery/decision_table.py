"""The mechanism of the decision tables: rows of (what was found -> what is done).

A case is one value of each of a table's kinds: a verdict, and perhaps where the file stands. A row
may be about several values of a kind, or about all. A test goes through every case of every table:
each has exactly one row. Nothing here or in a table reads a disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from headwater.recovery.finding import Action

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

    def cases_of(self, action: Action) -> list[Case]:
        """Every case for which this is done."""
        return [case for case in self.cases if self.decide(*case).action is action]
