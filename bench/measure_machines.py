"""State machines: events a second over RCPX and HTTP, a million instances, watchers.
`make bench-machines`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.embedded import told
from bench.log_under_test import WrongResultError
from bench.machines.server import MachineServer, Rcpx
from bench.registry import MACHINES, Row, Run, benchmark

CONNECTIONS = (1, 16, 64)
POLICIES = ("every_write", "every_ms:100")
PAYLOAD = "an event with a payload of 12 bytes"
REPOSITORY = Path(__file__).resolve().parent.parent


def _load(kind: str, port: int, *words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.machines.load", kind, str(port), *map(str, words)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise WrongResultError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    if found["refused"]:
        raise WrongResultError(f"{found['refused']} events were refused")
    return found


@benchmark("machine-events", "How many events a second, by how many connections?", MACHINES)
def events(run: Run) -> list[Row]:
    rows: list[Row] = []
    for policy in POLICIES:
        with MachineServer(run.directory / policy.replace(":", "-"), policy) as server:
            assert isinstance(server, MachineServer)
            with Rcpx(server.rcpx_port) as setup:
                setup.define()
                setup.create(0, max(CONNECTIONS), {"coins": 0})
            for kind in ("rcpx", "http"):
                rows += _of_kind(run, server, kind, policy)
            _check(server)
    return rows


def _of_kind(run: Run, server: MachineServer, kind: str, policy: str) -> list[Row]:
    port = server.rcpx_port if kind == "rcpx" else server.port
    found: dict[int, list[dict[str, Any]]] = {count: [] for count in CONNECTIONS}
    cpu = dict.fromkeys(CONNECTIONS, 0.0)
    for _ in range(1 if run.quick else 3):  # in turns, so that a noisy moment hits all of them
        for count in CONNECTIONS:
            before = server.cpu_s()
            found[count].append(_load(kind, port, count, 0.2 if run.quick else 3))
            cpu[count] += server.cpu_s() - before
    rows: list[Row] = []
    for count, turns in found.items():
        operations = sum(turn["operations"] for turn in turns)
        rate = median(turn["operations"] / turn["elapsed_s"] for turn in turns)
        conditions = {
            **told(policy, connections=count),
            "payload": PAYLOAD,
            "p50": f"{median(turn['p50_us'] for turn in turns):,.0f} us",
            "p99": f"{median(turn['p99_us'] for turn in turns):,.0f} us",
            "server CPU": f"{cpu[count] / max(operations, 1) * 1e6:,.1f} us an event",
            "client CPU": f"{_client_us(turns):,.1f} us an event",
        }
        if count == max(CONNECTIONS) and policy == "every_write":
            conditions["target"] = "8"
        name = f"{kind.upper()}, {policy}, {count} connection{'s' if count > 1 else ''}"
        row = Row(name, rate, "events/s", conditions)
        rows.append(row if count == 1 else row.against(rows[0]))
    return rows


def _client_us(turns: list[dict[str, Any]]) -> float:
    spent_s = sum(turn["cpu_s"] for turn in turns)
    return float(spent_s / max(sum(turn["operations"] for turn in turns), 1) * 1e6)


def _check(server: MachineServer) -> None:
    """What was answered is there after the server was killed."""
    with Rcpx(server.rcpx_port) as before:
        wanted = before.ask("GET_INSTANCE", instance_id="t-000000000")
    server.end(9)
    server.start()
    with Rcpx(server.rcpx_port) as after:
        if after.ask("GET_INSTANCE", instance_id="t-000000000") != wanted:
            raise WrongResultError("an answered event is gone after a kill")


@benchmark("machine-million", "What does a million instances take?", MACHINES)
def million(run: Run) -> list[Row]:
    count = run.size(1_000_000, 2_000)
    context = {"coins": 0, "place": "north gate", "owner": "city", "serial": 123456}
    with MachineServer(run.directory, "every_write") as server:
        assert isinstance(server, MachineServer)
        with Rcpx(server.rcpx_port) as setup:
            setup.define()
            setup.create(0, 64, context)
            before = server.memory_bytes()
            started = time.perf_counter()
            setup.create(64, count - 64, context)
            made_s = time.perf_counter() - started
            memory = server.memory_bytes() - before
            started = time.perf_counter()
            snapshot = setup.ask("COMPACT", force_snapshot=True)
            snapshot_s = time.perf_counter() - started
        server.end()
        server.start()
        restart_s = server.started_s
        with Rcpx(server.rcpx_port) as after:
            listed = after.ask("LIST_INSTANCES", limit=1)
            if listed["total"] != count:
                raise WrongResultError(f"{listed['total']} of {count} instances are there")
    conditions = {**told("every_write", instances=f"{count:,}"), "payload": "contexts of 77 bytes"}
    size = f"{snapshot['snapshot_bytes']:,} bytes"
    return [
        Row("created, 100 to a batch", count / made_s, "instances/s", conditions),
        Row("memory", memory / count, "bytes/instance", conditions),
        Row("snapshot and compaction", snapshot_s, "s", {**conditions, "file": size}),
        Row("start to ready", restart_s, "s", conditions),
    ]


@benchmark("machine-watchers", "How soon do 100 watchers hear of a transition?", MACHINES)
def watchers(run: Run) -> list[Row]:
    count, rate = run.size(100, 10), 50
    with MachineServer(run.directory, "every_write") as server:
        assert isinstance(server, MachineServer)
        with Rcpx(server.rcpx_port) as setup:
            setup.define()
            setup.create(0, 64, {"coins": 0})
        before = server.cpu_s()
        found = _load("fan-out", server.rcpx_port, count, 0.3 if run.quick else 10, rate)
        cpu_s = server.cpu_s() - before
    if found["operations"] != found["sent"] * count:
        raise WrongResultError(f"{found['operations']} of {found['sent'] * count} were delivered")
    conditions = {
        **told("every_write", watchers=count, rate=f"{rate} events/s"),
        "payload": PAYLOAD,
        "p99": f"{found['p99_us'] / 1e3:,.2f} ms",
        "server CPU": f"{cpu_s / max(found['operations'], 1) * 1e6:,.1f} us a delivery",
        "client CPU": f"{found['cpu_s'] / max(found['operations'], 1) * 1e6:,.1f} us a delivery",
        "target": "p99 5 ms",
    }
    return [Row("delivery after sending", found["p50_us"] / 1e3, "ms p50", conditions)]
