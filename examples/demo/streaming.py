"""Events of a shop over HTTP, readings of sensors over Kafka, at the same time, watched live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kafka_side
import shop
from stage import Figures, Stage, chunks, percentile, same, threads

import headwater

WRITERS = 4

Moved = Callable[[int], None]


def run(stage: Stage) -> Figures:
    everything = shop.events(stage.events)
    orders = sum(1 for event in everything if event["tag"] == "order")
    with headwater.Client(stage.url) as client:
        client.create(shop.EVENTS)
        client.create(shop.LOST)
        client.create(shop.PARCELS, type="queue", max_deliveries=3, dead_letter=shop.LOST)
        client.put_router("orders", source=shop.EVENTS, dest=shop.PARCELS, filter="order")
    wished = {"shop events over HTTP": stage.events, "seen by a live watcher": stage.events}
    with_kafka = kafka_side.is_there(stage)
    if with_kafka:
        wished |= {"readings over Kafka": stage.events, "read by a group of two": stage.events}
    with stage.bars(wished) as moved, threads(WRITERS + 4) as crew:
        watching = crew.submit(watch, stage, moved["seen by a live watcher"])
        if with_kafka:
            settled = threading.Event()
            bars = (moved["readings over Kafka"], moved["read by a group of two"])
            kafka = crew.submit(kafka_side.run, stage, *bars, settled)
            settled.wait()
        started = time.monotonic()
        shares = [everything[first::WRITERS] for first in range(WRITERS)]
        writing = [
            crew.submit(write, stage.url, share, moved["shop events over HTTP"]) for share in shares
        ]
        waits_ms = [wait for done in writing for wait in done.result()]
        elapsed_s = time.monotonic() - started
        seen = watching.result()
        kafka_figures = kafka.result() if with_kafka else {}
    same("events on the watch", stage.events, seen)
    with headwater.Client(stage.url) as client:
        same("events in the topic", stage.events, client.state(shop.EVENTS).count)
    return {
        "HTTP": f"{stage.events:,} events by {WRITERS} writers, {shop.PER_BATCH} a request, "
        f"{stage.events / elapsed_s:,.0f} a second, each on the disk before its answer",
        "HTTP answers": f"half within {percentile(waits_ms, 0.5):.1f} ms, "
        f"99 % within {percentile(waits_ms, 0.99):.1f} ms",
        "live": f"{seen:,} of {stage.events:,} pushed to a watcher while they were written",
        "router": f"{orders:,} orders among them go to a queue, by a rule",
        **kafka_figures,
    }


def write(url: str, share: Sequence[dict[str, Any]], moved: Moved) -> list[float]:
    """Gives how long each request waited for the disk, in milliseconds."""
    waits = []
    with headwater.Client(url) as client:
        for batch in chunks(share, shop.PER_BATCH):
            began = time.perf_counter()
            client.append(shop.EVENTS, list(batch))
            waits.append((time.perf_counter() - began) * 1e3)
            moved(len(batch))
    return waits


def watch(stage: Stage, moved: Moved) -> int:
    seen = 0
    with headwater.Client(stage.url) as client:
        for found in client.watch(shop.EVENTS):
            if isinstance(found, headwater.Record):
                seen += 1
                moved(1)
            if seen == stage.events:
                break
    return seen
