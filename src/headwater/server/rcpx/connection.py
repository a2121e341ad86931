"""One RCPX connection: bytes in, requests executed in the order they came, responses out.

A request is executed after every request that its connection sent before it. Writes that follow
each other need not wait for each other: the log takes them in their order, so they are begun
together and share its groups. Anything else (a read, a watch, AUTH, BYE) begins when all writes
before it are answered and visible, and nothing begins beside it. The connection reads nothing more
while a request waits. Responses carry the id of their request and are sent as they are ready: of
writes under way together, one that the rules refuse is answered before one that waits for the disk.

There is no task per request: what waits for the log is carried on by the log's answer. What a
client can make us hold is bounded: so many requests under way, and nothing is read while it does
not take its answers.
"""

from __future__ import annotations

import socket
from typing import Final

import msgspec

from headwater.core.errors import ClosedError, HeadwaterError
from headwater.server.access.keys import ANYONE, ApiKey, own_error
from headwater.server.connection import Awaits, Connection
from headwater.server.failures import unforeseen
from headwater.server.rcpx.caller import failure
from headwater.server.rcpx.endpoint import RcpxEndpoint
from headwater.server.rcpx.event_requests import take_event
from headwater.server.rcpx.operations import begin_operation, is_write
from headwater.server.rcpx.subscriptions import RcpxSubscriptions
from headwater.wire import rcpx
from headwater.wire.rcpx import MessageReader, RcpxFlag, RcpxProtocolError, WireMode, message

CHECKED: Final = int(RcpxFlag.CRC)
STRANGER_BYTES_MAX: Final = 64 * 1024
"""Of one message before AUTH, where keys are needed."""
_encode = msgspec.json.Encoder().encode


