"""The embedded library: appends and reads a second, beside SQLite in the same process."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Protocol

import headwater
from bench.embedded import PAGE, TOPIC, check_page, check_topic, fill, settings_for, told
from bench.embedded_writers import Absorbing, AsyncFace, BlockingFace
from bench.registry import Row, Run, benchmark
from bench.sqlite_peer import SqliteReader, SqliteWriter
from bench.turns import (
    Contender,
    Turn,
    latency_us,
    median_rate,
    median_sync_rate,
    repeated,
    take_turns,
)
from bench.writers import loop_name

BATCHES = (1, 100, 1000)
CLASSES = ("fsync", "disk")
WRITERS = 64


class Writer(Protocol):
    absorbed: Absorbing

    def __call__(self, seconds: float) -> Turn: ...


@benchmark("embedded-appends", "How many records a second does a program append to its own log?")
def embedded_appends(run: Run) -> list[Row]:
    blocking = BlockingFace(run.directory / "blocking", settings_for(run))
    waiting = AsyncFace(run.directory / "async", settings_for(run))
    writers: dict[str, Writer] = {}
    tables: dict[str, SqliteWriter] = {}
    for durability in CLASSES:
        for batch in BATCHES:
            name = f"{durability}, batch of {batch}"
            path = run.directory / f"{durability}-{batch}.db"
            tables[f"SQLite, {name}"] = SqliteWriter(path, durability, batch)
            writers[f"one thread, {name}"] = blocking.writer(durability, batch)
            if batch < 1000:
                coroutines = waiting.writer(durability, batch, WRITERS)
                writers[f"{WRITERS} coroutines, {name}"] = coroutines
    contenders: dict[str, Contender] = {**tables, **writers}
    turns = take_turns(run, contenders)
    blocking.close_and_check()
    waiting.close_and_check()
    for table in tables.values():
        table.close_and_check()
    run.notes.append(f"SQLite {sqlite3.sqlite_version}: WAL mode, synchronous FULL or OFF")
    run.notes.append(f"loop of the coroutines: {loop_name()}; all of them write to one topic")
    rows: list[Row] = []
    for durability in CLASSES:
        for batch in BATCHES:
            name = f"{durability}, batch of {batch}"
            peer = _append_row(f"SQLite, {name}", durability, batch, turns, None)
            ours = [each for each in writers if each.endswith(name)]
            rows.append(peer)
            rows += [
                _append_row(each, durability, batch, turns, writers[each]).against(peer)
                for each in ours
            ]
    return rows


def _append_row(
    name: str, durability: str, batch: int, turns: dict[str, list[Turn]], writer: Writer | None
) -> Row:
    own = turns[name]
    more = {"p50": f"{latency_us(own, 50):,.0f} us", "p99": f"{latency_us(own, 99):,.0f} us"}
    if writer is not None:
        more["fsyncs/s"] = f"{median_sync_rate(own):,.0f}"
        more["with checkpoints"] = f"{writer.absorbed.rate:,.0f}/s"
        more["CPU"] = f"{writer.absorbed.cpu_us:.1f} us a record"
    return Row(name, median_rate(own), "records/s", told(durability, batch=batch, **more))


class Pages:
    """A reader that goes through a topic again and again; each round is compared with the last."""

    def __init__(
        self, database: headwater.Database, records: int, *, from_seq: int = 0, parse: bool = False
    ) -> None:
        self._database = database
        self._first = from_seq
        self._end = records
        self._cursor = from_seq
        self._parse = parse

    def step(self) -> int:
        diff = self._database.diff(TOPIC, self._cursor, limit=PAGE)
        if self._parse:
            for record in diff.records:
                _ = record.data
        self._cursor = self._first if diff.caught_up else diff.next_from_seq
        return len(diff.records)

    def check(self) -> None:
        page = self._database.diff(TOPIC, self._first, limit=PAGE).records
        check_page(page, self._first + 1)


@benchmark("embedded-reads", "How many records a second does a program read, 1000 a call?")
def embedded_reads(run: Run) -> list[Row]:
    records, near = run.size(1_000_000, 20_000), run.size(100_000, 5_000)
    settings = settings_for(run)
    with headwater.open(run.directory / "old", settings=settings) as database:
        fill(database, records)
    table = SqliteReader(run.directory / "table.db", records)
    with (
        headwater.open(run.directory / "old", settings=settings) as old,
        headwater.open(run.directory / "new", settings=settings) as new,
    ):
        fill(new, near)
        steps: dict[str, Callable[[], int]] = {
            "SQLite": table.step,
            "from segments": Pages(old, records).step,
            "from segments, data parsed": Pages(old, records, parse=True).step,
            "from the tail": Pages(new, near).step,
        }
        turns = take_turns(run, {name: repeated(step) for name, step in steps.items()})
        check_topic(old, TOPIC, records)
        check_topic(new, TOPIC, near)
        table.close_and_check()
    run.notes.append(f"SQLite {sqlite3.sqlite_version}: SELECT ... WHERE seq > ? LIMIT 1000")
    rows = []
    for name in steps:
        size = near if name == "from the tail" else records
        conditions = told("fsync", log=f"{size:,} records", files="in the page cache")
        rows.append(Row(name, median_rate(turns[name]), "records/s", conditions))
    return [rows[0], *(row.against(rows[0]) for row in rows[1:])]
