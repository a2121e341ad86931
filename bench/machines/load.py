"""Clients of machines in a process of their own: `python -m bench.machines.load KIND PORT ...`.

Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from bench.machines.closed_loop import rcpx_request, run_events, summary
from bench.machines.server import MACHINE
from headwater.wire.rcpx.frame import MessageReader


class Follower(asyncio.Protocol):
    """Watches, and notes how long every transition took to get here."""

    def __init__(self, latencies_us: list[float]) -> None:
        self._latencies_us = latencies_us
        self._reader = MessageReader()
        self._greeted = False
        self._transport: Any = None
        self.watches = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(rcpx_request("HELLO", protocol_version=1))

    def data_received(self, data: bytes) -> None:
        now = time.time_ns()
        self._reader.feed(data)
        while (body := self._reader.next_message()) is not None:
            if not self._greeted:
                self._greeted = True
                self._transport.write(
                    rcpx_request("WATCH_ALL", machines=[MACHINE], include_ctx=False)
                )
            elif b'"type":"event"' in body:
                sent = json.loads(body)["payload"]["sent"]
                self._latencies_us.append((now - sent) / 1e3)
            elif b'"subscription_id"' in body and not self.watches.done():
                self.watches.set_result(None)


async def fan_out(port: int, watchers: int, rate: int, seconds: float) -> dict[str, Any]:
    """One writer at a steady rate, and many who follow it."""
    loop = asyncio.get_running_loop()
    latencies_us: list[float] = []
    made = [
        await loop.create_connection(lambda: Follower(latencies_us), "127.0.0.1", port)
        for _ in range(watchers)
    ]
    await asyncio.gather(*(follower.watches for _, follower in made))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(rcpx_request("HELLO", protocol_version=1))
    started, sent = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        if sent < elapsed * rate:
            payload = {"sent": time.time_ns()}
            name = f"t-{sent % 64:09d}"
            writer.write(
                rcpx_request("APPLY_EVENT", instance_id=name, event="COIN", payload=payload)
            )
            sent += 1
        await asyncio.sleep(0.001)
        while reader._buffer:  # type: ignore[attr-defined]
            await reader.read(262_144)
    until = time.perf_counter() + 10
    while len(latencies_us) < sent * watchers and time.perf_counter() < until:
        await asyncio.sleep(0.01)
    for transport, _ in made:
        transport.close()
    writer.close()
    return {**summary(latencies_us, 0, time.perf_counter() - started), "sent": sent}


def main() -> None:
    kind, port, count, seconds, *more = sys.argv[1:]
    if kind == "fan-out":
        found = uvloop.run(fan_out(int(port), int(count), int(more[0]), float(seconds)))
    else:
        found = run_events(kind, int(port), int(count), float(seconds))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
