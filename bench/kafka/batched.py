"""Producers with the batches that Kafka's own producer makes when nobody sets anything.

`batch.size` 16,384 bytes, five requests in flight on a connection, acks=all: the defaults of the
Java producer, given to librdkafka, whose own batches are sixty times as long. `linger.ms` is 0
there, and 5 since Kafka 4.0. The Java producer is also idempotent since Kafka 3.0; librdkafka then
sends the next batch of a partition only when the one before is acked, whatever is set
(confluentinc/librdkafka#4989), so that is a setting of its own here.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Producer

from bench.kafka.load import AT_ONCE, NUMBER_BYTES, PATIENCE_S, clock, filler

BATCH_BYTES: Final = 16_384
IN_FLIGHT: Final = 5
SETTINGS: Final = {
    "acks": "all",
    "batch.size": BATCH_BYTES,
    "max.in.flight.requests.per.connection": IN_FLIGHT,
}


def batched(
    bootstrap: str,
    topic: str,
    size: int,
    count: int,
    partitions: int,
    producers: int,
    linger_ms: int,
    idempotent: int = 0,
) -> dict[str, Any]:
    """As fast as each can. Every producer is a process of its own and writes to all partitions.

    Of `n` producers each sends every n-th number, to the partitions in turn.
    """
    context = multiprocessing.get_context("fork")
    together, told = context.Barrier(producers), context.SimpleQueue()
    settings = {**SETTINGS, "linger.ms": linger_ms, "enable.idempotence": bool(idempotent)}
    settings["bootstrap.servers"] = bootstrap

    def work(own: int) -> None:
        numbers = range(own, count, producers)
        told.put(_send(settings, topic, size, numbers, partitions, together.wait))

    processes = [context.Process(target=work, args=(own,)) for own in range(producers)]
    for process in processes:
        process.start()
    parts = [told.get() for _ in processes]
    for process in processes:
        process.join()
    return {
        "elapsed_s": max(part["ended"] for part in parts) - min(part["began"] for part in parts),
        "operations": count - producers,
        "failed": [error for part in parts for error in part["failed"]][:1],
        "left": sum(part["left"] for part in parts),
    }


def _send(
    settings: Any,
    topic: str,
    size: int,
    numbers: range,
    partitions: int,
    together: Callable[[], Any],
) -> dict[str, Any]:
    """What one producer does. The clock is one for all processes."""
    failed: list[str] = []

    def told(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer({**settings, "delivery.report.only.error": True, "on_delivery": told})
    rest = filler(size)
    send, poll = producer.produce, producer.poll
    # The first one is not timed: before it the producer finds out where the partitions are, and if
    # it is idempotent gets its number, which librdkafka asks for every half second.
    send(topic, numbers[0].to_bytes(NUMBER_BYTES, "big") + rest, partition=0)
    producer.flush(PATIENCE_S)
    together()
    began = clock()
    for sent, number in enumerate(numbers[1:], 1):
        value = number.to_bytes(NUMBER_BYTES, "big") + rest
        while True:
            try:
                send(topic, value, partition=sent % partitions)
                break
            except BufferError:
                poll(0.05)
        if not sent % AT_ONCE:
            poll(0)
    left = producer.flush(PATIENCE_S)
    return {"began": began, "ended": clock(), "left": left, "failed": failed[:1]}
