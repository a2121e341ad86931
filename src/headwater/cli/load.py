"""A small load on a running server: bare requests on kept connections, each timed.

Not the client library: that is made to be safe and pleasant, and would be what is measured.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headwater.cli.contexts import Context
from headwater.client.errors import NoAnswerError, UnreachableError, error_of
from headwater.core.clock import Clock
from headwater.core.units import MIB, US_PER_S

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
