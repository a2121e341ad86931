"""The server is killed in the middle of writing. The writer notices a pause, and nothing else."""

from __future__ import annotations

import threading
import time

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
        before = {state.topic: state.count for state in client.topics()}
        writer.start()
        half_way.wait(60)
        stage.server.kill()
        killed = time.monotonic()
        stage.server.start()
        away_s = time.monotonic() - killed
        writer.join(60)
        after = {state.topic: state.count for state in client.topics()}
        found = [record.data for record in client.diff(TOPIC, limit=WRITES * 2).records]
    same("writes of the killed server", list(range(WRITES)), found)
    same("seqs", list(range(1, WRITES + 1)), acked)
    for topic, count in before.items():
        if topic != TOPIC:
            same(f"records of {topic}", count, after[topic])
    return {
        "kill -9": f"in the middle of {WRITES} writes; back after {away_s:.1f} s",
        "check": f"{WRITES} written, {len(found)} there, none twice; "
        f"{sum(before.values()):,} earlier records too",
    }
