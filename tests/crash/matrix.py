"""Counts the cases a run has tried, by kind, and says how wide the sweeps are.

`HEADWATER_CRASH=full` widens them: `make crash` sets it, `make test` takes a slice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

FULL: Final = os.environ.get("HEADWATER_CRASH") == "full"

THINNER: Final = 3
"""Sweeps say how dear their cases are beside each other; here it is said how long the short form
takes altogether, so that `make test` stays a matter of minutes on two cores."""

cases_tried: Final[Counter[str]] = Counter()

T = TypeVar("T")


def tried(kind: str, cases: int = 1) -> None:
    cases_tried[kind] += cases


def slice_of(cases: Iterable[T], every: int, *, always: int = 0) -> Iterator[T]:
    """All cases in the full form; otherwise the first `always` ones and then a thin slice."""
    every *= THINNER
    for index, case in enumerate(cases):
        if FULL or index < always or index % every == 0:
            yield case


def table(counts: Counter[str]) -> list[str]:
    """The summary, as lines of a Markdown table."""
    lines = ["| cases | kind |", "|---:|---|"]
    lines += [f"| {counts[kind]:,} | {kind} |" for kind in sorted(counts)]
    lines.append(f"| {sum(counts.values()):,} | all |")
    return lines
