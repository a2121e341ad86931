"""The server over HTTP, beside Redis Streams in the same run. `make bench-server`."""

from __future__ import annotations

import shlex
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import headwater
from bench.embedded import fill, told
from bench.log_under_test import WrongResultError
from bench.registry import SERVER, Row, Run, benchmark
from bench.server.clients import (
    TOPIC,
    Redis,
    digest,
    expected_digest,
    fill_redis,
    headwater_payloads,
    redis_payloads,
)
from bench.server.delivery import command as delivery_command
from bench.server.delivery import measure as measure_delivery
from bench.server.load import HttpWriters, Load, StreamWriters, needs_wrk, write_body
from bench.server.processes import (
    HeadwaterServer,
    RedisServer,
    ServerProcess,
    has_redis,
    versions,
)
from bench.server.readers import PageReaders

ROUNDS = 3
SECONDS = 2.0
WALKERS = 4
WATCHERS = {1: 200.0, 100: 50.0, 1000: 10.0}
"""Watchers -> writes a second: far from what either side could do."""

REPOSITORY = Path(__file__).resolve().parent.parent

Side = Callable[[float], Load]


@contextmanager
def both(run: Run, directory: Path) -> Iterator[tuple[HeadwaterServer, RedisServer | None]]:
    """Headwater, and Redis if there is one; both are ended, whatever happens."""
    with ExitStack() as ends:
        ours = HeadwaterServer(directory / "headwater")
        ends.enter_context(ours)
        redis = None
        if has_redis():
            redis = RedisServer(directory / "redis")
            ends.enter_context(redis)
        note(run, *versions())
        for server in (ours, redis):
            if server is not None:
                note_command(run, server.command)
        yield ours, redis


def note(run: Run, *lines: str) -> None:
    run.notes.extend(line for line in lines if line not in run.notes)


def note_command(run: Run, words: Sequence[str]) -> None:
    """As it could be typed: without the names of this run, and without long payloads."""
    short = [word if len(word) < 160 else f"({len(word)} bytes)" for word in words]
    line = shlex.join(short).replace(sys.executable, "python").replace(str(run.directory), "DIR")
    note(run, line.replace(f"{REPOSITORY}/", ""))


def turns_of(run: Run, sides: Mapping[str, Side]) -> dict[str, list[Load]]:
    """ABAB, after a short warm-up."""
    found: dict[str, list[Load]] = {name: [] for name in sides}
    if not run.quick:
        for side in sides.values():
            side(1.0)
    for _ in range(run.size(ROUNDS, 1)):
        for name, side in sides.items():
            found[name].append(side(0.3 if run.quick else SECONDS))
    return found


def row_of(name: str, unit: str, loads: Sequence[Load], durability: str, **more: object) -> Row:
    conditions = told(durability, **more)
    conditions["server CPU"] = f"{statistics.median(load.cpu_us for load in loads):.2f} us each"
    if loads[0].p50_us:
        conditions["p50"] = f"{statistics.median(load.p50_us for load in loads):,.0f} us"
        conditions["p99"] = f"{statistics.median(load.p99_us for load in loads):,.0f} us"
    rates = [load.rate for load in loads]
    conditions["turns"] = f"{min(rates):,.0f} to {max(rates):,.0f}"
    return Row(name, statistics.median(rates), unit, conditions)


@benchmark("server-writes", "How many durable writes a second over HTTP, against XADD?", SERVER)
def durable_writes(run: Run) -> list[Row]:
    needs_wrk()
    rows = []
    with both(run, run.directory) as (ours, redis):
        for connections, batch, target in ((1, 1, None), (50, 1, "1.0"), (16, 100, "1.2")):
            body = write_body(run.directory / f"body-{batch}.json", batch)
            topic = f"{TOPIC}-{connections}-{batch}"
            posts = HttpWriters(ours, body, topic, connections, batch)
            sides: dict[str, HttpWriters | StreamWriters] = {}
            if redis is not None:
                sides["Redis XADD"] = StreamWriters(redis, topic, connections, batch)
            sides["Headwater POST"] = posts
            turns = turns_of(run, sides)
            for side in sides.values():
                note_command(run, side.command(SECONDS))
                side.check()
            more: dict[str, object] = {"connections": connections, "batch": batch}
            if target is not None:
                more["target"] = target
            made = [
                row_of(
                    f"{name}, {connections} x {batch}", "records/s", turns[name], "fsync", **more
                )
                for name in sides
            ]
            rows += made if len(made) == 1 else [made[0], made[1].against(made[0])]
    return rows


@contextmanager
def filled(run: Run, records: int) -> Iterator[tuple[HeadwaterServer, RedisServer | None]]:
    """Both with the same records, read back and compared before anything is timed."""
    data = run.directory / "headwater" / "data"
    data.parent.mkdir(parents=True)
    with headwater.open(data) as database:
        fill(database, records, TOPIC)
    with both(run, run.directory) as (ours, redis):
        expected = expected_digest(records)
        if redis is not None:
            fill_redis(redis.port, records)
            if digest(redis_payloads(redis.port)) != expected:
                raise WrongResultError("Redis does not hold what was written")
        if digest(headwater_payloads(ours.port)) != expected:
            raise WrongResultError("Headwater does not hold what was written")
        yield ours, redis


