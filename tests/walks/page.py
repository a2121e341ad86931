"""docs/walks.md: what the code does for one request, by function name, from a traced run.

`make docs-walks` writes the page. What varies from run to run is not on it: only functions that ran
in every round of a walk are, each once per thread, in the order of their first calls. The recording
leaves out what timers do. Hops are counted where two threads hand over to each other: how often
three or more take turns is chance.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from textwrap import fill
from typing import Final, NamedTuple

from tests.walks.source import first_sentence
from tests.walks.stories import INTRODUCTION, WALKS, Walk

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "walks.md"
PATIENCE_S: Final = 100
STORY_WIDTH: Final = 116
LEFT_OUT: Final = ("SystemClock.", "__len__", "__bool__")
"""Parts of names that say nothing about the way."""

THREADS: Final = {
    "server": "Event loop",
    "headwater-wal": "Writer thread of the log",
    "headwater-kafka-log": "Writer thread of Kafka's log",
    "headwater-machines": "Writer thread of the machines' log",
    "headwater-maintenance": "Maintenance threads",
    "headwater-reader": "Reader threads",
    "headwater-kafka": "Kafka's reader threads",
    "headwater-preparer": "Preparer of log files",
    "uvloop": "Executor of the event loop",
}


class Function(NamedTuple):
    file: str
    name: str

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]


Step = tuple[str, Function]
"""On which thread which function is called."""

Round = Sequence[Step]


def main() -> None:
    text = render(recorded())
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write("\n".join(line for line in text.splitlines() if line.startswith("| ")) + "\n")


def recorded() -> dict[str, list[Round]]:
    """A fresh run: the calls of every round of every walk."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "calls.json"
        command = [sys.executable, "-m", "tests.walks.recording", str(file)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        walks = json.loads(file.read_text(encoding="utf-8"))
    return {key: [list(_round(calls)) for calls in rounds] for key, rounds in walks.items()}


def _round(calls: Iterable[tuple[str, tuple[str, str], str]]) -> Iterator[Step]:
    for thread, (file, name), _ in calls:
        if not any(part in name for part in LEFT_OUT):
            yield _role(thread), Function(file, name)


def _role(thread: str) -> str:
    """Threads of one kind are one: `headwater-wal-00` -> `headwater-wal`."""
    return re.sub(r"[-_]\d+$", "", thread)


# -- what a walk is


def steps_of(rounds: Iterable[Round]) -> tuple[set[Step], set[Step]]:
    """Those of every round, and those of any."""
    seen = [set(steps) for steps in rounds]
    return set.intersection(*seen), set.union(*seen)


def listed(rounds: Sequence[Round]) -> dict[str, list[Function]]:
    """Thread -> its functions in the order of their first calls."""
    always, _ = steps_of(rounds)
    threads: dict[str, list[Function]] = {}
    for thread, function in dict.fromkeys(rounds[-1]):
        if (thread, function) in always:
            threads.setdefault(thread, []).append(function)
    first, *others = threads
    order = [first, *sorted(others, key=[*THREADS, *others].index)]
    return {thread: threads[thread] for thread in order}


def hops_of(steps: Round, always: set[Step]) -> int:
    """How often another thread went on, as far as first calls show."""
    threads = [step[0] for step in dict.fromkeys(steps) if step in always]
    return sum(one != other for one, other in pairwise(threads))


class Numbers(NamedTuple):
    files: int
    functions: int
    room_switches: int
    threads: int
    hops: int | None
    """None where it is chance."""


def numbers_of(rounds: Sequence[Round]) -> Numbers:
    threads = listed(rounds)
    every = {function for functions in threads.values() for function in functions}
    switches = sum(
        one.room != other.room
        for functions in threads.values()
        for one, other in pairwise(functions)
    )
    files = len({function.file for function in every})
    always, _ = steps_of(rounds)
    hops = min(hops_of(steps, always) for steps in rounds) if len(threads) <= 2 else None
    return Numbers(files, len(every), switches, len(threads), hops)


# -- the page


def render(walks: dict[str, list[Round]]) -> str:
    return "\n".join(
        [INTRODUCTION, *_table(walks), *(_chapter(walk, walks[walk.key]) for walk in WALKS)]
    )


def _table(walks: dict[str, list[Round]]) -> Iterator[str]:
    yield "| walk | files | functions | room switches | threads | hops |"
    yield "|---|--:|--:|--:|--:|--:|"
    for walk in WALKS:
        numbers = numbers_of(walks[walk.key])
        cells = " | ".join("-" if number is None else str(number) for number in numbers)
        yield f"| [{walk.title}](#{walk.title.lower().replace(' ', '-')}) | {cells} |"
    yield ""


def _chapter(walk: Walk, rounds: Sequence[Round]) -> str:
    blocks = [f"## {walk.title}\n\n{fill(walk.story, STORY_WIDTH)}"]
    for thread, functions in listed(rounds).items():
        lines = _ways_in(functions) if walk.is_long else _lines(functions)
        blocks.append("\n".join([f"### {THREADS.get(thread, thread)}\n", *lines]))
    return "\n\n".join(blocks) + "\n"


def _lines(functions: Sequence[Function]) -> Iterator[str]:
    previous = ""
    for file, of_file in groupby(functions, key=lambda function: function.file):
        of_line = list(of_file)
        names = " → ".join(f"`{name}`" for name in _shortened(of_line))
        why = next(filter(None, (first_sentence(*function) for function in of_line)), "")
        yield f"- `{file}`: {names}" + (f"<br>*{why}*" if why not in ("", previous) else "")
        previous = why


def _ways_in(functions: Sequence[Function]) -> Iterator[str]:
    """By room the files, and of each the function that was called first; no constructors."""
    first: dict[str, Function] = {}
    for function in functions:
        if not function.name.endswith("__"):
            first.setdefault(function.file, function)
    rooms: dict[str, list[Function]] = {}
    for function in first.values():
        rooms.setdefault(function.room, []).append(function)
    for room, of_room in rooms.items():
        yield f"- **{room}**"
        yield from (f"    - `{file}`: `{name}`" for file, name in of_room)


def _shortened(functions: Sequence[Function]) -> Iterator[str]:
    """A method of the same class as the one before begins with its dot."""
    previous = ""
    for function in functions:
        owner, _, name = function.name.rpartition(".")
        yield f".{name}" if owner and owner == previous else function.name
        previous = owner


def named_on(page: str) -> dict[str, set[Function]]:
    """The functions that each chapter of the page names."""
    chapters = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    named: dict[str, set[Function]] = {}
    for title, text in zip(chapters[1::2], chapters[2::2], strict=True):
        of_walk = named.setdefault(title, set())
        for file, names in re.findall(r"^ *- `([\w/.]+)`: ([^<\n]+)", text, re.MULTILINE):
            owner = ""
            for name in re.findall(r"`([^`]+)`", names):
                full = f"{owner}{name}" if name.startswith(".") else name
                of_walk.add(Function(file, full))
                owner = full.rpartition(".")[0]
    return named


if __name__ == "__main__":
    main()
