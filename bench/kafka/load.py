"""One client in a process of its own: produces, consumes or keeps a rate, and prints JSON.

    python -m bench.kafka.load produce BOOTSTRAP TOPIC SIZE COUNT
    python -m bench.kafka.load spread BOOTSTRAP TOPIC SIZE COUNT PARTITIONS
    python -m bench.kafka.load batched BOOTSTRAP TOPIC SIZE COUNT PARTITIONS PRODUCERS LINGER_MS
    python -m bench.kafka.load consume BOOTSTRAP TOPIC SIZE COUNT [PARTITIONS [PRODUCERS]]
    python -m bench.kafka.load waiting BOOTSTRAP TOPIC SIZE COUNT PARTITIONS PRODUCERS
    python -m bench.kafka.load latency BOOTSTRAP TOPIC SIZE COUNT RATE
    python -m bench.kafka.load xadd PORT STREAM SIZE COUNT
    python -m bench.kafka.load xrange PORT STREAM SIZE COUNT

librdkafka does the work, with its defaults but for acks=all and, where speed is measured, the
settings that are written below. A message begins with its number and goes to the partitions in
turn, so a consumer sees whether each came once and, within its partition, in order; where
several producers write to a partition, in the order of each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

clock = time.perf_counter
NUMBER_BYTES: Final = 8
PATIENCE_S: Final = 60.0
AT_ONCE: Final = 10_000
_PRODUCING: Final = {"acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}


def filler(size: int) -> bytes:
    """Nothing that compresses: half of a message is random, as identifiers and numbers are."""
    return (os.urandom(size // 4).hex().encode() + b"x" * size)[: size - NUMBER_BYTES]


def spread(bootstrap: str, topic: str, size: int, count: int, partitions: int) -> dict[str, Any]:
    """Over partitions, idempotent: else what is sent again while leaders are still made known
    comes behind its successors."""
    return produce(bootstrap, topic, size, count, partitions, {"enable.idempotence": True})


def produce(
    bootstrap: str,
    topic: str,
    size: int,
    count: int,
    partitions: int = 1,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    failed: list[str] = []

    def told(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error.str())

    settings: Any = {
        **_PRODUCING,
        **more,
        "bootstrap.servers": bootstrap,
        "delivery.report.only.error": True,
    }
    producer = Producer({**settings, "on_delivery": told})
    rest = filler(size)
    send, poll = producer.produce, producer.poll
    began = clock()
    for number in range(count):
        value = number.to_bytes(NUMBER_BYTES, "big") + rest
        while True:
            try:
                send(topic, value, partition=number % partitions)
                break
            except BufferError:
                poll(0.05)
        if not number % AT_ONCE:
            poll(0)
    left = producer.flush(PATIENCE_S)
    return {"elapsed_s": clock() - began, "operations": count, "failed": failed[:1], "left": left}


def consume(
    bootstrap: str, topic: str, _size: int, count: int, partitions: int = 1, producers: int = 1
) -> dict[str, Any]:
    settings: Any = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.queue.backoff.ms": 5,  # else it sleeps a second whenever 100,000 are in its queue
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    consumer.poll(0)
    lanes = partitions * producers  # each has its own order
    nexts = list(range(lanes))
    seen = wrong = 0
    failed: list[str] = []
    began = clock()
    while seen < count and clock() - began < PATIENCE_S:
        for message in consumer.consume(min(AT_ONCE, count - seen), 1.0):
            value, error = message.value(), message.error()
            if error is not None or value is None:
                failed.append("no value" if error is None else error.str())
                continue
            number = int.from_bytes(value[:NUMBER_BYTES], "big")
            wrong += number != nexts[number % lanes]
            nexts[number % lanes] = number + lanes
            seen += 1
    elapsed = clock() - began
    consumer.close()
    if wrong:
        failed.append(f"{wrong} out of order")
    return {"elapsed_s": elapsed, "operations": seen, "failed": failed[:3], "left": count - seen}


def waiting(
    bootstrap: str, topic: str, size: int, count: int, partitions: int, producers: int
) -> dict[str, Any]:
    """Every partition has one message under way: the next is sent when it is acked.

    Each producer is a process of its own and has its share of the partitions.
    """
    context = multiprocessing.get_context("fork")
    together, told = context.Barrier(producers), context.SimpleQueue()

    def work(own: int) -> None:
        shares = range(own, partitions, producers)
        told.put(_wait_for_each(bootstrap, topic, size, count, partitions, shares, together.wait))

    processes = [context.Process(target=work, args=(own,)) for own in range(producers)]
    for process in processes:
        process.start()
    parts = [told.get() for _ in processes]
    for process in processes:
        process.join()
    return {
        "elapsed_s": max(part["ended"] for part in parts) - min(part["began"] for part in parts),
        "operations": count,
        "failed": [error for part in parts for error in part["failed"]][:1],
        "left": count - sum(part["acked"] for part in parts),
    }


def _wait_for_each(
    bootstrap: str,
    topic: str,
    size: int,
    count: int,
    partitions: int,
    own: range,
    together: Callable[[], Any],
) -> dict[str, Any]:
    """What one producer does. The clock is one for all processes."""
    failed: list[str] = []
    acked = 0
    rest = filler(size)
    settings: Any = {"acks": "all", "linger.ms": 0, "bootstrap.servers": bootstrap}
    producer = Producer(settings)

    def send(number: int) -> None:
        value = number.to_bytes(NUMBER_BYTES, "big") + rest
        then = partial(go_on, number + partitions)
        producer.produce(topic, value, partition=number % partitions, on_delivery=then)

    def go_on(following: int, error: Any, _message: Any) -> None:
        nonlocal acked
        if error is not None:
            failed.append(error.str())
        acked += 1
        if following < count:
            send(following)

    wanted = sum(len(range(first, count, partitions)) for first in own)
    producer.list_topics(topic, PATIENCE_S)  # connected, and knows where the partitions are
    together()
    began = clock()
    for first in own:
        send(first)
    while acked < wanted and not failed:
        producer.poll(1)
    return {"began": began, "ended": clock(), "acked": acked, "failed": failed[:1]}


def latency(bootstrap: str, topic: str, size: int, count: int, rate: float) -> dict[str, Any]:
    """Messages at a fixed rate, each timed from when it was due to its ack."""
    times: list[float] = []
    failed: list[str] = []

    def told(due: float, error: Any, _message: Any) -> None:
        times.append(clock() - due)
        if error is not None:
            failed.append(error.str())

    producer = Producer({"acks": "all", "linger.ms": 0, "bootstrap.servers": bootstrap})
    rest = filler(size)
    producer.produce(topic, (0).to_bytes(NUMBER_BYTES, "big") + rest)
    producer.flush(PATIENCE_S)
    began = clock()
    for number in range(1, count):
        due = began + number / rate
        while (left := due - clock()) > 0:
            producer.poll(left)
        producer.produce(
            topic,
            number.to_bytes(NUMBER_BYTES, "big") + rest,
            on_delivery=partial(told, due),
        )
    unanswered = producer.flush(PATIENCE_S)
    times.sort()
    return {
        "elapsed_s": clock() - began,
        "operations": count,
        "failed": failed[:1],
        "left": unanswered,
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[int(len(times) * 0.99)] * 1e6,
    }


def main(words: list[str]) -> None:
    kind, bootstrap, topic, size, count, *more = words
    from bench.kafka import streams
    from bench.kafka.batched import batched

    works: dict[str, Any] = {
        "produce": produce,
        "spread": spread,
        "batched": batched,
        "consume": consume,
        "waiting": waiting,
        "latency": latency,
        "xadd": streams.produce,
        "xrange": streams.consume,
    }
    print(json.dumps(works[kind](bootstrap, topic, int(size), int(count), *map(json.loads, more))))


if __name__ == "__main__":
    main(sys.argv[1:])
