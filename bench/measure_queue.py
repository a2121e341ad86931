"""Queues: produce, claim, ack, beside Redis and PostgreSQL in the same run. `make bench-queue`."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from bench.embedded import told
from bench.measure_server import SECONDS, both, note, note_command, row_of, turns_of
from bench.queue.postgres import AT_ONCE, LEASE, PostgresServer, SkipLocked, missing
from bench.queue.workers import QueueWorkers
from bench.registry import QUEUE, Row, Run, benchmark

WORKERS = 8
BATCH = 100
TARGETS = {"Redis": "1.0", "PostgreSQL INSERT, SKIP LOCKED lease": "3"}
"""The other way of PostgreSQL has no claim that a worker could hold: it is there to compare."""


@benchmark("queue-jobs", "How many jobs a second, produced, claimed by 100 and acked?", QUEUE)
def jobs(run: Run) -> list[Row]:
    with ExitStack() as ends:
        ours, redis = ends.enter_context(both(run, run.directory))
        ours_workers = QueueWorkers(ours, WORKERS, BATCH)
        sides: dict[str, QueueWorkers | SkipLocked] = {}
        if redis is not None:
            sides["Redis XADD, XREADGROUP, XACK"] = QueueWorkers(redis, WORKERS, BATCH)
        why_not = missing()
        if why_not is None:
            postgres = PostgresServer(run.directory / "postgres")
            ends.enter_context(postgres)
            note(run, f"PostgreSQL {postgres.ask('show server_version')}")
            note_command(run, postgres.command)
            for name, way in (("lease, DELETE", LEASE), ("DELETE at once", AT_ONCE)):
                side = SkipLocked(postgres, WORKERS, BATCH, way)
                sides[f"PostgreSQL INSERT, SKIP LOCKED {name}"] = side
        else:
            note(run, why_not)
        sides["Headwater POST, claim, ack"] = ours_workers
        for contender in sides.values():
            note_command(run, contender.command(SECONDS))
        turns = turns_of(run, sides)
    rows = [
        row_of(name, "jobs/s", turns[name], "fsync", **_conditions(side))
        for name, side in sides.items()
    ]
    mine = rows.pop()
    return [*rows, *([_with_target(mine.against(row)) for row in rows] or [mine])]


def _conditions(side: QueueWorkers | SkipLocked) -> dict[str, object]:
    told: dict[str, object] = {"workers": WORKERS, "batch": BATCH}
    told["workers' CPU"] = f"{median(side.generator_us):.2f} us each"
    if isinstance(side, QueueWorkers):
        told["share"] = f"{side.shares[-1]} jobs a worker"
    return told


def _with_target(row: Row) -> Row:
    targets = [target for peer, target in TARGETS.items() if row.baseline.startswith(peer)]
    conditions = {**row.conditions, **({"target": targets[0]} if targets else {})}
    return Row(row.name, row.value, row.unit, conditions, row.baseline, row.ratio)


@benchmark("queue-latency", "How long does one worker wait for a job that is there?", QUEUE)
def latency(run: Run) -> list[Row]:
    rows = []
    with both(run, run.directory) as (ours, redis):
        for server in (redis, ours):
            if server is None:
                continue
            found = QueueWorkers(server, 1, 1)(0.3 if run.quick else SECONDS)
            conditions = told(
                "fsync", workers=1, batch=1, p99=f"{found.p99_us:,.0f} us", jobs=found.operations
            )
            rows.append(Row(f"{server.name}, claim of one", found.p50_us, "us p50", conditions))
    return rows
