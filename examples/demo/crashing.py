"""The server is killed in the middle of writing. The writer notices a pause, and nothing else."""

from __future__ import annotations

import threading
import time

import kafka_side
import machines
import shop
from stage import Figures, Stage, same

import headwater

TOPIC = "crash.test"
WRITES = 400


def run(stage: Stage) -> Figures:
    acked: list[int] = []
    half_way = threading.Event()

    def write() -> None:
        with headwater.Client(stage.url) as client:
            for number in range(WRITES):
                acked.append(client.append(TOPIC, {"data": number}).first_seq)
                if number == WRITES // 2:
                    half_way.set()

    writer = threading.Thread(target=write, daemon=True)
    with headwater.Client(stage.url) as client:
        before = held(stage, client)
        writer.start()
        half_way.wait(60)
        stage.server.kill()
        killed = time.monotonic()
        stage.server.start()
        away_s = time.monotonic() - killed
        writer.join(60)
        after = held(stage, client)
        found = [record.data for record in client.diff(TOPIC, limit=WRITES * 2).records]
    same("writes of the killed server", list(range(WRITES)), found)
    same("seqs", list(range(1, WRITES + 1)), acked)
    same("what was there before", before, after)
    return {
        "kill -9": f"in the middle of {WRITES} writes; back after {away_s:.1f} s",
        "check": f"{WRITES} written, {len(found)} there, none twice; "
        f"{sum(before.values()):,} earlier records, readings and orders too",
    }


def held(stage: Stage, client: headwater.Client) -> dict[str, int]:
    """What the other steps left: records of topics, readings, orders by their state."""
    found = {state.topic: state.count for state in client.topics("shop.")}
    found |= {f"orders {state}": count for state, count in machines.states(stage).items()}
    if kafka_side.is_there(stage) and shop.EVENTS in found:
        found[shop.SENSORS] = kafka_side.over_http(stage)
    return found
