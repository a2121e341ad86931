"""A Kafka client of a few lines: sends what it is told, whole or broken, and waits for answers."""

from __future__ import annotations

import socket
from typing import Any

from headwater.wire.kafka.apis import SUPPORTED, ApiKey
from headwater.wire.kafka.codec import request_frame, response_body_at
from tests.rig.kafka_client_codec import decode_response

PATIENCE_S = 20.0


class RawKafka:
    """`with RawKafka(port) as speaker: speaker.ask(ApiKey.METADATA, {})`."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), PATIENCE_S)
        self._number = 0

    def __enter__(self) -> RawKafka:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def patience(self, seconds: float) -> None:
        """Wait no longer than this for anything."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def finish(self) -> None:
        """Nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    def ask(
        self, api: ApiKey, values: dict[str, Any] | None = None, version: int | None = None
    ) -> dict[str, Any]:
        """Send a request and give the answer to it."""
        chosen = SUPPORTED[api].newest if version is None else version
        self._number += 1
        self.send(request_frame(api, chosen, self._number, "speaker", values or {}))
        return self.answer(api, chosen, self._number)

    def answer(self, api: ApiKey, version: int, number: int) -> dict[str, Any]:
        frame = self.frame()
        told, at = response_body_at(api, version, frame)
        assert told == number
        return decode_response(api, version, frame, at)

    def frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                raise ConnectionResetError("the server hung up")
            found += piece
        return found

    def is_hung_up(self) -> bool:
        """Wait until the server ends the connection. Anything it says before is a failure."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # -- what tests ask most often

    def make_topic(self, name: str, partitions: int = 1) -> str:
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        (told,) = self.ask(ApiKey.CREATE_TOPICS, {"topics": [row]})["topics"]
        assert told["error_code"] == 0, told
        return name

    def produce(
        self, topic: str, records: bytes, *, acks: int = -1, partition: int = 0
    ) -> dict[str, Any]:
        """The answer for the one partition that is written to."""
        rows = [{"index": partition, "records": records}]
        values = {"acks": acks, "topic_data": [{"name": topic, "partition_data": rows}]}
        (told,) = self.ask(ApiKey.PRODUCE, values)["responses"]
        (row,) = told["partition_responses"]
        return dict(row)

    def fetch(self, topic: str, offset: int = 0, partition: int = 0) -> dict[str, Any]:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
        topics = [{"topic": topic, "partitions": [row]}]
        (told,) = self.ask(ApiKey.FETCH, {"topics": topics})["responses"]
        (found,) = told["partitions"]
        return dict(found)

    def end_of(self, topic: str, partition: int = 0) -> int:
        """The offset the next record gets."""
        rows = [{"partition_index": partition, "timestamp": -1}]
        values = {"topics": [{"name": topic, "partitions": rows}]}
        (told,) = self.ask(ApiKey.LIST_OFFSETS, values)["topics"]
        (row,) = told["partitions"]
        assert row["error_code"] == 0, row
        return int(row["offset"])
