"""Every way into a topic and every way out of it, each as one function."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.ipc
from confluent_kafka import Consumer, Producer, TopicPartition

import headwater
from tests.kafka.broker import Broker
from tests.server.test_websocket import open_socket
from tests.server.watches import watching

Record = dict[str, Any]
"""data, and perhaps tag and meta."""
Seen = tuple[int, Any, str | None, Any]
"""seq, data, tag, meta."""


class Target:
    """One topic under the two names it has."""

    def __init__(self, broker: Broker, kafka: str, elsewhere: str) -> None:
        self.broker = broker
        self.kafka = kafka
        self.elsewhere = elsewhere

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.broker.port}"

    def client(self) -> headwater.Client:
        return headwater.Client(self.url)


# -- in: each writes one record and gives its seq


def over_http(target: Target, record: Record) -> int:
    with target.client() as client:
        return client.append(target.elsewhere, record).first_seq


def over_websocket(target: Target, record: Record) -> int:
    with open_socket(target.broker) as socket:
        socket.say("publish", topic=target.elsewhere, records=[record])
        return int(socket.until("ack")["first_seq"])


def over_kafka(target: Target, record: Record) -> int:
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": target.broker.bootstrap, "acks": "all"})
    producer.produce(
        target.kafka,
        json.dumps(record["data"], separators=(",", ":")).encode(),
        record.get("tag"),
        headers=list(record.get("meta", {}).items()),
        partition=0,
        on_delivery=delivered,
    )
    assert producer.flush(20) == 0
    return offsets[0] + 1


def embedded(target: Target, record: Record) -> int:
    database = target.broker.app.backend.ready_database

    async def write() -> int:
        return (await database.append(target.elsewhere, record)).first_seq

    loop = target.broker.loop
    return asyncio.run_coroutine_threadsafe(write(), loop).result(20)


WAYS_IN: Mapping[str, Callable[[Target, Record], int]] = {
    "http": over_http,
    "websocket": over_websocket,
    "kafka": over_kafka,
    "embedded": embedded,
}


# -- out: each reads that many records from the beginning


def by_diff(target: Target, count: int) -> list[Seen]:
    with target.client() as client:
        found = client.diff(target.elsewhere, 0, wait_ms=5_000).records
    return [(each.seq, each.data, each.tag, each.meta) for each in found][:count]


def by_sse(target: Target, count: int) -> list[Seen]:
    found: list[Seen] = []
    wishes = {target.elsewhere: {"from_seq": 0}}
    with watching(target.broker, wishes, include_tags=True) as events:
        while len(found) < count:
            for event in events.until("record"):
                if event.kind == "record":
                    found += map(_seen, event.data["records"])
    return found


def by_websocket(target: Target, count: int) -> list[Seen]:
    with open_socket(target.broker) as socket:
        socket.say("subscribe", topic=target.elsewhere, from_seq=0, include_tags=True)
        return [_seen(each) for each in socket.records(count)]


def _seen(record: Any) -> Seen:
    return record["$seq"], record["data"], record.get("$tag"), record.get("meta")


def by_kafka(target: Target, count: int) -> list[Seen]:
    found: list[Seen] = []
    for message in consumed(target, count):
        value, key = message.value(), message.key()
        headers = {name: content.decode() for name, content in message.headers() or []}
        data = None if value is None else json.loads(value)
        tag = None if key is None else key.decode()
        found.append((message.offset() + 1, data, tag, headers or None))
    return found


def consumed(target: Target, count: int, start: int = 0) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": target.broker.bootstrap,
            "group.id": "protocols",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(target.kafka, 0, start)])
    found: list[Any] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), 20)
            assert messages, f"{len(found)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message)
    finally:
        consumer.close()
    return found


def by_arrow(target: Target, count: int) -> list[Seen]:
    with target.client() as client:
        page = client.arrow(target.elsewhere, limit=count)
    rows = pyarrow.ipc.open_stream(page.stream).read_all().to_pylist()
    return [_row(each) for each in rows]


def by_spark(target: Target, count: int) -> list[Seen]:
    """The source as an executor runs it; no JVM is needed for that."""
    from tests.spark.direct_reader import read

    rows = read(None, url=target.url, topic=target.elsewhere)
    return [_row(each) for each in rows][:count]


def _row(row: Any) -> Seen:
    meta = row["meta"]
    return (
        row["seq"],
        json.loads(row["data"]),
        row["tag"],
        None if meta is None else json.loads(meta),
    )


WAYS_OUT: Mapping[str, Callable[[Target, int], list[Seen]]] = {
    "diff": by_diff,
    "sse": by_sse,
    "websocket": by_websocket,
    "kafka": by_kafka,
    "arrow": by_arrow,
    "spark": by_spark,
}
