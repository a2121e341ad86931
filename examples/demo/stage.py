"""What every step of the demo is given: the server, how much to do, and a place to tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from server import Server

T = TypeVar("T")


class BrokenPromiseError(Exception):
    """What came back is not what was acknowledged. The demo ends with exit code 1."""


class NotHereError(Exception):
    """Something this step needs is not installed; the message says what, and how to get it."""


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Waited for when all went well; after Ctrl-C some would wait for what never comes."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@dataclass(frozen=True)
class Stage:
    server: Server
    scratch: Path
    console: Console
    events: int
    """Of the shop, over HTTP; as many readings of sensors go over Kafka."""

    @property
    def url(self) -> str:
        return self.server.url

    @contextmanager
    def bars(self, totals: Mapping[str, int]) -> Iterator[Mapping[str, Callable[[int], None]]]:
        """One bar each, and a function to move it on. Silent when nobody is there to watch."""
        columns = (
            TextColumn("   {task.description:<28}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        progress = Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal
        )

        def mover(name: str) -> Callable[[int], None]:
            task = progress.add_task(name, total=totals[name])
            return lambda count: progress.advance(task, count)

        with progress:
            yield {name: mover(name) for name in totals}


Figures = Mapping[str, str]
"""What a step found, line by line, for the report."""
Step = Callable[[Stage], Figures]


def same(what: str, expected: object, found: object) -> None:
    """A check that stays when Python is told to leave out assertions."""
    if expected != found:
        raise BrokenPromiseError(f"{what}: {expected} were acknowledged, {found} came back")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
