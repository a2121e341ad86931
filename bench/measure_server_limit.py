"""How far single writes are from what Python's loop and this kernel allow. `make bench-server`."""

from __future__ import annotations

from contextlib import ExitStack

from bench.measure_server import both, note_command, row_of, turns_of
from bench.registry import SERVER, Row, Run, benchmark
from bench.server.bare_loop import BareLoop
from bench.server.clients import TOPIC
from bench.server.load import HttpWriters, StreamWriters, needs_wrk, write_body

CONNECTIONS = 50


@benchmark(
    "server-limit",
    "How many single writes could a loop in Python answer that looks at none?",
    SERVER,
)
def limit_of_single_writes(run: Run) -> list[Row]:
    needs_wrk()
    body = write_body(run.directory / "body.json", 1)
    with both(run, run.directory) as (ours, redis), ExitStack() as ends:
        sides: dict[str, HttpWriters | StreamWriters] = {}
        durability = {}
        if redis is not None:
            sides["Redis XADD"] = StreamWriters(redis, TOPIC, CONNECTIONS, 1)
        for name, synced in (("a loop that only answers", False), ("a loop that syncs", True)):
            bare = BareLoop(run.directory / name.replace(" ", "-"), synced)
            ends.enter_context(bare)
            sides[name] = HttpWriters(bare, body, TOPIC, CONNECTIONS, 1)
            durability[name] = "fsync" if synced else "none"
        sides["Headwater POST"] = HttpWriters(ours, body, TOPIC, CONNECTIONS, 1)
        turns = turns_of(run, sides)
        for side in sides.values():
            note_command(run, side.command(2.0))
        rows = [
            row_of(
                name,
                "records/s",
                turns[name],
                durability.get(name, "fsync"),
                connections=CONNECTIONS,
            )
            for name in sides
        ]
    return rows[:1] + [row.against(rows[0]) for row in rows[1:]]
