"""docs/walks.md says what the code does, because a traced run of it wrote the page."""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

import pytest

from headwater import native
from headwater.native import missing
from tests.walks import page
from tests.walks.page import PAGE, Function, Round, Step, named_on, numbers_of, steps_of
from tests.walks.source import is_defined
from tests.walks.stories import WALKS, Walk
from tests.walks.tracer import PACKAGE, Tracer

STALE = "docs/walks.md is stale; run: make docs-walks"
TEXT = PAGE.read_text(encoding="utf-8")
NAMED = named_on(TEXT)
every_walk = pytest.mark.parametrize("walk", WALKS, ids=lambda walk: str(walk.key))


@pytest.fixture(scope="module")
def fresh() -> dict[str, list[Round]]:
    if missing():
        pytest.skip("the page shows the compiled loops, which are not here")
    return page.recorded()


@every_walk
def test_every_function_that_a_walk_names_is_where_the_page_says(walk: Walk) -> None:
    gone = [f"{file}: {name}" for file, name in NAMED[walk.title] if not is_defined(file, name)]
    assert not gone, f"{STALE} ({', '.join(sorted(gone))})"


@every_walk
def test_a_walk_names_what_runs_and_leaves_out_nothing_that_always_runs(
    walk: Walk, fresh: dict[str, list[Round]]
) -> None:
    always, sometimes = map(functions, steps_of(fresh[walk.key]))
    assert NAMED[walk.title] <= sometimes, STALE
    if not walk.is_long:
        assert always <= NAMED[walk.title], STALE


@every_walk
def test_the_numbers_of_a_walk_are_those_of_a_fresh_run(
    walk: Walk, fresh: dict[str, list[Round]]
) -> None:
    row = re.search(rf"^\| \[{walk.title}\]\S+ \| (\d+) \|", TEXT, re.MULTILINE)
    assert row is not None, STALE
    _, sometimes = steps_of(fresh[walk.key])
    files_max = len({function.file for function in functions(sometimes)})
    assert numbers_of(fresh[walk.key]).files <= int(row[1]) <= files_max, STALE


def functions(steps: set[Step]) -> set[Function]:
    return {function for _, function in steps}


# -- what is recorded


def test_what_a_timer_calls_is_its_own_whoever_makes_it_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "def sample(): ...\ndef tick(): sample()\ndef write():\n tick()\n sample()\n"
    made: dict[str, Any] = {}
    exec(compile(text, f"{PACKAGE}made.py", "exec"), made)
    monkeypatch.setattr(threading, "setprofile", sys.setprofile)  # for this thread
    monkeypatch.setattr(native, "compiled", native.compiled)
    tracer = Tracer(timers=["tick"])
    tracer.install()
    try:
        with tracer.recording() as recorded:
            made["write"]()
    finally:
        sys.setprofile(None)
    assert [(call.function.name, call.root) for call in recorded] == [
        ("write", "write"),
        ("tick", "tick"),
        ("sample", "tick"),
        ("sample", "write"),
    ]


# -- how a walk is read from calls


def calls(*names: str) -> Round:
    """`loop wal/shard.py submit`: the thread and the function."""
    return [(thread, Function(file, name)) for thread, file, name in map(str.split, names)]


SUBMIT = "loop wal/shard.py Shard.submit"
PUT = "loop wal/queue.py Queue.put"
WRITE = "log disk/posix.py File.write"
PUBLISH = "loop engine/topics.py publish"
RETRY = "log wal/shard.py Shard.retry"


def test_what_does_not_run_in_every_round_is_left_out() -> None:
    rounds = [calls(SUBMIT, WRITE, PUBLISH), calls(SUBMIT, RETRY, WRITE, PUBLISH)]
    assert [*page.listed(rounds)["log"]] == [Function("disk/posix.py", "File.write")]


def test_a_function_is_listed_once_per_thread_and_hops_are_counted_at_their_fewest() -> None:
    rounds = [
        calls(SUBMIT, PUT, WRITE, SUBMIT, PUBLISH),
        calls(SUBMIT, WRITE, PUT, PUBLISH),
    ]
    assert numbers_of(rounds) == page.Numbers(
        files=4, functions=4, room_switches=1, threads=2, hops=2
    )


def test_hops_of_more_than_two_threads_are_not_counted() -> None:
    third = "reader store/segment.py Segment.read"
    assert numbers_of([calls(SUBMIT, WRITE, third)]).hops is None


def test_the_page_is_read_back_with_the_class_of_shortened_names() -> None:
    text = "## A walk\n\n- `wal/queue.py`: `Queue.put` → `.take` → `close`<br>*Why `not`.*\n"
    names = ("Queue.put", "Queue.take", "close")
    assert named_on(text) == {"A walk": {Function("wal/queue.py", name) for name in names}}
