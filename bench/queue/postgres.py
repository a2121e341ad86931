"""PostgreSQL as a queue: a private cluster, and pgbench with one script for all workers.

Two ways, both with FOR UPDATE SKIP LOCKED. `LEASE` marks rows as somebody's for a while and deletes
them when they are done: what a claim and an ack are, and what queues on PostgreSQL do. `AT_ONCE`
takes and deletes rows in one statement and one commit, the least it can be done with; a worker that
wants to lose nothing must hold that transaction open while it works.

Needs the packages of Debian or the like. PostgreSQL does not run as root; the packages' own user
does it then.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.server.load import Load
from bench.server.processes import ServerProcess

INSTALL: Final = "apt-get install postgresql"
USER: Final = "postgres"
_PLACES: Final = "/usr/lib/postgresql"
_TPS: Final = re.compile(r"tps = ([0-9.]+)")
_LATENCY: Final = re.compile(r"latency average = ([0-9.]+) ms")


def tool(name: str) -> str | None:
    """Debian keeps server programs out of the path."""
    found = sorted(Path(_PLACES).glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def missing() -> str | None:
    """Why it cannot be measured here, in one line; None when it can."""
    for name in ("initdb", "postgres", "pgbench", "psql"):
        if tool(name) is None:
            return f"no {name} here: {INSTALL}"
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no setpriv to become somebody else"
    return None


def _as_user(*words: str) -> list[str]:
    if os.getuid() != 0:
        return list(words)
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *words]


class PostgresServer(ServerProcess):
    """With its defaults: fsync on, and a commit waits for it."""

    name = "PostgreSQL"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        directory.parent.chmod(0o711)
        self._data = directory / "data"
        self._data.mkdir(mode=0o700)
        if os.getuid() == 0:
            shutil.chown(self._data, USER)
        self.run_tool(
            _as_user(str(tool("initdb")), "-D", str(self._data), "-U", USER, "-A", "trust")
        )

    @property
    def command(self) -> list[str]:
        return _as_user(
            *(str(tool("postgres")), "-D", str(self._data), "-h", "127.0.0.1"),
            *("-p", str(self.port), "-c", "unix_socket_directories="),
            *("-c", "fsync=on", "-c", "synchronous_commit=on"),
        )

    def is_ready(self) -> bool:
        return self.ask("select 1") == "1"

    def ask(self, query: str) -> str:
        done = subprocess.run(
            [str(tool("psql")), *self._where, "-Atqc", query],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if done.returncode:
            raise ValueError(done.stderr)
        return done.stdout.strip()

    @property
    def _where(self) -> tuple[str, ...]:
        return ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", USER)

    def end(self, number: int = signal.SIGINT) -> None:
        """An interrupt is its fast way to end."""
        super().end(number)

    def bench_command(
        self, script: Path, workers: int, seconds: float, variable: str | None = None
    ) -> list[str]:
        return [
            *(str(tool("pgbench")), "-n", "-M", "prepared", "-c", str(workers), "-j", "1"),
            *("-T", str(max(round(seconds), 1)), "-f", str(script)),
            *(() if variable is None else ("-D", variable)),
            *("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, USER),
        ]

    def run_tool(self, command: list[str]) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, cwd="/"
        )
        if done.returncode:
            raise WrongResultError(f"{command[0]}: {done.stderr[-500:]}")
        return done.stdout


_INSERT: Final = "INSERT INTO jobs (data) SELECT jsonb_array_elements(:jobs::jsonb);\n"
"""The jobs come with every call, as one parameter of a prepared statement: as constants in its text
they were parsed once and never sent again. Of three ways to send them (22 turns each, interleaved,
beside other work) the rates were the same and this took the least CPU: 24.7 us of the server a job,
a parameter for each job 25.6, an array of jsonb 26.7. Constants took 1.3 less than this."""
_TABLE: Final = (
    "CREATE TABLE jobs (id bigserial PRIMARY KEY, data jsonb NOT NULL, "
    "held_by integer, held_until timestamptz)"
)
_ROOM: Final = "ALTER TABLE jobs SET (fillfactor = 50)"
"""A row that is marked finds room on its own page, so no index has to hear of it."""
LEASE: Final = (
    "WITH taken AS (SELECT id FROM jobs WHERE held_until IS NULL OR held_until < now() "
    "ORDER BY id LIMIT {batch} FOR UPDATE SKIP LOCKED), "
    "held AS (UPDATE jobs SET held_by = :client_id, held_until = now() + interval '30 seconds' "
    "FROM taken WHERE jobs.id = taken.id RETURNING jobs.id, jobs.data) "
    "SELECT coalesce(array_agg(id)::text, '{{}}') AS ids, "
    "string_agg(data::text, ',') AS datas FROM held \\gset\n"
    "DELETE FROM jobs WHERE id = ANY (:ids::bigint[]) AND held_by = :client_id;\n"
)
"""A commit each for jobs, claim and ack. A claim comes as one row: pgbench can keep that."""
AT_ONCE: Final = (
    "WITH taken AS (SELECT id FROM jobs ORDER BY id LIMIT {batch} FOR UPDATE SKIP LOCKED) "
    "DELETE FROM jobs USING taken WHERE jobs.id = taken.id RETURNING jobs.id, jobs.data;\n"
)


class SkipLocked:
    """A contender: so many workers that insert a batch, take a batch and delete it."""

    def __init__(self, server: PostgresServer, workers: int, batch: int, way: str) -> None:
        self._server = server
        self._workers = workers
        self._batch = batch
        self._marks = way is LEASE
        self._script = server.directory / ("lease.sql" if way is LEASE else "at-once.sql")
        payloads = ",".join(PAYLOADS[at % 1000].decode() for at in range(batch))
        self._variable = f"jobs=[{payloads}]"
        self._script.write_text(_INSERT + way.format(batch=batch), encoding="utf-8")
        self.generator_us: list[float] = []
        """CPU of pgbench for each job, in each turn."""

    def command(self, seconds: float) -> list[str]:
        return self._server.bench_command(self._script, self._workers, seconds, self._variable)

    def __call__(self, seconds: float) -> Load:
        server = self._server
        server.ask("DROP TABLE IF EXISTS jobs")
        server.ask(_TABLE)
        if self._marks:
            server.ask(_ROOM)
        before = server.cpu_s()
        noted = _children_cpu_s()
        said = server.run_tool(self.command(seconds))
        generator_s = _children_cpu_s() - noted
        cpu_s = server.cpu_s() - before
        rate, latency = _TPS.search(said), _LATENCY.search(said)
        if rate is None or latency is None:
            raise WrongResultError(f"pgbench: {said[-500:]}")
        taken = self._check()
        self.generator_us.append(generator_s / max(taken, 1) * 1e6)
        return Load(taken, taken / (float(rate[1]) * self._batch), cpu_s)

    def _check(self) -> int:
        """Whatever was inserted is taken or still there, and taken once: a row goes once.

        Some are left over: a worker that finds the next rows locked by all the others takes fewer
        than it inserted, and nobody ever takes more. That stops when there is a batch for each of
        them besides its own.
        """
        inserted = int(self._server.ask("SELECT last_value FROM jobs_id_seq"))
        left = int(self._server.ask("SELECT count(*) FROM jobs"))
        if left > 2 * self._workers * self._batch:
            raise WrongResultError(f"PostgreSQL: {left} jobs were left over of {inserted}")
        return inserted - left


def _children_cpu_s() -> float:
    """Of those that have ended: the server is not among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
