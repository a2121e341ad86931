"""Clients of machines in a process of their own: `python -m bench.machines.load KIND PORT ...`.

Each connection sends one event, waits for its answer, and sends the next: what a request costs a
caller. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from bench.machines.server import MACHINE
from headwater.wire.rcpx.frame import HEADER, frame

_unpack = HEADER.packer.unpack_from


def _request(op: str, **params: Any) -> bytes:
    return frame(json.dumps({"type": "request", "id": "1", "op": op, "params": params}).encode())


class Tally:
    def __init__(self) -> None:
        self.latencies_us: list[float] = []
        self.refused = 0
        self.running = True

    def told(self, elapsed_s: float) -> dict[str, Any]:
        found = sorted(self.latencies_us)
        return {
            "operations": len(found),
            "refused": self.refused,
            "elapsed_s": elapsed_s,
            "p50_us": found[len(found) // 2] if found else 0.0,
            "p99_us": found[int(len(found) * 0.99)] if found else 0.0,
        }


class Speaker(asyncio.Protocol):
    """Sends the same request again and again."""

    def __init__(self, tally: Tally, first: bytes, request: bytes) -> None:
        self._tally = tally
        self._first = first
        self._request = request
        self._buffer = b""
        self._sent = 0.0
        self._greeted = not first
        self._transport: Any = None
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._first:
            self._transport.write(self._first)
        else:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (body := self._take()) is not None:
            if not self._greeted:
                self._greeted = True
            else:
                self._tally.latencies_us.append((time.perf_counter() - self._sent) * 1e6)
                if b'"to_state"' not in body:
                    self._tally.refused += 1
            self._next()

    def _take(self) -> bytes | None:
        raise NotImplementedError

    def _next(self) -> None:
        if not self._tally.running:
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(self._request)


class RcpxSpeaker(Speaker):
    def _take(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < HEADER.size:
            return None
        end = HEADER.size + _unpack(buffer)[4]
        if len(buffer) < end:
            return None
        self._buffer = buffer[end:]
        return buffer[HEADER.size : end]


class HttpSpeaker(Speaker):
    def _take(self) -> bytes | None:
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return None
        at = head.index(b"content-length: ") + 16
        length = int(head[at:].partition(b"\r")[0])
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return rest[:length]


def _speaker(kind: str, tally: Tally, number: int) -> Speaker:
    name = f"t-{number:09d}"
    if kind == "rcpx":
        event = _request("APPLY_EVENT", instance_id=name, event="COIN", payload={"last": number})
        return RcpxSpeaker(tally, _request("HELLO", protocol_version=1), event)
    body = json.dumps({"event": "COIN", "payload": {"last": number}}).encode()
    head = (
        f"POST /v0/instances/{name}/events HTTP/1.1\r\nhost: b\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return HttpSpeaker(tally, b"", head.encode() + body)


async def events(kind: str, port: int, connections: int, seconds: float) -> dict[str, Any]:
    loop, tally = asyncio.get_running_loop(), Tally()
    started = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda number=number: _speaker(kind, tally, number),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        for number in range(connections)
    ]
    await asyncio.sleep(seconds)
    tally.running = False
    await asyncio.gather(*(speaker.done for _, speaker in made))
    return tally.told(time.perf_counter() - started)


class Follower(RcpxSpeaker):
    """Watches, and notes how long every transition took to get here."""

    def data_received(self, data: bytes) -> None:
        now = time.time_ns()
        self._buffer += data
        while (body := self._take()) is not None:
            if not self._greeted:
                self._greeted = True
                self._transport.write(_request("WATCH_ALL", machines=[MACHINE], include_ctx=False))
            elif b'"type":"event"' in body:
                sent = json.loads(body)["payload"]["sent"]
                self._tally.latencies_us.append((now - sent) / 1e3)
            elif b'"subscription_id"' in body and not self.done.done():
                self.done.set_result(None)


async def fan_out(port: int, watchers: int, rate: int, seconds: float) -> dict[str, Any]:
    """One writer at a steady rate, and many who follow it."""
    loop, tally = asyncio.get_running_loop(), Tally()
    hello = _request("HELLO", protocol_version=1)
    made = [
        await loop.create_connection(lambda: Follower(tally, hello, b""), "127.0.0.1", port)
        for _ in range(watchers)
    ]
    await asyncio.gather(*(follower.done for _, follower in made))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(hello)
    started, sent = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        if sent < elapsed * rate:
            payload = {"sent": time.time_ns()}
            name = f"t-{sent % 64:09d}"
            writer.write(_request("APPLY_EVENT", instance_id=name, event="COIN", payload=payload))
            sent += 1
        await asyncio.sleep(0.001)
        while reader._buffer:  # type: ignore[attr-defined]
            await reader.read(262_144)
    until = time.perf_counter() + 10
    while len(tally.latencies_us) < sent * watchers and time.perf_counter() < until:
        await asyncio.sleep(0.01)
    for transport, _ in made:
        transport.close()
    writer.close()
    return {**tally.told(time.perf_counter() - started), "sent": sent}


def main() -> None:
    kind, port, count, seconds, *more = sys.argv[1:]
    if kind == "fan-out":
        work = fan_out(int(port), int(count), int(more[0]), float(seconds))
    else:
        work = events(kind, int(port), int(count), float(seconds))
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main()
