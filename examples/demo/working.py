"""Two workers share a queue; some jobs fail once, some never work out."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import shop
from stage import Figures, NotHereError, Stage, same, threads

import headwater
from headwater.client import GiveBackError

WORKERS = ("ada", "bo")
STUMBLES_EVERY = 40
LOST_EVERY = 150
"""Of so many parcels one is given back at first, and one has an address nobody can read."""


class Packing:
    """What the workers do with a job, and what they saw."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.packed: Counter[str] = Counter()
        self.given_back = 0
        self.finished_at = 0.0

    def pack(self, job: Any) -> None:
        order = job.record.data
        number = int(order["order"].lstrip("o"))
        hopeless = number % LOST_EVERY == 0
        stumbles = number % STUMBLES_EVERY == 0 and job.deliveries == 1
        with self._lock:
            if hopeless or stumbles:
                self.given_back += 1
                raise GiveBackError(0)
            self.packed[order["order"]] += 1
            self.finished_at = time.monotonic()


def run(stage: Stage) -> Figures:
    with headwater.Client(stage.url) as client:
        waiting = wait_for_copies(client)
    packing = Packing()
    started = time.monotonic()
    with threads(len(WORKERS)) as crew:
        done = list(crew.map(lambda name: work(stage, packing, name), WORKERS))
    elapsed_s = packing.finished_at - started  # not the moment they wait for more
    twice = [order for order, times in packing.packed.items() if times > 1]
    with headwater.Client(stage.url) as client:
        lost = client.state(shop.LOST).count
        left = client.queue_stats(shop.PARCELS)
    same("parcels packed or lost", waiting, len(packing.packed) + lost)
    same("parcels left over", (0, 0), (left.ready, left.in_flight))
    same("parcels packed twice", [], twice)
    shares = " and ".join(f"{name} {share:,}" for name, share in zip(WORKERS, done, strict=True))
    return {
        "queue": f"{waiting:,} parcels by two workers, {shares}, "
        f"{waiting / elapsed_s:,.0f} a second",
        "failures": f"{packing.given_back} given back and handed out again; {lost} lost their "
        "address and are dead letters",
        "check": f"{len(packing.packed):,} packed once, none twice, none left over",
    }


def wait_for_copies(client: headwater.Client) -> int:
    """Until the router has come to the end; gives how many parcels wait."""
    for _ in range(500):
        if client.router("orders").lag == 0:
            return client.queue_stats(shop.PARCELS).ready
        time.sleep(0.02)
    raise NotHereError("the router is not done after ten seconds")


def work(stage: Stage, packing: Packing, name: str) -> int:
    with headwater.Client(stage.url) as client:
        done = client.work(shop.PARCELS, packing.pack, node=name, limit=50, idle_ms=300)
    return done.done
