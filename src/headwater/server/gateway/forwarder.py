"""Parsed requests to the sequencer, and its answers to their connections.

While there is no sequencer, a request waits for it for a moment and is refused then, as during
recovery. A request that had been forwarded when the sequencer died may have been done or not: its
answer says so, and an idempotency key makes it safe to send it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, cast

from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_S
from headwater.server.access.access import Access
from headwater.server.connection import Connection
from headwater.server.gateway.uplink import Uplink
from headwater.server.http.connection import HttpConnection
from headwater.server.http.dispatcher import admit
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange, HttpCaller
from headwater.server.http.request_head import Head
from headwater.server.http.route_table import Route, RouteTable
from headwater.server.http.write_batcher import has_plain_head
from headwater.wire.channel import ChannelKind
from headwater.wire.http_errors import HttpError

WAIT_US: Final = 2 * US_PER_S
"""How long a request waits for a sequencer that is not there."""
_RETRY: Final = {"retry-after": "1"}


class Forwarder:
    """In a gateway, what a `Dispatcher` is elsewhere."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        uplink: Uplink,
        routes: list[Route],
        access: Access,
        take_plain_write: Callable[[Exchange], bool],
    ) -> None:
        """`take_plain_write`: false for one that has to go by itself."""
        self.endpoint = endpoint
        self._access = access
        self._take_plain_write = take_plain_write
        self.uplink = uplink
        self.draining = False
        self.requests = 0
        """Those that were forwarded."""
        unhandled = [replace(route, handler=_not_here, served_by=object) for route in routes]
        self._routes = RouteTable(unhandled, {object: None})
        self._waiting: deque[tuple[Exchange, bytes | None]] = deque()
        """For a sequencer; with what followed the head, for those that upgrade."""

    # -- what connections ask

    @property
    def has_room(self) -> bool:
        return not self.uplink.is_pressed

    def handle(self, exchange: Exchange) -> None:
        exchange.number = self.uplink.next_stream()
        if self._is_plain_write(exchange.head) and self._take_plain_write(exchange):
            return
        self.ask(exchange)

    def ask(self, exchange: Exchange) -> None:
        """Have the sequencer answer a request by itself."""
        if self.uplink.is_up:
            self._forward(exchange)
        else:
            self._waiting.append((exchange, None))

    def _is_plain_write(self, head: Head) -> bool:
        if head.route is None and self.goes_beside(head) and has_plain_head(head):
            with suppress(HeadwaterError):  # the sequencer says why
                admit(head, self._access, self._routes)
        return head.is_plain_write

    def goes_beside(self, head: Head) -> bool:
        try:
            route = head.route or self._routes.find(head.method, head.path)[0]
        except HeadwaterError:
            return False  # the sequencer says why
        return route.goes_beside

    def upgrade(self, exchange: Exchange, rest: bytes) -> None:
        exchange.number = self.uplink.next_stream()
        request = ForwardedRequest(self.uplink, exchange)
        exchange.connection.upgraded = UpgradedInput(request)
        if self.uplink.is_up:
            self._send(request, rest, upgrades=True)
        else:
            exchange.connection.hold_back(True)
            self._waiting.append((exchange, rest))

    # -- the sequencer

    def _forward(self, exchange: Exchange) -> None:
        self._send(ForwardedRequest(self.uplink, exchange), exchange.body, upgrades=False)

    def _send(self, request: ForwardedRequest, body: bytes | bytearray, *, upgrades: bool) -> None:
        exchange, uplink = request.exchange, self.uplink
        self.requests += 1
        uplink.add(exchange.number, request)
        exchange.on_gone = partial(uplink.gone, exchange.number)
        connection = exchange.connection
        behind = connection.number_before() if isinstance(connection, ForwardingConnection) else 0
        uplink.request(
            exchange.number, exchange.head, body, exchange.started_us, behind, upgrades=upgrades
        )

    def sequencer_up(self) -> None:
        """Forward what waited for it."""
        waiting, self._waiting = self._waiting, deque()
        for exchange, rest in waiting:
            connection = exchange.connection
            if connection.is_gone:
                continue
            if rest is None:
                self._forward(exchange)
            else:
                upgraded = cast(UpgradedInput, connection.upgraded)
                self._send(upgraded.request, rest, upgrades=True)
                connection.hold_back(False)

    def refuse_waiting(self, now_us: int) -> None:
        """Those that have waited long enough."""
        while self._waiting and now_us - self._waiting[0][0].started_us >= WAIT_US:
            exchange, rest = self._waiting.popleft()
            if rest is not None:
                exchange.connection.upgraded = None
                exchange.keep_alive = False
            exchange.fail(
                HttpError("not_ready", "the server starts again; try again soon", headers=_RETRY)
            )


