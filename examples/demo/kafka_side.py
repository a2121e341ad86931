"""The Kafka half of the stream: librdkafka, as any program has it, and nothing of ours."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import shop
from stage import BrokenPromiseError, Figures, NotHereError, Stage, same

import headwater

PARTITIONS = 4
GROUP = "warehouse"
PATIENCE_S = 60

Moved = Callable[[int], None]


def is_there(stage: Stage) -> bool:
    return bool(stage.server.ports["kafka"])


def run(stage: Stage, produced: Moved, consumed: Moved, ready: threading.Event) -> Figures:
    """Sets `ready` when the group has settled, and in any case."""
    try:
        return _stream(stage, produced, consumed, ready)
    finally:
        ready.set()


def _stream(stage: Stage, produced: Moved, consumed: Moved, ready: threading.Event) -> Figures:
    try:
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient, NewTopic
    except ImportError as error:
        raise NotHereError('the Kafka client is missing: pip install "headwater[kafka]"') from error
    # Quiet: after Ctrl-C the server is gone before its clients, which they need not tell.
    where = {"bootstrap.servers": f"127.0.0.1:{stage.server.ports['kafka']}", "log_level": 0}
    admin = AdminClient(where)
    for made in admin.create_topics([NewTopic(shop.SENSORS, PARTITIONS, 1)]).values():
        made.result(PATIENCE_S)

    reading = {**where, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumers = [Consumer(reading), Consumer(reading)]
    assigned: set[int] = set()
    for number, consumer in enumerate(consumers):
        consumer.subscribe(
            [shop.SENSORS], on_assign=lambda _, parts, number=number: _note(assigned, number, parts)
        )
    producer = Producer({**where, "acks": "all", "linger.ms": 5, "enable.idempotence": True})
    failed: list[str] = []

    def answered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))
        produced(1)

    last: dict[str, int] = defaultdict(int)
    share = [0, 0]
    started = time.monotonic()
    try:
        while len(assigned) < len(consumers):  # so that both have a share from the beginning
            if time.monotonic() > started + PATIENCE_S:
                raise BrokenPromiseError("Kafka: the group has not settled")
            _read(consumers, share, last, consumed, 0.05)
        ready.set()
        started = time.monotonic()
        for at, (sensor, reading_) in enumerate(shop.readings(stage.events)):
            producer.produce(
                shop.SENSORS, json.dumps(reading_).encode(), key=sensor, on_delivery=answered
            )
            if not at % 500:
                producer.poll(0)
                _read(consumers, share, last, consumed, 0)
        left = producer.flush(PATIENCE_S)
        if failed or left:
            raise BrokenPromiseError(f"Kafka: {len(failed) + left} readings failed: {failed[:1]}")
        elapsed_s = time.monotonic() - started
        while sum(share) < stage.events:
            if time.monotonic() > started + PATIENCE_S:
                raise BrokenPromiseError(f"Kafka: {sum(share)} of {stage.events} readings came")
            _read(consumers, share, last, consumed, 0.1)
    finally:
        for consumer in consumers:
            consumer.close()
    same("readings over HTTP", stage.events, over_http(stage))
    return {
        "Kafka": f"{stage.events:,} readings at the same time, acks=all, {PARTITIONS} partitions, "
        f"{stage.events / elapsed_s:,.0f} a second",
        "Kafka group": f"two consumers shared them, {share[0]:,} and {share[1]:,}, "
        "each sensor in order",
        "one log": f"the same {stage.events:,} readings were read again over HTTP",
    }


def _note(assigned: set[int], number: int, partitions: list[Any]) -> None:
    """Who has a share at the moment; a member that got nothing yet will be asked again."""
    if partitions:
        assigned.add(number)
    else:
        assigned.discard(number)


def _read(
    consumers: list[Any], share: list[int], last: dict[str, int], consumed: Moved, wait_s: float
) -> None:
    for number, consumer in enumerate(consumers):
        for message in consumer.consume(2_000, wait_s):
            if message.error():
                raise BrokenPromiseError(f"Kafka: {message.error()}")
            reading = json.loads(message.value())
            sensor = reading["sensor"]
            if reading["number"] != last[sensor] + 1:
                raise BrokenPromiseError(f"Kafka: {sensor}: {reading} came after {last[sensor]}")
            last[sensor] += 1
            share[number] += 1
            consumed(1)


def over_http(stage: Stage) -> int:
    """How many readings the other door shows, all partitions together."""
    with headwater.Client(stage.url) as client:
        return sum(
            client.state(f"kafka:{shop.SENSORS}:{partition}").count
            for partition in range(PARTITIONS)
        )
