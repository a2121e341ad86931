"""What a program would use instead of an embedded log: a SQLite table, WAL mode, one writer.

`fsync` is synchronous=FULL, which syncs at every commit; `disk` is synchronous=OFF, which hands
the bytes to the kernel and survives a killed process, as our disk class does.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import msgspec

from bench.embedded import DATA, PAGE
from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.turns import Turn

clock = time.perf_counter
encode = msgspec.json.Encoder().encode


def connect(path: Path, durability: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'fsync' else 'OFF'}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, ts INTEGER, data BLOB)"
    )
    return connection


class SqliteWriter:
    """Transactions of `batch` inserts; the objects are turned into JSON by the same encoder."""

    def __init__(self, path: Path, durability: str, batch: int) -> None:
        self._connection = connect(path, durability)
        self._batch = batch
        self._head = 0

    def __call__(self, seconds: float) -> Turn:
        execute, many = self._connection.execute, self._connection.executemany
        batch = self._batch
        latencies: list[float] = []
        head = first = self._head
        started = before = clock()
        while True:
            ts = time.time_ns() // 1_000_000
            seqs = range(head + 1, head + batch + 1)
            execute("BEGIN")
            many(
                "INSERT INTO events VALUES (?, ?, ?)",
                [(seq, ts, encode(DATA[seq % 1000])) for seq in seqs],
            )
            execute("COMMIT")
            head += batch
            now = clock()
            latencies.append((now - before) * 1e6)
            before = now
            if now >= started + seconds:
                break
        self._head = head
        return Turn(head - first, before - started, 0, latencies)

    def close_and_check(self) -> None:
        check_table(self._connection, self._head)
        self._connection.close()


class SqliteReader:
    """Pages of a thousand rows by their key, round and round."""

    def __init__(self, path: Path, records: int) -> None:
        self._connection = connection = connect(path, "disk")
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO events VALUES (?, 0, ?)",
            ((seq, PAYLOADS[seq % 1000]) for seq in range(1, records + 1)),
        )
        connection.execute("COMMIT")
        self._records = records
        self._cursor = 0

    def step(self) -> int:
        rows = self._connection.execute(
            "SELECT seq, ts, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
            (self._cursor, PAGE),
        ).fetchall()
        self._cursor = 0 if len(rows) < PAGE else rows[-1][0]
        return len(rows)

    def close_and_check(self) -> None:
        check_table(self._connection, self._records)
        self._connection.close()


def check_table(connection: sqlite3.Connection, head: int) -> None:
    seq = 0
    for seq, data in connection.execute("SELECT seq, data FROM events ORDER BY seq"):
        if data != PAYLOADS[seq % 1000]:
            raise WrongResultError(f"sqlite: row {seq} is not what was written")
    if seq != head:
        raise WrongResultError(f"sqlite: {seq} rows are there, {head} were committed")
