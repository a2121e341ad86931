"""One HTTP/1.1 connection: our own thin class over httptools.

No framework and no task per request: a request is parsed, handed to its handler, and its answer
is written when it is there. Answers keep the order of the requests. Deadlines run from when
something began, so a byte now and then does not extend them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import httptools

from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.server.exchange import Exchange
from headwater.wire.http_errors import HttpError
from headwater.wire.http_response import CONTINUE

if TYPE_CHECKING:
    from headwater.server.app import App

WRITE_BUFFER_BYTES_MAX: Final = 1024 * 1024


class HttpConnection(asyncio.Protocol):
    def __init__(self, app: App) -> None:
        self.app = app
        self.headers: dict[bytes, bytes] = {}
        self.peer_is_gone = False
        self.paused = False
        self.upgraded: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._header_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._pending: deque[Exchange] = deque()
        self._refusal: HttpError | None = None
        self._reading = True
        self._closing = False
        self._in_request = False
        self.deadline_us = 0

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        if not self.app.add_connection(self):
            self._transport.abort()
            return
        self._await_request(first=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer_is_gone = True
        self.app.remove_connection(self)
        if self.upgraded is not None:
            self.upgraded.connection_lost(exc)
        for exchange in self._pending:
            if exchange.on_gone is not None:
                exchange.on_gone()
        self._pending.clear()

    def data_received(self, data: bytes) -> None:
        if self.upgraded is not None:
            self.upgraded.data_received(data)
            return
        if self._closing:
            return
        if not self._in_request:
            self._in_request = True
            self.deadline_us = self.app.now_us() + self.app.header_deadline_us
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, HeadwaterError) else None)
        except httptools.HttpParserError as error:
            self._refuse(InvalidRequestError(f"not a request that can be read: {error}"))

    def eof_received(self) -> bool:
        """The peer will send no more; what it asked for is still answered."""
        if self.upgraded is not None:
            return False
        self._closing = True
        return bool(self._pending)

    def pause_writing(self) -> None:
        self.paused = True
        self._set_reading()
        if self._pending and self._pending[0].on_gone is not None:
            self.app.stream_paused(self)

    def resume_writing(self) -> None:
        self.paused = False
        self._set_reading()
        self.app.stream_resumed(self)

    # -- httptools

    def on_message_begin(self) -> None:
        self.headers = {}
        self._target = b""
        self._header_bytes = 0
        self._body = []
        self._body_bytes = 0
        self._refusal = None

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + 4)
        name = name.lower()
        if name in self.headers:
            value = self.headers[name] + b", " + value
        self.headers[name] = value
        if len(self.headers) > self.app.settings.limits.header_count:
            raise HttpError("headers_too_large", "too many headers")

    def on_headers_complete(self) -> None:
        length = self.headers.get(b"content-length")
        if length is not None and int(length) > self.app.settings.limits.body_bytes:
            raise self._too_large()
        self.deadline_us = self.app.now_us() + self.app.body_deadline_us
        if self.headers.get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self.app.settings.limits.body_bytes:
            raise self._too_large()
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # feed_data says so next
        body = self._body
        exchange = self._new_exchange()
        exchange.body = body[0] if len(body) == 1 else b"".join(body)
        self._in_request = False
        self.app.handle(exchange)
        self._await_request()

    # -- answers

    def answer_ready(self) -> None:
        """An exchange has its answer: send all that are next in order."""
        pending = self._pending
        out: list[bytes] = []
        while pending:
            exchange = pending[0]
            answer = exchange.take()
            if answer is None:
                break
            out.append(answer)
            if exchange.streaming:
                break
            pending.popleft()
            if not exchange.keep_alive:
                self._closing = True
                pending.clear()
        if out and not self.peer_is_gone:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
            if self._closing and not pending:
                self.transport.close()
                return
        if not self._reading:
            self._set_reading()
        if not pending and not self._in_request:
            self._await_request()

    def send(self, data: bytes) -> None:
        """More of a stream."""
        if not self.peer_is_gone:
            self.transport.write(data)

    def close(self) -> None:
        if not self.peer_is_gone:
            self.transport.close()

    # -- time

    def check_deadline(self, now_us: int) -> None:
        """Called every so often by the app; a connection that owes us bytes for too long goes."""
        if now_us < self.deadline_us or self.upgraded is not None or self._pending:
            return
        if self._in_request:
            self._refuse(HttpError("request_timeout", "the request did not arrive in time"))
        else:
            self.close()

    def drain(self) -> None:
        """No more requests; what is under way is finished."""
        self._closing = True
        if not self._pending and self.upgraded is None:
            self.close()

    @property
    def busy(self) -> bool:
        return bool(self._pending) or self.upgraded is not None

    # -- inside

    def _new_exchange(self) -> Exchange:
        exchange = Exchange(self, self._parser.get_method(), self._target)
        exchange.headers = self.headers
        exchange.keep_alive = self._parser.should_keep_alive() and not self.app.draining
        exchange.started_us = self.app.now_us()
        self._pending.append(exchange)
        return exchange

    def _await_request(self, *, first: bool = False) -> None:
        wait_us = self.app.header_deadline_us if first else self.app.idle_deadline_us
        self.deadline_us = self.app.now_us() + wait_us
        if len(self._pending) >= self.app.settings.limits.pipeline:
            self._set_reading()

    def _set_reading(self) -> None:
        want = not self.paused and len(self._pending) < self.app.settings.limits.pipeline
        if want != self._reading and not self.peer_is_gone:
            self._reading = want
            if want:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.app.settings.limits.header_bytes:
            raise HttpError("headers_too_large", "the request's headers are too long")

    def _too_large(self) -> HttpError:
        limit = self.app.settings.limits.body_bytes
        return HttpError("payload_too_large", f"a body has at most {limit} bytes")

    def _refuse(self, error: HeadwaterError | None) -> None:
        """This connection's bytes make no sense any more: say why, and end it."""
        if self._closing and not self._in_request:
            return
        exchange = Exchange(self, b"", self._target)
        exchange.headers = self.headers
        exchange.keep_alive = False
        exchange.started_us = self.app.now_us()
        self._pending.append(exchange)
        self._closing = True
        self._in_request = False
        exchange.keep_alive = False
        exchange.fail(error or InvalidRequestError("not a request that can be read"))

    def _upgrade(self, rest: bytes) -> None:
        exchange = self._new_exchange()
        self._in_request = False
        self.app.upgrade(exchange, rest)
