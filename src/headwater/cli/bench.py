"""`headwater bench`: a small, bounded load against a running server, and what came of it.

Bare requests on kept connections, each timed. Not the client library: that is made to be safe and
pleasant, and would be what is measured.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from headwater.cli.output import printable, say, say_table
from headwater.cli.remote import (
    ANY_SERVER,
    Context,
    ServerCall,
)
from headwater.client.errors import NoAnswerError, UnreachableError, error_of
from headwater.core.clock import Clock, SystemClock
from headwater.core.limits import BATCH_RECORDS_MAX, READ_BYTES_CLAMP, READ_RECORDS_CLAMP
from headwater.core.units import MIB, US_PER_S

RECORDS_MAX = 1_000_000
BYTES_MAX = 1_000_000_000
_HEADINGS = ("records/s", "requests/s", "p50/ms", "p90/ms", "p99/ms", "max/ms")


class _Page(msgspec.Struct):
    next_from_seq: int
    caught_up: bool
    records: list[msgspec.Raw]


_pages = msgspec.json.Decoder(_Page)


def bench(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, metavar="S", help="For writing, and for reading.")
    ] = 5.0,
    connections: Annotated[int, typer.Option(min=1, max=256, metavar="N")] = 16,
    batch: Annotated[
        int, typer.Option(min=1, max=BATCH_RECORDS_MAX, metavar="N", help="Records a write.")
    ] = 1,
    size: Annotated[
        int, typer.Option(min=2, max=100_000, metavar="BYTES", help="Of each payload.")
    ] = 200,
    durability: Annotated[str, typer.Option(help="Class of the topic.")] = "fsync",
    call: ServerCall = ANY_SERVER,
) -> None:
    """Write for some seconds, read it back, and report rates and latencies.

    Uses a topic of its own, which is dropped afterwards; writes at most a million records or a
    gigabyte. The numbers are those of this client and this server together, on their machines.
    """
    address = call.find()
    topic = f"headwater-bench-{secrets.token_hex(4)}"
    clock = SystemClock()
    with call.connect() as client:
        client.create(topic, durability=durability)
        try:
            target = Target(address)
            bodies = _bodies(batch, size)
            path = f"/v0/topics/{topic}?return_seqs=false"
            writers = [
                Work(path, lambda: next(bodies, None), lambda _answer: batch)
                for _ in range(connections)
            ]
            written = asyncio.run(put_under_load(target, writers, seconds, clock))
            readers = [_reader(topic) for _ in range(min(connections, 4))]
            read = asyncio.run(put_under_load(target, readers, seconds, clock))
        finally:
            client.drop(topic)
    phases = {"write": written, "read": read}
    conditions = {
        "url": address.url,
        "connections": connections,
        "batch": batch,
        "payload_bytes": size,
        "durability": durability,
    }
    if call.say_json({**conditions, **{name: _as_json(each) for name, each in phases.items()}}):
        return
    say(
        f"{printable(address.url)}: payloads of {size} bytes, durability {durability}; "
        f"writes of {batch} on {connections} connections, "
        f"reads of {READ_RECORDS_CLAMP:,} on {len(readers)}"
    )
    headings = ["", *_HEADINGS]
    rows = [[name, *_row(measured)] for name, measured in phases.items()]
    say_table(headings, rows, " ".join(_HEADINGS))


def _bodies(batch: int, size: int) -> Iterator[bytes]:
    """The same write again and again; together not more than the bounds allow."""
    record = b'{"data":"%b"}' % (b"x" * (size - 2))
    body = b'{"records":[%b]}' % b",".join([record] * batch)
    writes = max(1, min(RECORDS_MAX // batch, BYTES_MAX // len(body)))
    for _ in range(writes):
        yield body


def _reader(topic: str) -> Work:
    """From the beginning to the end, over and over."""
    cursor = 0

    def next_body() -> bytes:
        request = {
            "from_seq": cursor,
            "limit": READ_RECORDS_CLAMP,
            "max_batch_bytes": READ_BYTES_CLAMP,
        }
        return msgspec.json.encode(request)

    def records_in(answer: bytes) -> int:
        nonlocal cursor
        page = _pages.decode(answer)
        cursor = 0 if page.caught_up else page.next_from_seq
        return len(page.records)

    return Work(f"/v0/topics/{topic}/diff", next_body, records_in)


def _row(measured: Measured) -> list[str]:
    times = [measured.percentile_ms(share) for share in (0.5, 0.9, 0.99, 1.0)]
    return [
        f"{measured.records_per_s:,.0f}",
        f"{measured.requests_per_s:,.0f}",
        *(f"{time:.2f}" for time in times),
    ]


def _as_json(measured: Measured) -> dict[str, Any]:
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}
    return {
        "records_per_s": round(measured.records_per_s, 1),
        "requests_per_s": round(measured.requests_per_s, 1),
        "requests": len(measured.latencies_us),
        **{name: round(measured.percentile_ms(share), 3) for name, share in shares.items()},
    }


ANSWER_BYTES_MAX = 64 * MIB


@dataclass(slots=True)
class Measured:
    latencies_us: list[int] = field(default_factory=list)
    records: int = 0
    elapsed_us: int = 1

    @property
    def requests_per_s(self) -> float:
        return len(self.latencies_us) * US_PER_S / self.elapsed_us

    @property
    def records_per_s(self) -> float:
        return self.records * US_PER_S / self.elapsed_us

    def percentile_ms(self, share: float) -> float:
        times = sorted(self.latencies_us) or [0]
        return times[min(len(times) - 1, int(len(times) * share))] / 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """One request after the other: what to send, and how many records an answer brought."""

    path: str
    next_body: Callable[[], bytes | None]
    """None when there is nothing more to do."""
    records_in: Callable[[bytes], int]


class Target:
    def __init__(self, server: Context) -> None:
        parts = urlsplit(server.url)
        assert parts.hostname is not None
        self.host = parts.hostname
        self.url = server.url
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self._base = parts.path.rstrip("/")
        self._head = f"host: {parts.netloc}\r\ncontent-type: application/json\r\n"
        if server.token is not None:
            self._head += f"authorization: Bearer {server.token}\r\n"
        self.trust = ssl.create_default_context(cafile=server.ca_file) if self.secure else None

    def request(self, path: str, body: bytes) -> bytes:
        head = f"POST {self._base}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body


async def put_under_load(
    target: Target, workers: list[Work], seconds: float, clock: Clock
) -> Measured:
    """All workers at once, each on a connection of its own, until the time is up."""
    measured = Measured()
    began = clock.monotonic_us()
    until = began + int(seconds * US_PER_S)
    await asyncio.gather(*(_work(target, work, until, clock, measured) for work in workers))
    measured.elapsed_us = max(clock.monotonic_us() - began, 1)
    return measured


async def _work(target: Target, work: Work, until: int, clock: Clock, measured: Measured) -> None:
    try:
        reader, writer = await asyncio.open_connection(
            target.host, target.port, ssl=target.trust, limit=ANSWER_BYTES_MAX
        )
    except OSError as error:
        raise UnreachableError(f"cannot reach {target.url}: {error}") from error
    try:
        while (now := clock.monotonic_us()) < until:
            body = work.next_body()
            if body is None:
                return
            writer.write(target.request(work.path, body))
            answer = await _read_answer(reader)
            measured.latencies_us.append(clock.monotonic_us() - now)
            measured.records += work.records_in(answer)
    except (OSError, EOFError) as error:
        raise NoAnswerError(f"{target.url} ended the connection") from error
    finally:
        writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(None, 2)[1])
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if status >= 300:
        raise error_of(status, headers, body)
    return body