@benchmark("server-reads", "How many records a second do readers catch up, 1000 a call?", SERVER)
def catch_up_reads(run: Run) -> list[Row]:
    records = run.size(1_000_000, 20_000)
    with filled(run, records) as (ours, redis):
        sides: dict[str, PageReaders] = {}
        if redis is not None:
            sides["Redis XRANGE COUNT 1000"] = PageReaders(redis, WALKERS)
        sides["Headwater diff, limit 1000"] = PageReaders(ours, WALKERS)
        sides["Headwater Arrow, limit 10000"] = PageReaders(ours, WALKERS, "arrow")
        for side in sides.values():
            note_command(run, side.command(SECONDS))
        turns = turns_of(run, sides)
    more = {"connections": WALKERS, "log": f"{records:,} records", "target": "2"}
    rows = [row_of(name, "records/s", turns[name], "fsync", **more) for name in sides]
    return rows if redis is None else [rows[0], *[row.against(rows[0]) for row in rows[1:]]]


@benchmark("server-restart", "How long from start to ready with 1 M records?", SERVER)
def restarts(run: Run) -> list[Row]:
    records = run.size(1_000_000, 20_000)
    rounds = run.size(ROUNDS, 1)
    with filled(run, records) as (ours, redis):
        servers: list[ServerProcess] = [ours] if redis is None else [redis, ours]
        rows: list[Row] = []
        for how, number in (("a clean stop", signal.SIGTERM), ("kill -9", signal.SIGKILL)):
            times: dict[str, list[float]] = {server.name: [] for server in servers}
            cpus: dict[str, list[float]] = {server.name: [] for server in servers}
            for _ in range(rounds):
                for server in servers:
                    server.end(number)
                    server.start()
                    times[server.name].append(server.started_s * 1e3)
                    cpus[server.name].append(server.cpu_s() * 1e3)
                    _check_count(server, records)
            rows += _restart_rows(how, servers, times, cpus, records)
        if redis is not None:
            rows.append(_rewritten(redis, records, rounds))
    return rows


def _restart_rows(
    how: str,
    servers: Sequence[ServerProcess],
    times: Mapping[str, list[float]],
    cpus: Mapping[str, list[float]],
    records: int,
) -> list[Row]:
    rows = []
    for server in servers:
        conditions = told(
            "fsync",
            log=f"{records:,} records",
            server_CPU=f"{statistics.median(cpus[server.name]):,.0f} ms",
            memory=f"{server.memory_bytes() / 1e6:,.0f} MB",
            starts=", ".join(f"{each:,.0f}" for each in times[server.name]),
        )
        name = f"{server.name}, restart after {how}"
        rows.append(Row(name, statistics.median(times[server.name]), "ms to ready", conditions))
    if len(rows) == 2:
        theirs, ours = rows
        faster = theirs.value / ours.value
        conditions = {**ours.conditions, "target": "2"}
        rows[1] = Row(
            ours.name, ours.value, ours.unit, conditions, f"as fast as {theirs.name}", faster
        )
    return rows


def _rewritten(redis: RedisServer, records: int, rounds: int) -> Row:
    """For fairness: Redis loads faster when its file was rewritten, with a snapshot in front."""
    with Redis(redis.port) as connection:
        connection.call("BGREWRITEAOF")
        while b"aof_rewrite_in_progress:1" in connection.call("INFO", "persistence"):
            connection.call("WAIT", 0, 20)
    times = []
    for _ in range(rounds):
        redis.end()
        redis.start()
        times.append(redis.started_s * 1e3)
        _check_count(redis, records)
    conditions = told("fsync", log=f"{records:,} records", file="rewritten just before")
    return Row(
        "Redis, restart after BGREWRITEAOF", statistics.median(times), "ms to ready", conditions
    )


def _check_count(server: ServerProcess, records: int) -> None:
    if isinstance(server, RedisServer):
        with Redis(server.port) as redis:
            count = redis.call("XLEN", TOPIC)
    else:
        count = sum(1 for _ in headwater_payloads(server.port))
    if count != records:
        raise WrongResultError(f"{server.name}: {count} records came back of {records}")


@benchmark("server-delivery", "How long from a durable write to its watchers, over SSE?", SERVER)
def delivery(run: Run) -> list[Row]:
    rows = []
    with HeadwaterServer(run.directory / "headwater") as ours:
        note_command(run, ours.command)
        for watchers, rate in WATCHERS.items():
            seconds = 0.5 if run.quick else 5.0
            command = delivery_command(ours.port, ours.pid, watchers, rate, seconds)
            note_command(run, command)
            found = measure_delivery(command)
            conditions = told(
                "fsync",
                watchers=watchers,
                writes=f"{rate:.0f}/s",
                p50=f"{found['p50_us']:,.0f} us",
                longest=f"{found['max_us']:,.0f} us",
                ack=f"p50 {found['ack_p50_us']:,.0f} us, p99 {found['ack_p99_us']:,.0f} us",
                server_CPU=f"{found['server_cpu_s'] / found['deliveries'] * 1e6:.1f} us a delivery",
            )
            if watchers == 100:
                conditions["target"] = "5,000 us at most"
            rows.append(Row(f"{watchers} watchers", found["p99_us"], "us p99", conditions))
    return rows
