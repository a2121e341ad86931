"""A broker that stores nothing: how fast could the client and the machine be, at the most?

    python -m bench.kafka.null_broker DIRECTORY

It speaks just enough Kafka for a producer: says which versions it knows, that every topic is here
with as many partitions as were asked for, and acks every Produce when its last byte has come. Of a
Produce it looks at the start only, where topic and partition stand; the records are received into
memory that the next ones overwrite. What a producer does against it is a limit for every broker.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from bench.server.processes import ServerProcess
from headwater.core.units import KIB, MIB
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.codec import decode_request, read_request_header, response_frame

RECEIVED_AT_ONCE: Final = 1 * MIB
START_BYTES: Final = 1 * KIB
"""Of a Produce these are looked at: more than names of client and topic need."""
PRODUCE_VERSION: Final = 7
VERSIONS: Final = {
    ApiKey.PRODUCE: PRODUCE_VERSION,
    ApiKey.FETCH: 11,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 4,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.INIT_PRODUCER_ID: 1,
}
"""The newest of each that is told. Those of Fetch and ListOffsets are what librdkafka looks for
before it believes that a broker takes today's record batches."""
_SIZE: Final = struct.Struct(">i")
_START: Final = struct.Struct(">ihhih")
_BEFORE_THE_NAME: Final = struct.Struct(">hhiih")
"""Without a transactional id: its length, acks, timeout, number of topics, length of the name."""
_PARTITION: Final = struct.Struct(">ii")
_ACK: Final = struct.Struct(">iihqqqi")
_NAMED: Final = struct.Struct(">iiih")


class _Broker:
    """What is known of topics, for all connections."""

    def __init__(self) -> None:
        self.port = 0
        self.partitions: dict[str, int] = {}
        self._producers = 0
        self._answers: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.CREATE_TOPICS: self._create,
            ApiKey.INIT_PRODUCER_ID: self._new_producer,
        }

    def answer(self, frame: memoryview) -> bytes:
        header = read_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        if version > VERSIONS[api]:  # asked before it was told: in the oldest words there are
            values, version = {"error_code": 35, "api_keys": []}, 0
        else:
            values = self._answers[api](decode_request(api, version, frame, header.body_at))
        return b"".join(response_frame(api, version, header.correlation_id, values))

    def _versions(self, _asked: dict[str, Any]) -> dict[str, Any]:
        keys = [{"api_key": a, "min_version": 0, "max_version": v} for a, v in VERSIONS.items()]
        return {"api_keys": keys}

    def _metadata(self, asked: dict[str, Any]) -> dict[str, Any]:
        names = [each["name"] for each in asked["topics"] or ()]
        return {
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}],
            "controller_id": 1,
            "topics": [{"name": name, "partitions": self._partitions(name)} for name in names],
        }

    def _partitions(self, name: str) -> list[dict[str, Any]]:
        return [
            {"partition_index": at, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
            for at in range(self.partitions.get(name, 1))
        ]

    def _create(self, asked: dict[str, Any]) -> dict[str, Any]:
        for topic in asked["topics"]:
            self.partitions[topic["name"]] = topic["num_partitions"]
        return {"topics": [{"name": topic["name"]} for topic in asked["topics"]]}

    def _new_producer(self, _asked: dict[str, Any]) -> dict[str, Any]:
        self._producers += 1
        return {"producer_id": self._producers, "producer_epoch": 0}


def ack(start: bytes | memoryview) -> bytes:
    """The answer to the Produce that begins like this. librdkafka names one partition in each."""
    _, _, version, number, client_bytes = _START.unpack_from(start)
    at = _START.size + max(client_bytes, 0)
    transactional, _, _, topics, name_bytes = _BEFORE_THE_NAME.unpack_from(start, at)
    at += _BEFORE_THE_NAME.size
    name = bytes(start[at : at + name_bytes])
    partitions, partition = _PARTITION.unpack_from(start, at + name_bytes)
    if (version, transactional, topics, partitions) != (PRODUCE_VERSION, -1, 1, 1):
        raise ValueError("not what librdkafka sends")
    size = _NAMED.size - _SIZE.size + len(name) + _ACK.size
    return b"".join(
        (
            _NAMED.pack(size, number, 1, name_bytes),
            name,
            _ACK.pack(1, partition, 0, 0, -1, 0, 0),
        )
    )


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._memory = memoryview(bytearray(RECEIVED_AT_ONCE))
        self._kept = 0
        """Bytes at the start of the memory that are of a request whose start is not all there."""
        self._to_pass = 0
        self._ack = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, _size: int) -> memoryview:
        return self._memory[self._kept :]

    def buffer_updated(self, received: int) -> None:
        end, at = self._kept + received, 0
        answers: list[bytes] = []
        while at < end:
            if self._to_pass:
                passed = min(self._to_pass, end - at)
                at += passed
                self._to_pass -= passed
                if not self._to_pass:
                    answers.append(self._ack)
                continue
            if not self._begin(self._memory[at:end], answers):
                break
        self._kept = end - at
        if at and self._kept:
            self._memory[: self._kept] = bytes(self._memory[at:end])
        if answers:
            self._transport.write(b"".join(answers))

    def _begin(self, there: memoryview, answers: list[bytes]) -> bool:
        """Whether the request that begins here can be dealt with; its bytes are passed then."""
        if len(there) < _START.size:
            return False
        size, kind, *_ = _START.unpack_from(there)
        whole = _SIZE.size + size
        if kind == ApiKey.PRODUCE:
            if len(there) < min(whole, START_BYTES):
                return False
            self._ack = ack(there[:START_BYTES])
        elif len(there) < whole:
            return False
        else:
            self._ack = self._broker.answer(there[_SIZE.size : whole])
        self._to_pass = whole
        return True


async def serve(directory: Path) -> None:
    broker = _Broker()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(broker), "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    being_written = directory / "port.new"
    being_written.write_text(str(broker.port), encoding="utf-8")
    being_written.rename(directory / "port")
    async with server:
        await server.serve_forever()


class NullBroker(ServerProcess):
    """This file as a process of its own."""

    name = "a broker that stores nothing"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.kafka.null_broker", str(self.directory)]

    def is_ready(self) -> bool:
        file = self.directory / "port"
        if not file.exists():
            return False
        self.port = int(file.read_text(encoding="utf-8"))
        return True


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