class ForwardingConnection(HttpConnection):
    """Of a client; its requests are answered by the sequencer."""

    def __init__(self, forwarder: Forwarder) -> None:
        super().__init__(forwarder)
        self._uplink = forwarder.uplink

    def number_before(self) -> int:
        """Of the unanswered request before the one that begins, or 0."""
        position = len(self._pending) - len(self._held) - 1
        return self._pending[position - 1].number if position > 0 else 0

    def eof_received(self) -> bool:
        for exchange in self._pending:
            self._uplink.end_of_input(exchange.number)
        return super().eof_received()


class ForwardedRequest:
    """A request that the sequencer answers. Fulfils `ForwardedStream`."""

    __slots__ = ("_outflow", "connection", "exchange", "uplink")

    def __init__(self, uplink: Uplink, exchange: Exchange) -> None:
        self.uplink = uplink
        self.exchange = exchange
        self.connection = exchange.connection
        self._outflow: Outflow | None = None
        """None until it has begun an answer without end."""

    def answer(self, answer: bytes, *, closes: bool) -> None:
        exchange = self.exchange
        exchange.on_gone = None
        if closes:
            exchange.keep_alive = False
        if self.connection.upgraded is not None:
            self.connection.upgraded = None  # that was refused
        exchange.answer_whole(answer)

    def begin(self, head: bytes, *, is_upgraded: bool) -> None:
        self._outflow = Outflow(self.uplink, self.exchange.number, self.connection)
        self.connection.on_resumed = self._outflow.report
        if is_upgraded:
            self.exchange.hand_over()
        else:
            self.exchange.begin_printed(head)

    def send(self, data: bytes) -> None:
        self.connection.send(data)
        if self._outflow is not None:
            self._outflow.add(len(data))

    def hold_back(self, held_back: bool) -> None:
        self.connection.hold_back(held_back)

    def limit_buffer(self, size: int) -> None:
        self.connection.transport.set_write_buffer_limits(high=size)

    def report_taken(self) -> None:
        if self._outflow is not None:
            self._outflow.report()

    def end(self, how: ChannelKind) -> None:
        self.exchange.on_gone = None
        end_connection(self.connection, how)

    def sequencer_lost(self) -> None:
        exchange, connection = self.exchange, self.connection
        exchange.on_gone = None
        if exchange.streaming:
            connection.close()
            return
        if connection.upgraded is not None:
            connection.upgraded = None
            exchange.keep_alive = False
        exchange.fail(
            HttpError(
                "not_ready",
                "the server stopped before it answered and starts again; this request may have "
                "been done or not",
                headers=_RETRY,
            )
        )


class UpgradedInput(asyncio.Protocol):
    """What a client sends on a connection that is HTTP no more."""

    def __init__(self, request: ForwardedRequest) -> None:
        self.request = request
        self._uplink = request.uplink

    def data_received(self, data: bytes) -> None:
        self._uplink.say(ChannelKind.DATA, self.request.exchange.number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._uplink.gone(self.request.exchange.number)


class Outflow:
    """Bytes that a client is sent, and how many of them it took."""

    def __init__(self, uplink: Uplink, stream: int, connection: HttpCaller | Connection) -> None:
        self._uplink = uplink
        self._stream = stream
        self._connection = connection
        self._unreported = 0

    def add(self, size: int) -> None:
        self._unreported += size
        self.report()

    def report(self) -> None:
        """All, as long as the client keeps up; else what has left for its socket."""
        taken = self._unreported
        if self._connection.paused and not self._connection.is_gone:
            taken -= self._connection.transport.get_write_buffer_size()
        if taken > 0:
            self._unreported -= taken
            self._uplink.taken(self._stream, taken)


def end_connection(connection: HttpCaller | Connection, how: ChannelKind) -> None:
    if how is ChannelKind.ABORT:
        connection.transport.abort()
    elif how is ChannelKind.FINISH:
        connection.finish()
    else:
        connection.close()


def _not_here(_service: object, _exchange: Exchange) -> None:
    raise AssertionError("the sequencer has the handlers")
