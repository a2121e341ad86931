"""What a durable write costs the sequencer alone, fed with the frames that gateways would send.

Gateways are lists of frames in memory: each has one turn under way and sends the next one when it
is answered. What is measured is the processor time of the loop's thread; on a directory that needs
no sync (`--directory /dev/shm`) nothing else limits the rate.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import struct
import time

import uvloop

from bench.payloads import PAYLOAD_BYTES, PAYLOADS
from bench.registry import Row, Run, benchmark
from headwater.cli.server_run import GARBAGE_THRESHOLDS
from headwater.config.server import ServerSettings
from headwater.engine.opening import open_database_async
from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.backend import Backend
from headwater.server.http.turn_receiver import GatewayTurns, TurnReceiver
from headwater.server.http.turn_writer import TurnWriter
from headwater.wire.turns import TURN, GroupOutcome, decode_reply, encode_turn

GATEWAYS = 8
FRAMES = 64
_FIRST_GROUP_AT = TURN.offset_of("first_group")
_NUMBER = struct.Struct("<Q")


@benchmark("turns", "What does a durable write cost the sequencer behind gateways?")
def turns_of_gateways(run: Run) -> list[Row]:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    connections = (64,) if run.quick else (64, 256, 1000)
    shapes = [(topics, each, 1) for topics in (1, 32, 500) for each in connections]
    return [uvloop.run(measured(run, *shape)) for shape in [*shapes, (32, 64, 100)]]


async def measured(run: Run, topics: int, connections: int, records: int) -> Row:
    """Requests of so many connections, each of so many records, over so many topics."""
    directory = run.directory / f"{topics}-{connections}-{records}"
    database = await open_database_async(directory)
    loop = asyncio.get_running_loop()
    backend = Backend()
    backend.serve_from(database)
    writer = TurnWriter(backend, loop)
    writer.engine = database.engine
    database.engine.core.on_published = writer.send_answers
    receiver = TurnReceiver(writer, Access(ServerSettings()), Logger("bench"))
    names = [f"topic-{number}" for number in range(topics)]
    for name in names:
        await database.create(name)
    each = connections // GATEWAYS
    gateways = [FedGateway(loop, receiver, names, each, records, seed) for seed in range(GATEWAYS)]
    for gateway in gateways:
        gateway.send()
    await asyncio.sleep(run.seconds / 4)
    spent, rates = [], []
    for _ in range(run.rounds):
        before, cpu, wall = written(gateways), time.thread_time(), time.perf_counter()
        await asyncio.sleep(run.seconds)
        count = max(written(gateways) - before, 1)
        spent.append((time.thread_time() - cpu) / count * 1e6)
        rates.append(count / (time.perf_counter() - wall))
    for gateway in gateways:
        gateway.is_over = True
    while any(gateway.open_groups for gateway in gateways):
        await asyncio.sleep(0.01)
    await database.close()
    told = {
        "payload": f"{PAYLOAD_BYTES} B",
        "durability": "fsync",
        "gateways": str(GATEWAYS),
        "records a request": str(records),
        "best": f"{min(spent):.2f} us",
        "rate": f"{statistics.median(rates):,.0f} records/s",
    }
    name = f"{topics} topics, {connections} connections, {records} a request"
    return Row(name, statistics.median(spent), "us of its loop's thread for a record", told)


def written(gateways: list[FedGateway]) -> int:
    return sum(gateway.written for gateway in gateways)


class FedGateway:
    """Sends turns that were made before, the next one when all groups of the last are answered."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receiver: TurnReceiver,
        names: list[str],
        requests: int,
        records: int,
        seed: int,
    ) -> None:
        self._loop = loop
        self._turns = GatewayTurns(receiver, self._reply)
        chance = random.Random(seed)
        self._frames = [frame(chance, names, requests, records) for _ in range(FRAMES)]
        self._sent = 0
        self._requests = requests * records
        self._first_group = 1
        self.open_groups = 0
        self.written = 0
        self.is_over = False

    def send(self) -> None:
        made, groups = self._frames[self._sent % FRAMES]
        self._sent += 1
        self.open_groups = groups
        _NUMBER.pack_into(made, _FIRST_GROUP_AT, self._first_group)
        self._first_group += groups
        self._turns.take(bytes(made))

    def _reply(self, payload: bytes) -> None:
        rows, _ = decode_reply(payload)
        if any(row[1] != GroupOutcome.WRITTEN for row in rows):
            raise ValueError("not all was written")
        self.open_groups -= len(rows)
        if not self.open_groups:
            self.written += self._requests
            if not self.is_over:
                self._loop.call_soon(self.send)


def frame(
    chance: random.Random, names: list[str], requests: int, records: int
) -> tuple[bytearray, int]:
    """A turn of requests to random topics, and how many groups it has."""
    by_name: dict[str, int] = {}
    for name in chance.choices(names, k=requests):
        by_name[name] = by_name.get(name, 0) + 1
    rows = [(0, name.encode(), count, count * records) for name, count in by_name.items()]
    datas = chance.choices(PAYLOADS, k=requests * records)
    return bytearray(encode_turn(1, rows, [b""] * len(datas), datas)), len(rows)