class RcpxConnection(Connection):
    greeted = False
    client_name = ""
    under_way = 0
    _alone = False
    """The one request under way is no write: nothing begins beside it."""
    _waiting: rcpx.Request | RcpxProtocolError | None = None
    """What came next and has to wait until nothing is under way."""

    def __init__(self, endpoint: RcpxEndpoint) -> None:
        super().__init__(endpoint.connections)
        self.endpoint = endpoint
        self.key: ApiKey | None = ANYONE if not len(endpoint.access.keys) else None
        self.usage = endpoint.access.quotas.of(ANYONE)
        self.granted: set[str] = set()
        self.subscriptions = RcpxSubscriptions(self)
        self._reader = MessageReader(STRANGER_BYTES_MAX)
        if self.key is not None:
            self._reader.raise_limit(endpoint.limits.body_bytes)
        self._under_way_max = endpoint.limits.pipeline

    @property
    def mode(self) -> WireMode | None:
        return self._reader.mode

    @property
    def is_admitted(self) -> bool:
        return self.greeted and self.key is not None

    def greet(self, client_name: str) -> None:
        self.greeted = True
        self.client_name = client_name
        self._welcome()

    def admit(self, key: ApiKey) -> None:
        """AUTH was right. An admitted client may stay as long as it likes, so it is counted."""
        self.count_for(key.digest)
        self.key = key
        self.usage = self.endpoint.access.quotas.of(key)
        self.granted.clear()
        self._reader.raise_limit(self.endpoint.limits.body_bytes)
        self._welcome()

    def _welcome(self) -> None:
        if self.is_admitted and self.awaits is Awaits.OPENING:
            self.begin_wait(Awaits.REQUEST)

    def change_mode(self, mode: WireMode) -> None:
        """From the next message on, both ways."""
        self._reader.mode = mode

    # -- what all connections are asked

    @property
    def owes_answer(self) -> bool:
        return self.under_way > 0 or self._waiting is not None

    @property
    def has_room(self) -> bool:
        return self._waiting is None and self.under_way < self._under_way_max

    @property
    def is_streaming(self) -> bool:
        return len(self.subscriptions) > 0

    def opened(self) -> None:
        connection_socket = self.transport.get_extra_info("socket")
        if connection_socket is not None:  # a peer that vanished without a word is found out
            connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def lost(self, exc: Exception | None) -> None:
        self.subscriptions.close()

    def take_up(self) -> None:
        self.subscriptions.pump()

    def refuse_waiting(self) -> None:
        self.subscriptions.end()
        waiting, self._waiting = self._waiting, None
        if isinstance(waiting, rcpx.Request):
            error = ClosedError("shutting down; nothing was done")
            self.fail(_encode(waiting.id), error)

    def on_late(self, awaits: Awaits) -> None:
        if self.closing or awaits is Awaits.ANSWERS_TAKEN:
            self.transport.abort()
            return
        what = "message" if self.is_admitted else "HELLO and AUTH"
        self._refuse(RcpxProtocolError("BAD_REQUEST", f"no whole {what} arrived in time"))

    # -- requests

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        only = None if self._waiting is not None else self._reader.only_message(data)
        if only is not None:
            self._take(only)
            if self.is_admitted and not self._comes_back:
                self.share_reading()
            if not self.has_room:
                self.set_reading()
            return
        self._reader.feed(data)
        self._take_messages()

    def _take_messages(self, *, is_another: bool = False) -> None:
        """Begin what is here, as far as it may begin."""
        try:
            while not self.closing and self._waiting is None:
                payload = self._reader.next_message()
                if payload is None:
                    break
                is_another = True
                self._take(payload)
        except RcpxProtocolError as error:
            if self.under_way:
                self._waiting = error
            else:
                self._refuse(error)
        if self.is_admitted and not self.closing:
            self.note_rest(is_owed=self._reader.is_within, is_another=is_another)
        self.set_reading()

    def _take(self, payload: bytes) -> None:
        """Begin one request, or let it wait. Never raises."""
        try:
            if not self._alone and take_event(self, payload):
                return
            request = rcpx.read_request(payload)
        except rcpx.EnvelopeError as error:
            self.fail(error.request_id, error)
        except Exception as error:
            self.broken(b'""', error)
        else:
            self._begin_or_wait(request)

    def _begin_or_wait(self, request: rcpx.Request) -> None:
        joins = is_write(self.endpoint.backend, request.op)
        if self.under_way and (self._alone or not joins):
            self._waiting = request
            return
        self._alone = not joins
        request_id = _encode(request.id)
        try:
            begin_operation(self, request_id, request)
        except HeadwaterError as error:
            self.fail(request_id, error)
        except Exception as error:
            self.broken(request_id, error)
        if not self.under_way:
            self._alone = False

    def ended(self) -> None:
        """What was under way is about to be answered."""
        self.under_way -= 1
        if self._waiting is not None:
            if not self.under_way:
                # Not at once: the engine is delivering events, and this answer is not sent yet.
                self.endpoint.call_soon(self._go_on)
        elif self.closing:
            self.endpoint.call_soon(self._end)
        elif not self.reading.goes_on:
            self.set_reading()
        if not self.under_way:
            self._alone = False

    def _end(self) -> None:
        """Answered; with the last of them, the connection ends."""
        if self.closing and not self.owes_answer:
            self.close()

    def _go_on(self) -> None:
        """Nothing is under way: what had to wait begins, and what came behind it."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or self.is_gone or self.closing:
            return
        if isinstance(waiting, RcpxProtocolError):
            self._refuse(waiting)
            return
        self._begin_or_wait(waiting)
        self._take_messages(is_another=True)

    # -- answers

    def answer(self, request_id: bytes, result: bytes, wal_offset: int | None = None) -> None:
        self.send(rcpx.ok(request_id, result, self.endpoint.server_time.now(), wal_offset))

    def fail(self, request_id: bytes, error: HeadwaterError) -> None:
        self.send(failure(request_id, own_error(self.key, error)))

    def broken(self, request_id: bytes, error: Exception) -> None:
        self.fail(request_id, unforeseen(self.endpoint.log, "an RCPX request failed", error))

    def send(self, payload: bytes, flags: int = CHECKED) -> None:
        if not self.is_gone:
            self.transport.write(message(payload, self._reader.mode, flags))

    def write(self, messages: bytes) -> None:
        """Messages that are framed already."""
        if not self.is_gone:
            self.transport.write(messages)

    # -- the end

    def say_goodbye(self) -> None:
        """Nothing more is read; what was written is still sent."""
        self.subscriptions.close()
        self.close()

    def _refuse(self, error: RcpxProtocolError) -> None:
        """This connection's bytes make no sense any more: say why, and end it."""
        self.fail(b'""', error)
        self.say_goodbye()
