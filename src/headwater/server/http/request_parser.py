"""The request that a connection is receiving, as far as it has come, from the callbacks of
httptools."""

from __future__ import annotations

from typing import Protocol

import httptools

from headwater.config.server import LimitSettings
from headwater.core.errors import InvalidRequestError
from headwater.server.http.request_head import Head, parsed_head
from headwater.server.http.request_size import RequestSize
from headwater.wire.http_errors import HttpError


class RequestReceiver(Protocol):
    def begin_request(self) -> None:
        """Its first bytes have come."""

    def expect_body(self, *, expects_continue: bool) -> None:
        """Its head has come."""

    def take_request(self) -> None:
        """All of it has come."""


class Incoming:
    """Fed by the connection, and calls it when a request begins, has its head, and is whole."""

    def __init__(self, connection: RequestReceiver, limits: LimitSettings) -> None:
        self._connection = connection
        self._header_count_max = limits.header_count
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._body: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.target = b""
        self.size = RequestSize(limits)
        self.messages = 0
        """How many were begun on this connection."""

    @property
    def method(self) -> bytes:
        return self._parser.get_method()

    def feed(self, data: bytes) -> None:
        """Raises what httptools raises."""
        self._parser.feed_data(data)

    def head(self) -> Head:
        return parsed_head(self._parser, self.target, self.headers)

    def take_body(self) -> bytes:
        body, self._body = self._body, []
        return body[0] if len(body) == 1 else b"".join(body)

    def without_upgrade(self) -> bytes:
        """The head again, for a parser that has not stopped at it."""
        lines = [b"%b %b HTTP/1.1" % (self.method, self.target)]
        lines += [b"%b: %b" % item for item in self.headers.items() if item[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    # -- httptools

    def on_message_begin(self) -> None:
        self.headers = {}
        self.target = b""
        self.size.begin()
        self._body = []
        self.messages += 1
        self._in_head = True
        self._connection.begin_request()

    def on_url(self, url: bytes) -> None:
        self.target += url
        self.size.add_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self.size.add_header(len(name) + len(value) + 4)
        if not self._in_head:
            return  # a trailer: counted, and not used here
        name = name.lower()
        if name in self.headers:
            value = self.headers[name] + b", " + value
        self.headers[name] = value
        if len(self.headers) > self._header_count_max:
            raise HttpError("headers_too_large", "too many headers")

    def on_headers_complete(self) -> None:
        self._in_head = False
        version = self._parser.get_http_version()
        modern = version == "1.1"
        if not modern and version != "1.0":
            raise InvalidRequestError("only HTTP/1.1 and HTTP/1.0 are spoken here")
        host = self.headers.get(b"host")
        if b"," in (host or b"") or (modern and host is None):
            raise InvalidRequestError("a request has one Host header")
        length = self.headers.get(b"content-length")
        if length is not None:
            self.size.expect_body(int(length))
        awaits_continue = modern and self.headers.get(b"expect", b"").lower() == b"100-continue"
        self._connection.expect_body(expects_continue=awaits_continue)

    def on_body(self, body: bytes) -> None:
        self.size.add_body(len(body))
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():  # otherwise feed_data says so next
            self._connection.take_request()
