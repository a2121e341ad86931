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
from headwater.wire.rcpx import MessageReader


class Follower(asyncio.Protocol):
    """Watches, and notes when bytes came. They are read when the measuring is over: a hundred
    watchers share a core here, and what one of them thinks about, the next waits for."""

    def __init__(self) -> None:
        self._reader = MessageReader()
        self._heard: list[tuple[int, bytes]] = []
        self._greeted = False
        self._transport: Any = None
        self.latencies_us: list[float] = []
        self.watches = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(rcpx_request("HELLO", protocol_version=1))

    def data_received(self, data: bytes) -> None:
        self._heard.append((time.time_ns(), data))
        if not self.watches.done():
            self.read()

    def read(self) -> None:
        """Look at what came. A transition is here when its last byte is."""
        heard, self._heard = self._heard, []
        for now, data in heard:
            self._reader.feed(data)
            while (body := self._reader.next_message()) is not None:
                if b'"type":"event"' in body:
                    sent = json.loads(body)["payload"]["sent"]
                    self.latencies_us.append((now - sent) / 1e3)
                elif not self._greeted:
                    self._greeted = True
                    self._transport.write(
                        rcpx_request("WATCH_ALL", machines=[MACHINE], include_ctx=False)
                    )
                elif b'"subscription_id"' in body and not self.watches.done():
                    self.watches.set_result(None)


async def fan_out(port: int, watchers: int, rate: int, seconds: float) -> dict[str, Any]:
    """One writer at a steady rate, and many who follow it."""
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Follower, "127.0.0.1", port) for _ in range(watchers)]
    await asyncio.gather(*(follower.watches for _, follower in made))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(rcpx_request("HELLO", protocol_version=1))
    started, spent_s, sent = time.perf_counter(), time.process_time(), 0
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
    cpu_s = time.process_time() - spent_s
    until = time.perf_counter() + 10
    heard = 0
    while heard < sent * watchers and time.perf_counter() < until:
        await asyncio.sleep(0.01)
        for _, follower in made:
            follower.read()
        heard = sum(len(follower.latencies_us) for _, follower in made)
    latencies_us = [each for _, follower in made for each in follower.latencies_us]
    for transport, _ in made:
        transport.close()
    writer.close()
    found = summary(latencies_us, 0, time.perf_counter() - started)
    return {**found, "sent": sent, "cpu_s": cpu_s}


def main() -> None:
    kind, port, count, seconds, *more = sys.argv[1:]
    if kind == "fan-out":
        found = uvloop.run(fan_out(int(port), int(count), int(more[0]), float(seconds)))
    else:
        found = run_events(kind, int(port), int(count), float(seconds))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
