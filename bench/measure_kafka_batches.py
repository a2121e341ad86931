"""Producers with the batches of Kafka's own producer, beside Apache Kafka. `make bench-kafka`.

A flush of every batch costs what the batches make of it. librdkafka's own are as long as it can
have them; those of the Java producer end at 16 KB unless somebody says otherwise, and a broker that
flushes every batch does so for each of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.kafka.batched import BATCH_BYTES, IN_FLIGHT
from bench.kafka.sides import Side, sides
from bench.measure_kafka import LIBRARY, ROUNDS, SIZES, TARGETS, compared, made_topic, row_of
from bench.measure_server import note
from bench.registry import KAFKA, Row, Run, benchmark
from bench.server.load import Load


class Shape(NamedTuple):
    partitions: int
    producers: int
    linger_ms: int
    idempotent: int = 0
    """With librdkafka also: one batch of a partition under way at a time."""

    def __str__(self) -> str:
        kind = ", idempotent" if self.idempotent else ""
        return f" over {self.partitions} by {self.producers} with linger {self.linger_ms}{kind}"


SHAPES = (
    Shape(1, 1, 0),
    Shape(1, 1, 5),
    Shape(6, 1, 0),
    Shape(6, 1, 5),
    Shape(1, 4, 0),
    Shape(6, 4, 0),
    Shape(6, 4, 5),
    Shape(1, 1, 0, idempotent=1),
    Shape(6, 1, 0, idempotent=1),
)


@benchmark(
    "kafka-batches",
    "How many messages a second with acks=all, in batches of the size Kafka's producer makes?",
    KAFKA,
)
def in_default_batches(run: Run) -> list[Row]:
    note(
        run,
        f"{LIBRARY} with the defaults of Kafka's own producer: batch.size={BATCH_BYTES}, "
        f"max.in.flight.requests.per.connection={IN_FLIGHT}; "
        "over: partitions, by: producers, each a process of its own, linger: linger.ms",
    )
    count, rows = run.size(300_000, 2_000), []
    with sides(run, limit=True) as contenders:
        kafkas = [side for side in contenders if side.produce == "produce"]
        for shape in SHAPES:
            rows += _shape(run, kafkas, shape, count)
    return rows


def _shape(run: Run, contenders: Sequence[Side], shape: Shape, count: int) -> list[Row]:
    """Each in its turn writes to a new topic, and it is all there, once and in order.

    The first round does not count: Java has not compiled yet what this shape needs.
    """
    size, written = SIZES[0], {side.name: list[Load]() for side in contenders}
    for _ in range(run.size(1 + ROUNDS, 1)):
        for side in contenders:
            topic = made_topic(side, shape.partitions)
            written[side.name].append(side.run("batched", topic, size, count, *shape))
            if side.stores:
                side.run("consume", topic, size, count, shape.partitions, shape.producers)
    made = [
        row_of(side.name, written[side.name][-ROUNDS:], side.durability, size, str(shape))
        for side in contenders
    ]
    return compared(made, TARGETS)
