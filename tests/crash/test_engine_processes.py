"""Real processes with an engine of many topics, killed in the middle of whatever they do (I1, I8).

Killing a process takes nothing from the page cache: what the fsync, disk and memory classes have
acknowledged is there, deletes stay deleted, and no seq is handed out twice.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headwater.engine.database import Database
from headwater.engine.opening import open_database
from tests.crash.engine_process import TOPICS, payload, settings
from tests.crash.matrix import FULL, tried

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

REPOSITORY = Path(__file__).parents[2]
ROUNDS = 200 if FULL else 12
"""In each of two layouts."""
STEPS_BEFORE_KILL = (150, 30, 300, 80, 1, 220)


@dataclass
class Promises:
    """What the pipe told, of one topic."""

    head: int = 0
    acked: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    """Deleted for sure."""
    maybe: set[int] = field(default_factory=set)
    """A delete was under way when the process died, or is in general."""

    def chosen(self, below: int, tag: str) -> set[int]:
        return {seq for seq in self.acked if seq < below and (tag == "-" or seq % 2)}


def hear(promises: dict[str, Promises], line: str) -> None:
    word, *rest = line.split()
    if word in ("ready", "checkpoint"):
        return
    topic = promises[rest[0]]
    if word == "ack":
        first, last = int(rest[1]), int(rest[2])
        assert first > topic.head, f"{line}: seqs up to {topic.head} were handed out before"
        topic.head = last
        topic.acked.update(range(first, last + 1))
        return
    chosen = topic.chosen(int(rest[1]), rest[2])
    topic.maybe |= chosen
    if word == "deleted":
        topic.gone |= chosen


def live_until_killed(directory: Path, shards: int, seed: int, steps: int) -> list[str]:
    """The lines a process told before it was killed."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.crash.engine_process",
            str(directory),
            str(shards),
            str(seed),
        ],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if len(lines) >= steps:
                break
    finally:
        process.kill()
        lines.extend(process.stdout)  # what was promised before the signal came
        _, errors = process.communicate()
    assert len(lines) >= steps, errors
    return [line for line in lines if line.endswith("\n")]


def check_topic(db: Database, name: str, promised: Promises) -> None:
    found: dict[int, object] = {}
    cursor, caught_up = 0, False
    while not caught_up:
        diff = db.diff(name, cursor, limit=1_000)
        for record in diff.records:
            assert record.seq not in found, f"{name}: seq {record.seq} twice"
            assert record.data == payload(name, record.seq), f"{name}: {record}"
            found[record.seq] = record
        cursor, caught_up = diff.next_from_seq, diff.caught_up
    missing = promised.acked - promised.maybe - found.keys()
    assert not missing, f"{name}: acked and gone: {sorted(missing)[:5]}"
    back = promised.gone & found.keys()
    assert not back, f"{name}: deleted and back: {sorted(back)[:5]}"
    head = db.state(name).head_seq
    assert head >= promised.head, f"{name}: the head went back from {promised.head} to {head}"
    promised.head = max(promised.head, *found, 0)
    promised.acked |= found.keys()
    assert not db.engine.core.damage.findings


@pytest.mark.parametrize("shards", [1, 2])
def test_a_killed_engine_has_all_it_acked_and_nothing_it_deleted(
    tmp_path: Path, shards: int
) -> None:
    promises = {name: Promises() for name in TOPICS}
    for round_number in range(ROUNDS):
        steps = STEPS_BEFORE_KILL[round_number % len(STEPS_BEFORE_KILL)]
        for line in live_until_killed(tmp_path, shards, round_number, steps):
            hear(promises, line)
        if round_number % 3 == 2:
            with open_database(tmp_path, settings=settings(shards)) as db:
                for name, promised in promises.items():
                    check_topic(db, name, promised)
        tried("engine processes: kill -9")
