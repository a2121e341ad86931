"""HTTP/2 over a plain socket by the h2 library: what a test wants is sent when it wants."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)

from tests.server.raw_http import PATIENCE_S, Answer

UPLOAD_BYTES = 16_384


class RawHttp2:
    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection((host, port), timeout=PATIENCE_S)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
        self.h2.initiate_connection()
        self.takes = True
        """Tells the server that what came was taken."""
        self.answers: dict[int, Answer] = {}
        self.resets: dict[int, int] = {}
        self.ended: set[int] = set()
        self.goodbye: ConnectionTerminated | None = None
        self.flush()

    def __enter__(self) -> RawHttp2:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # -- asking

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def begin(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        ends: bool = False,
    ) -> int:
        """The head of a request, and maybe no more of it."""
        stream = self.h2.get_next_available_stream_id()
        pseudo = {":method": method, ":path": path, ":scheme": "http", ":authority": "test"}
        fields = [*pseudo.items(), *(headers or {}).items()]
        self.h2.send_headers(stream, fields, end_stream=ends)
        self.flush()
        return stream

    def start(self, method: str, path: str, body: Any = None) -> int:
        """A whole request; its answer is waited for later."""
        if body is None:
            return self.begin(method, path, ends=True)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        stream = self.begin(method, path, {"content-type": "application/json"})
        while data:
            room = min(self.h2.local_flow_control_window(stream), UPLOAD_BYTES)
            if room:
                self.h2.send_data(stream, data[:room])
                data = data[room:]
                self.flush()
            else:
                self.hear()
        self.h2.end_stream(stream)
        self.flush()
        return stream

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self.answer(self.start(method, path, body))

    # -- hearing

    def hear(self) -> bool:
        """Receive something. False at the end of the connection."""
        data = self.socket.recv(65_536)
        for event in self.h2.receive_data(data):
            self._take(event)
        self.flush()
        return bool(data)

    def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            if not self.hear():
                raise ConnectionError("the connection ended before that")

    def answer(self, stream: int) -> Answer:
        self.until(lambda: stream in self.ended)
        return self.answers[stream]

    def _take(self, event: Event) -> None:
        stream = getattr(event, "stream_id", 0) or 0
        if isinstance(event, ResponseReceived):
            headers = {str(name): str(value) for name, value in event.headers or ()}
            self.answers[stream] = Answer(int(headers.pop(":status")), headers, b"")
        elif isinstance(event, DataReceived):
            known = self.answers[stream]
            self.answers[stream] = Answer(
                known.status, known.headers, known.body + (event.data or b"")
            )
            if self.takes:
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
        elif isinstance(event, StreamEnded):
            self.ended.add(stream)
        elif isinstance(event, StreamReset):
            self.resets[stream] = int(event.error_code or 0)
        elif isinstance(event, ConnectionTerminated):
            self.goodbye = event
