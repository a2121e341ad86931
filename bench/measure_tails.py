"""How long the slowest durable writes take at half of the maximum rate. `make bench-tails`."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.payloads import PAYLOADS
from bench.registry import TAILS, Row, Run, benchmark
from bench.server.clients import Http
from bench.server.open_loop import Tail, run_open_loop
from bench.server.processes import HeadwaterServer

TOPICS: Final = 32
CONNECTIONS: Final = 64
CAP_RECORDS: Final = 20_000
"""Of each topic: retention works with every write."""
SIDES: Final[Mapping[str, str]] = {
    "default settings": "",
    "background work often": """
wal_file_bytes = 16777216
snapshot_interval_ms = 2000
segment_max_bytes = 2097152
""",
}
"""Checkpoints, seals, snapshots, new log files and retention run in both; in the second all of them
in every turn."""


@benchmark(
    "tails",
    "At half of the maximum rate, how long do the slowest durable writes take?",
    TAILS,
)
def tails(run: Run) -> list[Row]:
    processes = max(min((os.cpu_count() or 1) // 2, 4), 1)
    seconds = run.seconds if run.quick else 8.0
    rounds = 1 if run.quick else 3
    with ExitStack() as ends:
        servers = {name: started(run.directory, name) for name in SIDES}
        for server in servers.values():
            ends.callback(server.end)

        def load(server: HeadwaterServer, rate: float, seconds: float) -> Tail:
            return run_open_loop(
                server.port,
                topics=TOPICS,
                connections=CONNECTIONS,
                rate=rate,
                seconds=seconds,
                payload=PAYLOADS[1],
                processes=processes,
            )

        most = {
            name: statistics.median(load(server, 0, seconds / 2).rate for _ in range(rounds))
            for name, server in servers.items()
        }
        turns: dict[str, list[Tail]] = {name: [] for name in SIDES}
        for _ in range(rounds):
            for name, server in servers.items():
                turns[name].append(load(server, most[name] / 2, seconds))
        run.notes.append(f"load by {processes} processes, {CONNECTIONS} connections, open loop")
        return [row for name in SIDES for row in rows_of(name, most[name], turns[name])]


def started(directory: Path, name: str) -> HeadwaterServer:
    place = directory / name.replace(" ", "-")
    place.mkdir(parents=True)
    config = place / "settings.toml"
    config.write_text(SIDES[name], encoding="utf-8")
    server = HeadwaterServer(place, ("--config", str(config)))
    server.start()
    with Http(server.port) as http:
        for topic in range(TOPICS):
            http.call("PUT", f"/v0/topics/bench.{topic}", {"cap_records": CAP_RECORDS})
    return server


def rows_of(name: str, most: float, turns: list[Tail]) -> list[Row]:
    """Percentiles of each turn, then their medians; the maximum rate is of writers that wait."""
    conditions = {
        "payload": f"{len(PAYLOADS[1])} B",
        "durability": "fsync",
        "rate": f"{statistics.median(turn.rate for turn in turns):,.0f}/s of {most:,.0f}/s",
        "topics": str(TOPICS),
        "late": f"{sum(turn.late for turn in turns) / sum(turn.sent for turn in turns):.2%}",
    }
    figures = {
        "p50": statistics.median(turn.p50_us for turn in turns),
        "p99": statistics.median(turn.p99_us for turn in turns),
        "p99.9": statistics.median(turn.p999_us for turn in turns),
        "longest": statistics.median(turn.max_us for turn in turns),
    }
    rows = [Row(f"{name}, {which}", us, "us", conditions) for which, us in figures.items()]
    return [rows[0], *(row.against(rows[0]) for row in rows[1:])]
