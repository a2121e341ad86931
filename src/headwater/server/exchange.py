"""One request and its answer. Answers leave a connection in the order of the requests."""

from __future__ import annotations

import gzip
import re
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
_GZIP: Final = re.compile(rb"\s*(gzip|\*)\s*(;\s*q=(1(\.0*)?|0\.0*[1-9]\d*))?\s*")


class Exchange:
    __slots__ = (
        "_begun",
        "_ready",
        "body",
        "connection",
        "headers",
        "is_slow",
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
        "waits_for_news",
    )

    def __init__(self, connection: HttpConnection, method: bytes, target: bytes) -> None:
        self.connection = connection
        self.method = method
        path, _, query = target.partition(b"?")
        self.path = path if path.startswith(b"/") else _path_of(path)
        self.query_bytes = query
        self.headers: dict[bytes, bytes] = connection.headers
        self.body: bytes | bytearray = b""
        self.keep_alive = True
        self.key: ApiKey | None = None
        self.parameters: tuple[str, ...] = ()
        self.request_id = ""
        self.started_us = 0
        self.streaming = False
        self.is_slow = False
        """Waits for more than the log: those behind it on the connection begin after it."""
        self.waits_for_news = False
        """Is answered when something happens, not when something is done."""
        self.on_gone: Callable[[], None] | None = None
        """Told when the connection ended before the answer did."""
        self._ready: bytes | None = None
        self._begun = False

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
        """A header as text: UTF-8 if it can be, since clients send what they type."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.decode("latin-1")

    def elapsed_ms(self) -> float:
        return (self.connection.app.clock.monotonic_us() - self.started_us) / 1_000

    # -- the answer

    def answer_json(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        extra = header_lines(headers) if headers else b""
        if len(body) >= GZIP_BYTES_MIN and self._takes_gzip():
            body = gzip.compress(body, 1)
            extra += b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
        answer = json_answer(status, body, self.keep_alive, extra + self._id_line())
        self._ready = answer[: len(answer) - len(body)] if self.method == b"HEAD" else answer
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
        self.streaming = self.waits_for_news = True
        self.keep_alive = False
        self._ready = answer_head(status, headers, keep_alive=False)
        self.connection.answer_ready()

    def hand_over(self) -> None:
        """Something else speaks on this connection from now on."""
        self.streaming = self._begun = True
        self._ready = b""

    def take(self) -> bytes | None:
        """The answer when it is there; for the connection. A stream begins once."""
        if self._begun:
            return b""
        self._begun = self.streaming
        return self._ready

    @property
    def is_answered(self) -> bool:
        return self._ready is not None

    def _takes_gzip(self) -> bool:
        offers = self.headers.get(b"accept-encoding", b"").lower().split(b",")
        return any(_GZIP.fullmatch(offer) is not None for offer in offers)

    def _id_line(self) -> bytes:
        return f"x-request-id: {self.request_id}\r\n".encode() if self.request_id else b""


def _path_of(target: bytes) -> bytes:
    """The path in `http://host/path`, which proxies send."""
    _, found, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if found else target
