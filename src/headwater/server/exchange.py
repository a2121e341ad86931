"""One request and its answer. Answers leave a connection in the order of the requests."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.wire.http_errors import HttpError, error_body, error_headers, status_of
from headwater.wire.http_response import answer_head, header_lines, json_answer

if TYPE_CHECKING:
    from headwater.server.connection import HttpConnection
    from headwater.server.keys import ApiKey

GZIP_BYTES_MIN: Final = 1_400
"""Shorter answers fit a packet anyway."""


class Exchange:
    __slots__ = (
        "_ready",
        "body",
        "connection",
        "headers",
        "keep_alive",
        "key",
        "method",
        "on_gone",
        "parameters",
        "path",
        "query_bytes",
        "request_id",
        "started_us",
        "streaming",
    )

    def __init__(self, connection: HttpConnection, method: bytes, target: bytes) -> None:
        self.connection = connection
        self.method = method
        path, _, query = target.partition(b"?")
        self.path = path
        self.query_bytes = query
        self.headers: dict[bytes, bytes] = connection.headers
        self.body: bytes | bytearray = b""
        self.keep_alive = True
        self.key: ApiKey | None = None
        self.parameters: tuple[str, ...] = ()
        self.request_id = ""
        self.started_us = 0
        self.streaming = False
        self.on_gone: Callable[[], None] | None = None
        """Told when the connection ended before the answer did."""
        self._ready: bytes | None = None

    # -- what was asked

    def query(self) -> dict[str, str]:
        """Query parameters; the last one of a name wins."""
        if not self.query_bytes:
            return {}
        try:
            text = self.query_bytes.decode("ascii")
            return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50))
        except (UnicodeDecodeError, ValueError) as error:
            raise InvalidRequestError("the query cannot be read") from error

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def elapsed_ms(self) -> float:
        return (self.connection.app.clock.monotonic_us() - self.started_us) / 1_000

    # -- the answer

    def answer_json(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        extra = header_lines(headers) if headers else b""
        if len(body) >= GZIP_BYTES_MIN and b"gzip" in self.headers.get(b"accept-encoding", b""):
            body = gzip.compress(body, 1)
            extra += b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
        self._ready = json_answer(status, body, self.keep_alive, extra + self._id_line())
        self.connection.answer_ready()

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Any other whole answer. A HEAD request gets its headers only."""
        all_headers = {**headers, "content-length": str(len(body))}
        if self.request_id:
            all_headers["x-request-id"] = self.request_id
        head = answer_head(status, all_headers, self.keep_alive)
        self._ready = head if self.method == b"HEAD" else head + body
        self.connection.answer_ready()

    def fail(self, error: HeadwaterError) -> None:
        if isinstance(error, HttpError) and error.status in (408, 413, 431):
            self.keep_alive = False  # the rest of the request is not worth reading
        self.answer_json(
            status_of(error), error_body(error, self.elapsed_ms()), error_headers(error)
        )

    def begin_stream(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer without end. What follows goes through `connection.send`."""
        self.streaming = True
        self.keep_alive = False
        self._ready = answer_head(status, headers, keep_alive=False)
        self.connection.answer_ready()

    def take(self) -> bytes | None:
        """The answer when it is there; for the connection."""
        return self._ready

    def _id_line(self) -> bytes:
        return f"x-request-id: {self.request_id}\r\n".encode() if self.request_id else b""
