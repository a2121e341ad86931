"""What the size of a log costs: restarts, memory, the index, and each further record."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import headwater
from bench.embedded import PAGE, TOPIC, batch_from, check_page, check_topic, settings_for, told
from bench.opening_process import Opened, fill_and_kill, open_in_process
from bench.registry import Row, Run, benchmark
from bench.turns import Contender, Turn, median_rate, repeated, take_turns

STARTS = 3
TIMES = 5
"""The large log has so many times the records of the middle one, which has ten of the small one."""


@benchmark(
    "embedded-size", "What do 0.1, 1 and 5 M records cost at a restart, in memory, and later?"
)
def embedded_size(run: Run) -> list[Row]:
    middle = run.size(1_000_000, 20_000)
    starts = run.size(STARTS, 1)
    empty_directory = run.directory / "empty"
    headwater.open(empty_directory, settings=settings_for(run)).close()
    empty = [open_in_process(run, empty_directory) for _ in range(starts)]
    rows = [_start_row("start, empty", empty)]
    directories = {
        count: run.directory / str(count) for count in (middle // 10, middle, middle * TIMES)
    }
    for count, directory in directories.items():
        rows += _restart_rows(run, directory, count, empty)
    return rows + _growth_rows(run, directories)


def _restart_rows(run: Run, directory: Path, count: int, empty: Sequence[Opened]) -> list[Row]:
    starts = run.size(STARTS, 1)
    fill_and_kill(run, directory, count)
    killed = [open_in_process(run, directory, end="kill") for _ in range(starts)]
    headwater.open(directory, settings=settings_for(run)).close()
    clean = [open_in_process(run, directory) for _ in range(starts)]
    for opened in (*killed, *clean):
        if opened.records != count:
            raise AssertionError(f"{opened.records} records came back, {count} were acknowledged")
    above = _median(clean, "memory_answered") - _median(empty, "memory_answered")
    log = f"{count:,} records"
    index = Row(
        f"index, {log}",
        _median(clean, "index_bytes") / count,
        "bytes a record",
        told("fsync", target="24 at most"),
    )
    memory = Row(
        f"memory, {log}",
        max(above, 0) / count,
        "bytes a record",
        told(
            "fsync",
            whole=f"{_median(clean, 'memory_answered') / 1e6:,.0f} MB",
            above_an_empty_database=f"{above / 1e6:,.1f} MB",
        ),
    )
    return [
        _start_row(f"restart after a clean stop, {log}", clean),
        _start_row(f"restart after kill -9, {log}", killed),
        memory,
        index,
    ]


def _start_row(name: str, starts: Sequence[Opened]) -> Row:
    conditions = told(
        "fsync",
        of_it_until_open=f"{_median(starts, 'opened_s') * 1e3:,.0f} ms",
        frames_replayed=f"{_median(starts, 'frames_replayed'):,.0f}",
        files="in the page cache",
    )
    return Row(name, _median(starts, "answered_s") * 1e3, "ms to first answer", conditions)


def _median(starts: Sequence[Opened], fact: str) -> float:
    return statistics.median(float(getattr(opened, fact)) for opened in starts)


class Sized:
    """One of the logs, open; appends to it and reads pages from anywhere in it."""

    def __init__(self, run: Run, directory: Path, count: int) -> None:
        self.database = headwater.open(directory, settings=settings_for(run))
        self.database.create(TOPIC, durability="disk")  # from here on: not the cost of syncs
        self._head = count
        self._numbers = random.Random(count)

    def append(self) -> int:
        self._head = self.database.append(TOPIC, batch_from(self._head + 1, 100)).head_seq
        return 100

    def read(self) -> int:
        from_seq = self._numbers.randrange(self._head - PAGE)
        return len(self.database.diff(TOPIC, from_seq, limit=PAGE).records)

    def checked(self) -> None:
        from_seq = self._numbers.randrange(self._head - PAGE)
        check_page(self.database.diff(TOPIC, from_seq, limit=PAGE).records, from_seq + 1)
        check_topic(self.database, TOPIC, self._head)


def _growth_rows(run: Run, directories: dict[int, Path]) -> list[Row]:
    logs = {count: Sized(run, directory, count) for count, directory in directories.items()}
    try:
        contenders = {}
        for count, log in logs.items():
            contenders[f"append, batch of 100, {count:,} records"] = with_cpu(log.append)
            contenders[f"read, 1000 a call, {count:,} records"] = with_cpu(log.read)
        turns = take_turns(run, contenders)
        for log in logs.values():
            log.checked()
    finally:
        for log in logs.values():
            log.database.close()
    small, middle, large = directories
    rows = []
    for verb in ("append, batch of 100", "read, 1000 a call"):
        of = {count: _cost_row(f"{verb}, {count:,} records", turns) for count in directories}
        rows += [of[small], of[middle], of[large].against(of[middle])]
    return rows


def with_cpu(step: Callable[[], int]) -> Contender:
    """Tells the CPU time of this process, all threads, as the turn's `background`, in ns."""
    work = repeated(step)

    def contender(seconds: float) -> Turn:
        before = time.process_time_ns()
        turn = work(seconds)
        turn.background = time.process_time_ns() - before
        return turn

    return contender


def _cost_row(name: str, turns: dict[str, list[Turn]]) -> Row:
    cpu_us = statistics.median(turn.background / turn.operations / 1e3 for turn in turns[name])
    elapsed = f"{1e6 / median_rate(turns[name]):.2f} us"
    conditions = told("disk", elapsed=elapsed, files="in the page cache")
    return Row(name, cpu_us, "CPU us a record", conditions)
