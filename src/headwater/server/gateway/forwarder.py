"""Parsed requests to the sequencer, and its answers to their connections.

While there is no sequencer, a request waits for it for a moment and is refused then, as during
recovery. A request that had been forwarded when the sequencer died may have been done or not: its
answer says so, and an idempotency key makes it safe to send it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from headwater.core.errors import FormatError
from headwater.core.units import US_PER_S
from headwater.server.connection import Connection
from headwater.server.gateway.page_files import FileChangedError, PageFiles
from headwater.server.gateway.uplink import Uplink
from headwater.server.http.connection import HttpConnection
from headwater.server.http.dispatcher import Dispatcher
from headwater.server.http.exchange import Exchange, HttpCaller
from headwater.server.http.route_table import Route
from headwater.server.http.write_batcher import WriteBatcher
from headwater.wire.channel import ChannelFlag, ChannelKind
from headwater.wire.http_errors import HttpError, no_answer
from headwater.wire.page import read_page

WAIT_US: Final = 2 * US_PER_S
"""How long a request waits for a sequencer that is not there."""
_UPGRADE: Final = int(ChannelFlag.UPGRADE)
_WHOLE: Final = int(ChannelFlag.WHOLE)
_RETRY: Final = {"retry-after": "1"}


class Forwarder:
    """The handler of routes, in a gateway."""

    def __init__(self, uplink: Uplink, files: PageFiles) -> None:
        self._uplink = uplink
        self.files = files
        self._waiting: deque[tuple[ForwardedRequest, bytes | None]] = deque()
        """For a sequencer; with what followed the head, for those that upgrade."""
        self.requests = 0
        """Those that were forwarded."""

    def forward(self, exchange: Exchange) -> None:
        request = ForwardedRequest(self, self._uplink, exchange, exchange.number)
        if self._uplink.is_up:
            self._send(request, exchange.body)
        else:
            self._waiting.append((request, None))

    def upgrade(self, exchange: Exchange, rest: bytes) -> None:
        request = ForwardedRequest(self, self._uplink, exchange, self._uplink.next_stream())
        exchange.connection.upgraded = UpgradedInput(request)
        if self._uplink.is_up:
            self._send(request, rest, _UPGRADE)
        else:
            exchange.connection.hold_back(True)
            self._waiting.append((request, rest))

    def forward_again(self, request: ForwardedRequest) -> None:
        """One whose answer named files that are gone: all of it comes as text this time."""
        if self._uplink.is_up:
            self._send(request, request.exchange.body, _WHOLE)
        else:
            self._waiting.append((request, None))

    def _send(self, request: ForwardedRequest, body: bytes | bytearray, flags: int = 0) -> None:
        self.requests += 1
        exchange, uplink, stream = request.exchange, self._uplink, request.stream
        uplink.add(stream, request)
        exchange.on_gone = partial(uplink.gone, stream)
        connection = exchange.connection
        behind = connection.number_before() if isinstance(connection, ForwardingConnection) else 0
        uplink.request(stream, exchange.head, body, exchange.started_us, behind, flags)

    def sequencer_up(self) -> None:
        """Forward what waited for it."""
        waiting, self._waiting = self._waiting, deque()
        for request, rest in waiting:
            if request.connection.is_gone:
                continue
            if rest is None:
                self._send(request, request.exchange.body)
            else:
                self._send(request, rest, _UPGRADE)
                request.connection.hold_back(False)

    def refuse_waiting(self, now_us: int) -> None:
        """Those that have waited long enough."""
        while self._waiting and now_us - self._waiting[0][0].exchange.started_us >= WAIT_US:
            request, _ = self._waiting.popleft()
            request.fail(
                HttpError("not_ready", "the server starts again; try again soon", headers=_RETRY)
            )


class GatewayDispatcher(Dispatcher):
    """Takes no more than the sequencer does."""

    def __init__(self, uplink: Uplink, *others: Any) -> None:
        super().__init__(*others)
        self._uplink = uplink

    @property
    def has_room(self) -> bool:
        return not self._uplink.is_pressed


class ForwardingConnection(HttpConnection):
    """Of a client; its requests are answered by the sequencer."""

    def __init__(self, dispatcher: GatewayDispatcher, uplink: Uplink) -> None:
        super().__init__(dispatcher)
        self._uplink = uplink

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

    __slots__ = ("_forwarder", "_outflow", "connection", "exchange", "stream", "uplink")

    def __init__(
        self, forwarder: Forwarder, uplink: Uplink, exchange: Exchange, stream: int
    ) -> None:
        self._forwarder = forwarder
        self.uplink = uplink
        self.exchange = exchange
        self.stream = stream
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

    def page(self, page: bytes, *, closes: bool) -> None:
        exchange, files = self.exchange, self._forwarder.files
        now_us = self.connection.endpoint.now_us()
        try:
            texts = [
                piece if isinstance(piece, bytes) else files.printed(piece, now_us)
                for piece in read_page(page)
            ]
        except (FileChangedError, FormatError):
            self._forwarder.forward_again(self)
            return
        exchange.on_gone = None
        if closes:
            exchange.keep_alive = False
        exchange.answer_json_parts(*texts)

    def begin(self, head: bytes, *, is_upgraded: bool) -> None:
        self._outflow = Outflow(self.uplink, self.stream, self.connection)
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
        self.exchange.on_gone = None
        if self.exchange.streaming:
            self.connection.close()
        else:
            self.fail(no_answer())

    def fail(self, error: HttpError) -> None:
        if self.connection.upgraded is not None:
            self.connection.upgraded = None
            self.exchange.keep_alive = False
        self.exchange.fail(error)


class UpgradedInput(asyncio.Protocol):
    """What a client sends on a connection that is HTTP no more."""

    def __init__(self, request: ForwardedRequest) -> None:
        self.request = request
        self._uplink = request.uplink

    def data_received(self, data: bytes) -> None:
        self._uplink.send(ChannelKind.DATA, self.request.stream, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._uplink.gone(self.request.stream)


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


def forwarding_routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The same routes, each answered by the sequencer. Writes are kept: they are batched here."""
    return tuple(
        route
        if route.served_by is WriteBatcher
        else replace(route, handler=Forwarder.forward, served_by=Forwarder)
        for route in routes
    )
