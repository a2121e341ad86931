"""Durable logs side by side: one record a write, more and more connections. `make bench-peers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.measure_server import SECONDS, both, note, note_command, row_of, turns_of
from bench.peers.nats import INSTALL, NatsServer, has_nats
from bench.peers.nats_load import StreamPublishers
from bench.peers.table import Inserts
from bench.queue.postgres import PostgresServer, missing
from bench.registry import PEERS, Row, Run, benchmark
from bench.server.clients import Http
from bench.server.load import HttpWriters, Load, StreamWriters, needs_wrk, write_body
from bench.server.processes import HeadwaterServer

CONNECTIONS = (1, 4, 16, 64)


class Writers(Protocol):
    def __call__(self, seconds: float) -> Load: ...
    def command(self, seconds: float) -> list[str]: ...
    def check(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Peer:
    """How a contender is called, what its answers are worth, and who writes to it."""

    name: str
    durability: str
    writers: Callable[[str, int], Writers] = field(repr=False)


@contextmanager
def started(run: Run) -> Iterator[list[Peer]]:
    """Everybody who is installed, and all of them ended, whatever happens."""
    with ExitStack() as ends:
        ours, redis = ends.enter_context(both(run, run.directory))
        body = write_body(run.directory / "body.json", 1)
        peers = []
        if redis is not None:
            peers.append(
                Peer(
                    "Redis XADD", "fsync", lambda name, count: StreamWriters(redis, name, count, 1)
                )
            )
        why_not = missing()
        if why_not is None:
            postgres = PostgresServer(run.directory / "postgres")
            ends.enter_context(postgres)
            note(run, f"PostgreSQL {postgres.ask('show server_version')}")
            note_command(run, postgres.command)
            peers.append(
                Peer(
                    "PostgreSQL INSERT", "fsync", lambda name, count: Inserts(postgres, name, count)
                )
            )
        else:
            note(run, why_not)
        if has_nats():
            nats = NatsServer(run.directory / "nats")
            ends.enter_context(nats)
            note(run, nats.version())
            note_command(run, nats.command)
            peers.append(
                Peer(
                    "NATS JetStream publish",
                    nats.durability,
                    lambda name, count: StreamPublishers(nats, name, count),
                )
            )
        else:
            note(run, f"no nats-server here: {INSTALL}")
        yield [*peers, *(_ours(ours, body, durability) for durability in ("disk", "fsync"))]


def _ours(server: HeadwaterServer, body: Path, durability: str) -> Peer:
    def writers(name: str, count: int) -> Writers:
        topic = f"{name}-{durability}"
        with Http(server.port) as http:
            http.call("PUT", f"/v0/topics/{topic}", {"durability": durability})
        return HttpWriters(server, body, topic, count, 1)

    return Peer(f"Headwater POST, {durability}", durability, writers)


@benchmark("peers-writes", "How do durable logs take single writes from more and more?", PEERS)
def single_writes(run: Run) -> list[Row]:
    needs_wrk()
    rows: list[Row] = []
    with started(run) as peers:
        for connections in CONNECTIONS[:: 3 if run.quick else 1]:
            sides = {
                peer.name: peer.writers(f"writes-{connections}", connections) for peer in peers
            }
            turns = turns_of(run, sides)
            for side in sides.values():
                side.check()
            if connections == CONNECTIONS[-1]:
                for side in sides.values():
                    note_command(run, side.command(SECONDS))
            made = {
                peer.name: row_of(
                    f"{peer.name}, {connections} connections",
                    "writes/s",
                    turns[peer.name],
                    peer.durability,
                    connections=connections,
                )
                for peer in peers
            }
            rows += _compared(peers, made)
    return rows


def _compared(peers: list[Peer], made: dict[str, Row]) -> list[Row]:
    """Ours, against each peer whose answers are worth the same."""
    rows = [made[peer.name] for peer in peers if not peer.name.startswith("Headwater")]
    for ours in (peer for peer in peers if peer.name.startswith("Headwater")):
        alike = [peer for peer in peers if peer is not ours and _is_fsync(peer) == _is_fsync(ours)]
        mine = made[ours.name]
        rows += [mine.against(made[peer.name]) for peer in alike] or [mine]
    return rows


def _is_fsync(peer: Peer) -> bool:
    return peer.durability == "fsync"
