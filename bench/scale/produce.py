"""The scene of producers: librdkafka with acks=all over the partitions of a topic.

Imported only where confluent_kafka is. Beside Apache Kafka where `KAFKA_HOME` names one, as it is
and with a flush of every batch. Batches are as Kafka's own producer makes them
(`bench.kafka.batched`). What a side holds is read back after each turn, every message in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.kafka.brokers import ApacheKafka, HeadwaterBroker, missing
from bench.kafka.sides import Side as KafkaSide
from bench.measure_kafka import made_topic
from bench.scale.matrix import KAFKA, PRODUCE, Cell, Matrix
from bench.scale.scene import Scene, Side, started
from bench.server.load import Load

MESSAGE_BYTES: Final = 200
LINGER_MS: Final = 5
FIRST_COUNT: Final = 20_000
COUNT_MAX: Final = 3_000_000


def missing_peers(wanted: Sequence[str]) -> Iterator[str]:
    why = missing()
    if KAFKA in wanted and why is not None:
        yield why


def peers(wanted: Sequence[str], _kinds: Collection[str]) -> list[str]:
    """As it is, and flushing."""
    return [KAFKA, f"{KAFKA}, flushing"] if KAFKA in wanted and missing() is None else []


@contextmanager
def scene(matrix: Matrix, cells: Sequence[Cell], directory: Path) -> Iterator[Scene]:
    sides = []
    if peers(matrix.peers, [PRODUCE]):
        kafka = ApacheKafka(directory / "kafka")
        flushing = ApacheKafka(directory / "kafka-flushing", flushes=True)
        sides += [
            Side(kafka.name, kafka, "no fsync (Kafka's default)"),
            Side(flushing.name, flushing),
        ]
    sides += [
        Side(variant.name, HeadwaterBroker(directory / f"broker-{number}", variant.options))
        for number, variant in enumerate(matrix.variants)
    ]
    with started(sides, cells[0].cores):
        yield Scene(
            sides,
            lambda cell: {side.name: Producers(side, cell) for side in sides},
            lambda _: None,  # each turn has read back what it wrote
        )


class Producers:
    """Writes so many messages that it takes about so long, by the rate of the turn before."""

    def __init__(self, side: Side, cell: Cell) -> None:
        self._side = KafkaSide(side.name, side.server, side.durability)
        self._cell = cell
        self._rate = 0.0

    def __call__(self, seconds: float) -> Load:
        if not self._rate:
            self._turn(FIRST_COUNT)
        return self._turn(min(max(int(self._rate * seconds), FIRST_COUNT), COUNT_MAX))

    def _turn(self, count: int) -> Load:
        partitions, producers = self._cell.topics, self._cell.connections
        topic = made_topic(self._side, partitions)
        load = self._side.run(
            "batched", topic, MESSAGE_BYTES, count, partitions, producers, LINGER_MS
        )
        self._side.run("consume", topic, MESSAGE_BYTES, count, partitions, producers)
        self._rate = load.rate
        return load
