"""The open loop of `make bench-tails` hides no pause, and the benchmark gives its figures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from bench.log_under_test import WrongResultError
from bench.server.open_loop import OpenLoop, request, run_open_loop, tail_of

REPOSITORY = Path(__file__).resolve().parents[2]
CONNECTIONS = 2
RATE = 1_000
PAUSE_S = 0.1


class Stub(asyncio.Protocol):
    """Answers every write at once, but for the first of all: that one it holds for a while."""

    held = False
    open: ClassVar[set[asyncio.Transport]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        Stub.open.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        Stub.open.discard(self.transport)

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"POST /v0/topics/bench.")
        pause_s = 0.0 if Stub.held else PAUSE_S
        Stub.held = True
        asyncio.get_running_loop().call_later(pause_s, self.transport.write, self.answer)

    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Refusing(Stub):
    answer = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}"


@contextmanager
def listening(protocol: type[Stub]) -> Iterator[int]:
    Stub.held = False
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def listen() -> asyncio.Server:
        return await loop.create_server(protocol, "127.0.0.1", 0)

    async def stop() -> None:
        server.close()
        for transport in Stub.open:
            transport.abort()
        while Stub.open:
            await asyncio.sleep(0)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_a_pause_is_in_the_latency_of_every_write_that_was_due_in_it() -> None:
    with listening(Stub) as port:
        loop = OpenLoop(port, 1, [request(0, "1")])
        loop.run(RATE, 2 * PAUSE_S)
        loop.close()
    due_in_it = int(PAUSE_S * RATE)
    assert len(loop.latencies) == 2 * due_in_it, "what was due is sent, late or not"
    slow = [latency for latency in loop.latencies if latency > PAUSE_S / 4]
    assert len(slow) >= due_in_it // 2, "one slow answer, and many slow writes"
    assert loop.late >= due_in_it // 2


def test_the_parts_of_a_load_are_one_tail() -> None:
    with listening(Stub) as port:
        tail = run_open_loop(
            port, topics=3, connections=4, rate=400, seconds=0.5, payload=b"1", processes=2
        )
    assert tail.sent == 200
    assert 0 < tail.p50_us <= tail.p99_us <= tail.p999_us <= tail.max_us
    assert tail.max_us >= PAUSE_S * 1e6


def test_a_write_that_is_refused_is_no_figure() -> None:
    with listening(Refusing) as port, pytest.raises(WrongResultError, match="429"):
        run_open_loop(port, topics=1, connections=1, rate=100, seconds=0.1, payload=b"1")


def test_percentiles_are_those_of_all_writes() -> None:
    tail = tail_of([number / 1e6 for number in range(1, 1_001)], 2.0, 3)
    assert (tail.p50_us, tail.p99_us, tail.p999_us, tail.max_us) == (501, 991, 1_000, 1_000)
    assert (tail.rate, tail.late) == (500, 3)


@pytest.mark.e2e
@pytest.mark.slow
def test_the_benchmark_gives_every_percentile_of_both_sides(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    words = ("tails", "--quick", "--directory", str(tmp_path / "data"), "--json", str(results))
    ran = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (result,) = json.loads(results.read_text(encoding="utf-8"))["results"]
    assert [row["name"] for row in result["rows"]] == [
        f"{side}, {which}"
        for side in ("default settings", "background work often")
        for which in ("p50", "p99", "p99.9", "longest")
    ]
