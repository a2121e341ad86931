"""PostgreSQL as a log: a table with a number, and pgbench that inserts one row a commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.queue.postgres import PostgresServer
from bench.server.clients import check_known
from bench.server.load import Load

_LATENCY_COLUMN: Final = 2
"""Of the log of pgbench: client, transaction, microseconds, ..."""


class Inserts:
    """A contender: so many connections that insert and wait for the commit."""

    def __init__(self, server: PostgresServer, table: str, connections: int) -> None:
        self._server = server
        self._table = table.replace("-", "_")
        self._connections = connections
        self._script = server.directory / f"{self._table}.sql"
        self._script.write_text(
            f"INSERT INTO {self._table} (data) VALUES ('{PAYLOADS[1].decode()}');\n",
            encoding="utf-8",
        )
        self._log = server.directory / f"{self._table}-log"
        self.acked = 0
        server.ask(f"CREATE TABLE {self._table} (id bigserial PRIMARY KEY, data text NOT NULL)")

    def command(self, seconds: float) -> list[str]:
        *words, database = self._server.bench_command(self._script, self._connections, seconds)
        return [*words, "-l", f"--log-prefix={self._log}", database]

    def __call__(self, seconds: float) -> Load:
        before = self._server.cpu_s()
        self._server.run_tool(self.command(seconds))
        cpu_s = self._server.cpu_s() - before
        waits = sorted(self._waits_us())
        if not waits:
            raise WrongResultError("pgbench: not one insert was told of")
        self.acked += len(waits)
        elapsed_s = max(round(seconds), 1)
        p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
        return Load(len(waits), elapsed_s, cpu_s, p50, p99)

    def _waits_us(self) -> Iterator[float]:
        for path in self._log.parent.glob(f"{self._log.name}.*"):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield float(line.split()[_LATENCY_COLUMN])
            path.unlink()

    def check(self) -> None:
        rows = self._server.ask(f"SELECT data FROM {self._table} ORDER BY id")
        found = (row.encode() for row in rows.splitlines())
        check_known(found, self.acked, self.acked, "PostgreSQL")
