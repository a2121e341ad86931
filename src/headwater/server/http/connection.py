"""One HTTP/1.1 connection: our own thin class over httptools.

No framework and no task per request: a request is parsed, handed to its handler, and its answer
is written when it is there. Answers keep the order of the requests. Deadlines run from when
something began, so a byte now and then does not extend them.

What a client can make us hold is bounded: a head and the framing of a body have a limit in raw
bytes, requests behind one that waits are not begun, and nothing is read while a client does not
take its answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import httptools

from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.server.connection import Awaits, Connection
from headwater.server.http.exchange import Exchange, Part, RequestTaker, write_parts
from headwater.server.http.request_head import Head
from headwater.server.http.request_parser import Incoming
from headwater.server.ports import HTTP2
from headwater.wire.http_errors import HttpError
from headwater.wire.http_response import CONTINUE

HTTP2_OPENING: Final = b"PRI * HTTP/2.0\r\n"


class HttpConnection(Connection):
    upgraded: asyncio.Protocol | None = None
    """What speaks on it instead, from then on."""
    on_resumed: Callable[[], None] | None = None
    """Called when the client takes bytes again; set by a stream."""
    reads_files = False
    _may_have_unsent = False
    """The transport got something, and was not checked since for whether it was sent."""
    _beginning = False
    _held_back = False
    _refused = False
    _head: Head | None = None
    """Of the request that was parsed last."""

    def __init__(self, dispatcher: RequestTaker) -> None:
        self.endpoint = endpoint = dispatcher.endpoint
        super().__init__(endpoint.connections)
        self._dispatcher = dispatcher
        self._incoming = Incoming(self, endpoint.limits)
        self._pending: deque[Exchange] = deque()
        self._held: deque[Exchange] = deque()
        """The last of `_pending`, when they have to wait for those before them to begin."""
        self._pipeline_max = endpoint.limits.pipeline

    @property
    def is_waiting(self) -> bool:
        """An earlier request is not answered yet."""
        return len(self._pending) > 1

    # -- what all connections are asked

    def opened(self) -> None:
        tls = self.transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == HTTP2:
            self._speak_http2(b"")

    @property
    def owes_answer(self) -> bool:
        return bool(self._pending) or self.upgraded is not None

    @property
    def has_room(self) -> bool:
        return (
            not self._held_back
            and len(self._pending) < self._pipeline_max
            and self._dispatcher.has_room
        )

    @property
    def is_streaming(self) -> bool:
        return self.on_resumed is not None

    def lost(self, exc: Exception | None) -> None:
        if self.upgraded is not None:
            self.upgraded.connection_lost(exc)
        gone, self._pending = self._pending, deque()
        self._held.clear()
        for exchange in gone:
            if exchange.on_gone is not None:
                exchange.on_gone()

    def take_up(self) -> None:
        if self.on_resumed is not None:
            self.on_resumed()
        self._begin_held()

    def on_late(self, awaits: Awaits) -> None:
        if self.closing or awaits is Awaits.ANSWERS_TAKEN:
            self.transport.abort()
        elif self.is_within:
            self._refuse(HttpError("request_timeout", "the request did not arrive in time"))
        else:
            self.close()

    # -- asyncio

    def data_received(self, data: bytes) -> None:
        if self.upgraded is not None:
            self.upgraded.data_received(data)
            return
        if self.closing:
            return  # thrown away while the peer reads why
        whole = not self.is_within
        if whole:
            known = self.endpoint.known_heads.find(data)
            if known is not None:
                self._begin_known(known, data[len(data) - known.body_bytes :])
                return
            if self.awaits is Awaits.OPENING and data.startswith(HTTP2_OPENING):
                self._speak_http2(data)
                return
            self.begin_request()
        message = self._incoming.messages
        try:
            self._incoming.feed(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, HeadwaterError) else None)
            return
        except httptools.HttpParserError as error:
            self._refuse(InvalidRequestError(f"not a request that can be read: {error}"))
            return
        if self.is_within:
            if message == self._incoming.messages:
                self._add_raw(len(data))
        elif whole and message + 1 == self._incoming.messages and self._head is not None:
            self.endpoint.known_heads.remember(data, self._incoming.size.body, self._head)

    def eof_received(self) -> bool:
        """The peer will send no more; its requests are still answered.

        Not so where the answer has no end, or waits for what may never come: there it has left.
        """
        self.closing = True
        if self.upgraded is not None or self.transport.get_extra_info("ssl_object") is not None:
            return False
        return bool(self._pending) and not any(each.waits_for_event for each in self._pending)

    # -- what comes in

    def begin_request(self) -> None:
        self.begin_wait(Awaits.HEAD)

    def expect_body(self, *, expects_continue: bool) -> None:
        self.begin_wait(Awaits.BODY)
        if expects_continue and not self._pending:  # else it would pass for an answer that is owed
            self.send(CONTINUE)

    def take_request(self) -> None:
        self._head = head = self._parsed_head()
        self._begin(head, self._incoming.take_body())

    # -- answers

    def answer_ready(self) -> None:
        """An exchange has its answer: send all that are next in order."""
        pending = self._pending
        out: list[Part] = []
        while pending:
            exchange = pending[0]
            answer = exchange.take()
            if answer is None:
                break
            out += answer if isinstance(answer, tuple) else (answer,)
            if exchange.streaming:
                break
            pending.popleft()
            if not exchange.keep_alive:
                self.closing = True
                pending.clear()
                self._held.clear()
        if out and not self.is_gone:
            self._may_have_unsent = True
            write_parts(self.transport, out)
        if self.closing and not pending:
            self._finish()
            return
        if self._held:
            self._begin_held()
        if self.paused or not self.reading.goes_on:
            self.set_reading()
        if not pending and not self.is_within:
            self.begin_wait(Awaits.REQUEST)

    @property
    def takes_direct_answer(self) -> bool:
        """One request waits for its answer, and nothing else is the matter with this connection:
        the answer can go to its socket."""
        if (
            len(self._pending) != 1
            or self.reading.descriptor < 0
            or not self.reading.goes_on
            or self.paused
            or self.closing
            or self.is_gone
        ):
            return False
        if self._may_have_unsent:
            self._may_have_unsent = self.transport.get_write_buffer_size() > 0
        return not self._may_have_unsent

    def answered(self, now_us: int) -> None:
        """Calm as it was, it has the answer, by whatever way."""
        self._pending.popleft()
        if not self.is_within:
            self.awaits, self.since_us = Awaits.REQUEST, now_us

    def send(self, data: bytes) -> None:
        """What is not an answer of its own: more of a stream, a word in between."""
        if not self.is_gone:
            self._may_have_unsent = True
            self.transport.write(data)

    def finish(self) -> None:
        """The last answer is out. What the client still sends is read for a while and dropped."""
        self.upgraded = None
        self.on_resumed = None
        self._pending.clear()
        self._held.clear()
        self.closing = self._refused = True
        self._finish()

    # -- inside

    def _speak_http2(self, data: bytes) -> None:
        """It was agreed in the TLS handshake, or begins with the words that no HTTP/1.1 has."""
        # Late: the library is loaded by the first client that speaks it.
        from headwater.server.http.http2_connection import Http2Connection

        self.closing = self.is_gone = True
        self.connections.remove(self)
        successor = Http2Connection(self._dispatcher)
        self.transport.set_protocol(successor)
        successor.connection_made(self.transport)
        if data:
            successor.data_received(data)

    def _parsed_head(self) -> Head:
        head = self._incoming.head()
        if self._dispatcher.draining:
            head.keep_alive = False
        self.is_within = False
        return head

    def _begin_known(self, head: Head, body: bytes) -> None:
        """What is most frequent by a short way: a plain write with nothing before it."""
        if head.is_plain_write and not (self._pending or self.paused):
            exchange = Exchange(self, head, body, self.endpoint.now_us())
            self._pending.append(exchange)
            self._dispatcher.handle(exchange)
        else:
            self._begin(head, body)
        if not self._comes_back:
            self.share_reading()

    def _begin(self, head: Head, body: bytes | bytearray) -> None:
        pending = self._pending
        exchange = Exchange(self, head, body, self.endpoint.now_us())
        pending.append(exchange)
        if self._held or self._must_wait(len(pending) - 1, head):
            self._held.append(exchange)
        else:
            self._dispatcher.handle(exchange)
        if len(pending) >= self._pipeline_max:
            self.set_reading()

    def _must_wait(self, position: int, head: Head) -> bool:
        """Writes go on beside each other. Anything else is begun when all before it is answered,
        so that it finds what they did; and so is whatever comes behind something slower."""
        if self.paused or position == 0:
            return self.paused
        return self._pending[position - 1].is_slow or not self._dispatcher.goes_beside(head)

    def _begin_held(self) -> None:
        if self._beginning:
            return  # an answer that was there at once; the caller goes on with the next
        self._beginning = True
        try:
            while self._held:
                position = len(self._pending) - len(self._held)
                if self._must_wait(position, self._held[0].head):
                    break
                exchange = self._held.popleft()
                exchange.started_us = self.endpoint.now_us()
                self._dispatcher.handle(exchange)
        finally:
            self._beginning = False

    def hold_back(self, held_back: bool) -> None:
        """Read no more, or read again: what was sent is not dealt with yet."""
        self._held_back = held_back
        self.set_reading()

    def _add_raw(self, size: int) -> None:
        try:
            self._incoming.size.add_raw(size)
        except HttpError as error:
            self._refuse(error)

    def _refuse(self, error: HeadwaterError | None) -> None:
        """This connection's bytes make no sense any more: say why, and end it."""
        head = Head(b"", self._incoming.target, {}, keep_alive=False)
        exchange = Exchange(self, head, b"", self.endpoint.now_us())
        self._pending.append(exchange)
        self.closing = self._refused = True
        self.is_within = False
        self._incoming.take_body()
        exchange.fail(error or InvalidRequestError("not a request that can be read"))

    def _finish(self) -> None:
        """The last answer is out. Who may still be sending must not be cut off while it reads."""
        if self.is_gone:
            return
        if self._refused and self.transport.can_write_eof():
            self.begin_wait(Awaits.REFUSAL_READ)
            self.transport.write_eof()
            self._pending.clear()
            self.paused = False
            self.set_reading()
        else:
            self.close()

    def _upgrade(self, rest: bytes) -> None:
        if self._incoming.headers.get(b"upgrade", b"").lower() == b"websocket":
            exchange = Exchange(self, self._parsed_head(), b"", self.endpoint.now_us())
            self._pending.append(exchange)
            exchange.is_slow = True
            self._dispatcher.upgrade(exchange, rest)
            return
        if self._incoming.method == b"CONNECT":
            self._refuse(HttpError("method_not_allowed", "this is not a proxy"))
            return
        # Offers of HTTP/2 and the like come with an ordinary request. The parser stops at its head,
        # so that is read once more, without the offer.
        self.is_within = False
        self.data_received(self._incoming.without_upgrade() + rest)
