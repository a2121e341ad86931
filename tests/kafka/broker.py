"""A real server that listens for Kafka clients, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.server.kafka.endpoint import KafkaEndpoint
from tests.server.running_server import RunningServer, settings


class Broker(RunningServer):
    @property
    def kafka_port(self) -> int:
        assert self._server is not None
        port = self._server.kafka.port
        assert port is not None
        return port

    @property
    def endpoint(self) -> KafkaEndpoint:
        endpoint = self.app.kafka.endpoint
        assert endpoint is not None
        return endpoint

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is sent meanwhile is met all at once: nothing of it is in the log by then."""
        begun, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            go_on.wait(20)

        self.loop.call_soon_threadsafe(hold)
        assert begun.wait(20)
        try:
            yield
        finally:
            go_on.set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.kafka_port}"


def free_port() -> int:
    """One that nobody listens on now, for a server that is to come back where it was."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running_broker(directory: Path, kafka_port: int = 0, **fields: Any) -> Iterator[Broker]:
    deadlines = {"drain_s": 2.0, **fields.pop("deadlines", {})}
    chosen = settings(kafka_port=kafka_port, deadlines=deadlines, **fields)
    broker = Broker(directory, chosen)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
