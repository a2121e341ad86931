"""The scene of many topics: single writes, batches and reads, each to a topic picked at random.

Redis has a stream for each topic, NATS a subject of one stream. Before the clock starts every topic
is there, with a hundred records where they are read. Redis gets a batch as a pipeline of as many
commands, each for a stream of its own choice, since redis-benchmark picks for each command.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.log_under_test import WrongResultError
from bench.payloads import PAYLOADS
from bench.peers.nats import INSTALL as INSTALL_NATS
from bench.peers.nats import NatsServer, has_nats, make_stream, nats_count
from bench.peers.nats_load import StreamPublishers
from bench.scale.matrix import BATCH, BATCHES, NATS, READS, REDIS, SINGLES, Cell, Matrix
from bench.scale.scene import Contender, Scene, Side, started
from bench.server.clients import FIELD, Http, Redis, encode_command
from bench.server.load import Load, run_redis_benchmark, run_wrk, write_body
from bench.server.processes import (
    INSTALL,
    HeadwaterServer,
    RedisServer,
    ServerProcess,
    has_redis,
)

SCRIPT: Final = Path(__file__).with_name("request.lua")
TOPIC: Final = "scale-%d"
STREAM: Final = "scale"
KEY: Final = "scale:%012d"
KEY_AT_RANDOM: Final = "scale:__rand_int__"
AT_ONCE: Final = 64
TOPICS_OF_A_PAGE: Final = 1_000
IO_THREADS: Final = 4
CORES_FOR_IO_THREADS: Final = 4
TIMEOUT: Final = "30s"
_STATUS: Final = b"HTTP/1.1 "
_GOOD: Final = b"HTTP/1.1 2"


def missing_peers(wanted: Sequence[str]) -> Iterator[str]:
    if REDIS in wanted and not has_redis():
        yield f"no redis-server or redis-benchmark here: {INSTALL}"
    if NATS in wanted and not has_nats():
        yield f"no nats-server here: {INSTALL_NATS}"


def nats_version(directory: Path) -> list[str]:
    return [NatsServer(directory / "nats-version").version()] if has_nats() else []


def peers(wanted: Sequence[str], kinds: Collection[str]) -> list[str]:
    there = {REDIS: has_redis(), NATS: has_nats() and SINGLES in kinds}
    return [name for name in there if there[name] and name in wanted]


def redis_server(directory: Path, cores: int) -> RedisServer:
    return RedisServer(directory, IO_THREADS if cores >= CORES_FOR_IO_THREADS else 1)


def threads_for(connections: int, at_most: int) -> int:
    """wrk gives each thread as many connections, and leaves out those that remain."""
    return max(n for n in range(1, at_most + 1) if not connections % n)


class HttpRequests:
    """wrk: connections that send a request to a topic picked at random, and wait for the answer."""

    def __init__(
        self,
        server: ServerProcess,
        body: Path,
        path: str,
        topics: int,
        connections: int,
        threads: int,
    ) -> None:
        self._server = server
        self._body = body
        self._path = path
        self._topics = topics
        self._connections = connections
        self._threads = threads_for(connections, threads)

    def command(self, seconds: float) -> list[str]:
        return [
            *("wrk", f"-t{self._threads}", f"-c{self._connections}", "--timeout", TIMEOUT),
            *(f"-d{max(round(seconds), 1)}s", "-s", str(SCRIPT)),
            *(f"http://127.0.0.1:{self._server.port}", "--"),
            *(str(self._body), str(self._topics), self._path),
        ]

    def run(self, seconds: float, records: int) -> Load:
        return run_wrk(self._server, self.command(seconds), records)[0]


class RedisCommands:
    """redis-benchmark: clients that send pipelines of one command, each for a key at random."""

    def __init__(
        self, server: RedisServer, command: Sequence[str], cell: Cell, pipeline: int, threads: int
    ) -> None:
        self._server = server
        self._least = cell.connections * pipeline
        self._rate = 0.0
        threads = min(threads, cell.connections)
        self._words = [
            *("-c", str(cell.connections), "-P", str(pipeline), "-r", str(cell.topics)),
            *(("--threads", str(threads)) if threads > 1 else ()),
            *command,
        ]

    def run(self, seconds: float) -> list[Load]:
        """For about so long, by the rate before: it counts operations and looks at no clock.

        The first time it finds the rate out.
        """
        loads = []
        if not self._rate:
            loads.append(run_redis_benchmark(self._server, self._words, self._least * 20))
            self._rate = loads[0].rate
        operations = max(int(self._rate * seconds), self._least)
        loads.append(run_redis_benchmark(self._server, self._words, operations))
        self._rate = loads[-1].rate
        return loads


@contextmanager
def scene(matrix: Matrix, cells: Sequence[Cell], directory: Path) -> Iterator[Scene]:
    topics, cores = cells[0].topics, cells[0].cores
    kinds = {cell.what for cell in cells}
    records = BATCH if READS in kinds else 1
    sides = []
    beside = peers(matrix.peers, kinds)
    if REDIS in beside:
        sides.append(Side("Redis", redis_server(directory / "redis", cores)))
    if NATS in beside:
        nats = NatsServer(directory / "nats")
        sides.append(Side(nats.name, nats, nats.durability))
    sides += [
        Side(variant.name, HeadwaterServer(directory / f"headwater-{number}", variant.options))
        for number, variant in enumerate(matrix.variants)
    ]
    bodies = Bodies(directory)
    with started(sides, cores):
        for side in sides:
            prepare(side, topics, records)
        yield Scene(
            sides,
            lambda cell: {
                side.name: made
                for side in sides
                if (made := contender(side, cell, bodies, matrix.load_threads)) is not None
            },
            lambda side: check_count(side, topics),
        )


class Bodies:
    """Of requests, in files for wrk."""

    def __init__(self, directory: Path) -> None:
        self.of: dict[str, Path] = {
            SINGLES: write_body(directory / "single.json", 1),
            BATCHES: write_body(directory / "batch.json", BATCH),
            READS: directory / "read.json",
        }
        self.of[READS].write_bytes(b'{"from_seq":0,"limit":%d}' % BATCH)


def contender(side: Side, cell: Cell, bodies: Bodies, threads: int) -> Contender | None:
    """None where a peer has nothing of the kind."""
    server = side.server
    if isinstance(server, RedisServer):
        return _redis_contender(side, server, cell, threads)
    if isinstance(server, NatsServer):
        return _nats_contender(side, server, cell) if cell.what == SINGLES else None
    return _http_contender(side, cell, bodies, threads)


def _http_contender(side: Side, cell: Cell, bodies: Bodies, threads: int) -> Contender:
    path = f"/v0/topics/{TOPIC}" + ("/diff" if cell.what == READS else "")
    requests = HttpRequests(
        side.server, bodies.of[cell.what], path, cell.topics, cell.connections, threads
    )
    records = 1 if cell.what == SINGLES else BATCH

    def turn(seconds: float) -> Load:
        load = requests.run(seconds, records)
        if cell.what != READS:
            side.sent(load.operations, (cell.connections + load.errors) * records)
        return load

    return turn


def _redis_contender(side: Side, server: RedisServer, cell: Cell, threads: int) -> Contender:
    pipeline = BATCH if cell.what == BATCHES else 1
    reads = cell.what == READS
    command = (
        ["XRANGE", KEY_AT_RANDOM, "-", "+", "COUNT", str(BATCH)]
        if reads
        else ["XADD", KEY_AT_RANDOM, "*", FIELD, PAYLOADS[1].decode()]
    )
    commands = RedisCommands(server, command, cell, pipeline, threads)

    def turn(seconds: float) -> Load:
        loads = commands.run(seconds)
        for load in loads:
            if not reads:
                side.sent(load.operations, cell.connections * pipeline)
        return records_of(loads[-1], BATCH) if reads else loads[-1]

    return turn


def records_of(load: Load, records: int) -> Load:
    return Load(
        load.operations * records,
        load.elapsed_s,
        load.cpu_s,
        load.p50_us,
        load.p99_us,
        load.p999_us,
        load.max_us,
        load.client_cpu_s,
        load.errors,
    )


def _nats_contender(side: Side, server: NatsServer, cell: Cell) -> Contender:
    publishers = StreamPublishers(server, STREAM, cell.connections, cell.topics)

    def turn(seconds: float) -> Load:
        load = publishers(seconds)
        side.sent(load.operations, 0)
        return load

    return turn


def prepare(side: Side, topics: int, records: int) -> None:
    """Every topic exists, and has so many records."""
    server = side.server
    if isinstance(server, NatsServer):
        make_stream(server.port, STREAM, f"{STREAM}.*")
        return
    if isinstance(server, RedisServer):
        with Redis(server.port) as redis:
            # Else it would sync for every 16 KiB that it reads.
            redis.call("CONFIG", "SET", "appendfsync", "no")
            redis.send("CLIENT", "REPLY", "OFF")
            for window in _windows(topics):
                redis.send_many(b"".join([_add(number) * records for number in window]))
            redis.call("CLIENT", "REPLY", "ON")
            redis.call("CONFIG", "SET", "appendfsync", "always")
    else:
        body = b'{"records":[%s]}' % b",".join([b'{"data":%s}' % PAYLOADS[1]] * records)
        try:
            _post_to_each(server.port, topics, body)
        except WrongResultError as error:
            raise WrongResultError(f"{side.name}: {error}; {server.last_words()}") from error
    side.sent(topics * records, 0)


def _windows(topics: int) -> Iterator[range]:
    for first in range(0, topics, AT_ONCE):
        yield range(first, min(first + AT_ONCE, topics))


def _add(topic: int) -> bytes:
    return encode_command("XADD", KEY % topic, "*", FIELD, PAYLOADS[1])


def _post_to_each(port: int, topics: int, body: bytes) -> None:
    def request(number: int) -> bytes:
        head = b"POST /v0/topics/%s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        return (head + b"content-length: %d\r\n\r\n%s") % (
            (TOPIC % number).encode(),
            len(body),
            body,
        )

    # One request on each connection at a time, so that one sync is for all of a window.
    with ExitStack() as ends:
        connections = [
            ends.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for _ in range(min(topics, AT_ONCE))
        ]
        for window in _windows(topics):
            used = list(zip(connections, window, strict=False))
            for connection, number in used:
                connection.sendall(request(number))
            for connection, _ in used:
                _expect_good(connection)


def _expect_good(connection: socket.socket) -> None:
    """Its head at least. What is left of an answer comes before the next and is passed over."""
    received = b""
    while (at := received.find(_STATUS)) < 0 or len(received) < at + len(_GOOD):
        chunk = connection.recv(1 << 18)
        if not chunk:
            raise WrongResultError("the server closed the connection that prepares")
        received += chunk
    if not received.startswith(_GOOD, at):
        raise WrongResultError(f"the server refuses to prepare: {received[at:][:300]!r}")


def check_count(side: Side, topics: int) -> None:
    """Every acknowledged record is there, and none that nobody sent."""
    server = side.server
    if isinstance(server, NatsServer):
        count = nats_count(server.port, STREAM)
    elif isinstance(server, RedisServer):
        count = _redis_count(server.port, topics)
    else:
        count = _headwater_count(server.port)
    if not side.acked <= count <= side.sent_at_most:
        raise WrongResultError(
            f"{side.name}: {count} records, {side.acked} to {side.sent_at_most} were sent"
        )


def _redis_count(port: int, topics: int) -> int:
    with Redis(port) as redis:
        redis.send_many(b"".join([encode_command("XLEN", KEY % n) for n in range(topics)]))
        return sum([redis.reply() for _ in range(topics)])


def _headwater_count(port: int) -> int:
    path = f"/v0/topics?prefix=scale-&page_size={TOPICS_OF_A_PAGE}"
    counts: list[int] = []
    cursor = ""
    with Http(port) as http:
        while True:
            page = http.call("GET", path + cursor)
            counts += [topic["count"] for topic in page["topics"]]
            if not page.get("next_cursor"):
                return sum(counts)
            cursor = f"&cursor={page['next_cursor']}"
