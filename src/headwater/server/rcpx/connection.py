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

import asyncio
import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from headwater.core.errors import ClosedError, HeadwaterError
from headwater.server.access.keys import ANYONE, ApiKey
from headwater.server.failures import unforeseen
from headwater.server.intake import Reading
from headwater.server.machines.instance_names import own_error
from headwater.server.rcpx.errors import error_json
from headwater.server.rcpx.event_requests import take_event
from headwater.server.rcpx.operations import begin_operation, is_write
from headwater.server.rcpx.subscriptions import RcpxSubscriptions
from headwater.wire.rcpx import envelope
from headwater.wire.rcpx.frame import MessageReader, RcpxFlag, RcpxProtocolError, WireMode, message

if TYPE_CHECKING:
    from headwater.server.access.quotas import Usage
    from headwater.server.app import App
    from headwater.server.rcpx.listener import RcpxListener

CHECKED: Final = int(RcpxFlag.CRC)
STRANGER_BYTES_MAX: Final = 64 * 1024
"""Of one message before AUTH, where keys are needed."""
WRITE_BUFFER_BYTES_MAX: Final = 1024 * 1024
_encode = msgspec.json.Encoder().encode


class RcpxConnection(asyncio.Protocol):
    def __init__(self, listener: RcpxListener) -> None:
        self.listener = listener
        self.app: App = listener.app
        self.key: ApiKey | None = ANYONE if not len(self.app.keys) else None
        """None until AUTH, where keys are needed."""
        self.usage: Usage = self.app.quotas.of(ANYONE)
        self.granted: set[str] = set()
        """Operations this key was allowed before; a key never changes."""
        self._counted_for: bytes | None = None
        self.greeted = False
        self.client_name = ""
        self.subscriptions = RcpxSubscriptions(self)
        self.paused = False
        self.is_gone = False
        self._reader = MessageReader(STRANGER_BYTES_MAX)
        if self.key is not None:
            self._reader.raise_limit(self.app.settings.limits.body_bytes)
        self._transport: asyncio.Transport | None = None
        self.under_way = 0
        """Requests that are begun and not answered."""
        self._alone = False
        """The one request under way is no write: nothing begins beside it."""
        self._waiting: envelope.Request | RcpxProtocolError | None = None
        """What came next and has to wait until nothing is under way."""
        self._under_way_max = self.app.settings.limits.pipeline
        self._reading: Reading | None = None
        self._comes_back = False
        self._closing = False
        self._deadline_us = 0
        self._stuck_bytes = 0
        self._stuck_since_us = 0

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def mode(self) -> WireMode | None:
        return self._reader.mode

    @property
    def is_admitted(self) -> bool:
        return self.greeted and self.key is not None

    def admit(self, key: ApiKey) -> None:
        """AUTH was right. An admitted client may stay as long as it likes, so it is counted."""
        shares = self.app.quotas.connections
        if self._counted_for != key.digest and not self.is_gone:
            shares.take(key.digest)
            self._stop_counting()
            self._counted_for = key.digest
        self.key = key
        self.usage = self.app.quotas.of(key)
        self.granted.clear()
        self._reader.raise_limit(self.app.settings.limits.body_bytes)

    def _stop_counting(self) -> None:
        if self._counted_for is not None:
            self.app.quotas.connections.give_back(self._counted_for)
            self._counted_for = None

    def change_mode(self, mode: WireMode) -> None:
        """From the next message on, both ways."""
        self._reader.mode = mode

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._reading = Reading(self.app.intake, self, self._transport)
        if not self.listener.add(self):
            self._transport.abort()
            return
        connection_socket = transport.get_extra_info("socket")
        if connection_socket is not None:  # a peer that vanished without a word is found out
            connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._deadline_us = self.app.now_us() + self.app.header_deadline_us

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        if self._reading is not None:
            self._reading.end()
        self.subscriptions.close()
        self._stop_counting()
        self.listener.remove(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        only = None if self._waiting is not None else self._reader.only_message(data)
        if only is not None:
            self._take(only)
            if self.is_admitted and not self._comes_back:
                self._share_reading()
            if self._waiting is not None or self.under_way >= self._under_way_max:
                self._set_reading()
            return
        was_within = self._reader.is_within
        self._reader.feed(data)
        self._take_messages(was_within)

    def _take_messages(self, was_within: bool) -> None:
        """Begin what is here, as far as it may begin."""
        try:
            while not self._closing and self._waiting is None:
                payload = self._reader.next_message()
                if payload is None:
                    break
                was_within = False
                self._take(payload)
        except RcpxProtocolError as error:
            if self.under_way:
                self._waiting = error
            else:
                self._refuse(error)
        if self._reader.is_within and not was_within and self.is_admitted:
            # Counted from a message's first byte: one more now and then does not extend it.
            self._deadline_us = self.app.now_us() + self.app.body_deadline_us
        self._set_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.paused = True
        self._set_reading()

    def resume_writing(self) -> None:
        self.paused = False
        self.subscriptions.pump()
        self._set_reading()

    # -- requests

    def _take(self, payload: bytes) -> None:
        """Begin one request, or let it wait. Never raises."""
        try:
            if not self._alone and take_event(self, payload):
                return
            request = envelope.read_request(payload)
        except envelope.EnvelopeError as error:
            self.fail(error.request_id, error)
        except Exception as error:
            self.broken(b'""', error)
        else:
            self._begin_or_wait(request)

    def _begin_or_wait(self, request: envelope.Request) -> None:
        joins = is_write(self.app, request.op)
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
                self.app.loop.call_soon(self._go_on)
        elif self._reading is not None and not self._reading.goes_on:
            self._set_reading()
        if not self.under_way:
            self._alone = False

    def _go_on(self) -> None:
        """Nothing is under way: what had to wait begins, and what came behind it."""
        waiting, self._waiting = self._waiting, None
        if waiting is None or self.is_gone or self._closing:
            return
        if isinstance(waiting, RcpxProtocolError):
            self._refuse(waiting)
            return
        self._begin_or_wait(waiting)
        self._take_messages(was_within=False)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.listener.spawn(work)

    # -- answers

    def answer(self, request_id: bytes, result: bytes, wal_offset: int | None = None) -> None:
        self.send(envelope.ok(request_id, result, self.listener.server_time(), wal_offset))

    def fail(self, request_id: bytes, error: HeadwaterError) -> None:
        self.send(
            b'{"type":"response","id":%b,"status":"error","error":%b}'
            % (request_id, error_json(own_error(self.key, error)))
        )

    def broken(self, request_id: bytes, error: Exception) -> None:
        self.fail(request_id, unforeseen(self.app.log, "an RCPX request failed", error))

    def send(self, payload: bytes, flags: int = CHECKED) -> None:
        transport = self._transport
        if not self.is_gone and transport is not None:
            transport.write(message(payload, self._reader.mode, flags))

    def write(self, messages: bytes) -> None:
        """Messages that are framed already."""
        if not self.is_gone:
            self.transport.write(messages)

    # -- the end

    def say_goodbye(self) -> None:
        """Nothing more is read; what was written is still sent."""
        self._closing = True
        self.subscriptions.close()
        if not self.is_gone:
            self.transport.close()

    def drain(self) -> None:
        """No more requests; what is under way is finished."""
        self._closing = True
        self.subscriptions.end()
        if isinstance(self._waiting, envelope.Request):
            error = ClosedError("shutting down; nothing was done")
            self.fail(_encode(self._waiting.id), error)
        if not self.under_way and not self.is_gone:
            self.transport.close()

    def check_deadline(self, now_us: int) -> None:
        if self._closing:
            if not self.under_way or now_us >= self._deadline_us + self.app.idle_deadline_us:
                self.transport.close()
        elif self._is_stuck(now_us):
            self.transport.abort()
        elif now_us >= self._deadline_us and self._is_late:
            what = "message" if self.is_admitted else "HELLO and AUTH"
            self._refuse(RcpxProtocolError("BAD_REQUEST", f"no whole {what} arrived in time"))

    @property
    def _is_late(self) -> bool:
        """Its own fault: bytes that wait for a request before them are not missing anything."""
        if not self.is_admitted:
            return True
        return self._reader.is_within and self._waiting is None

    def _is_stuck(self, now_us: int) -> bool:
        """It has not taken a byte of its answers for long. A watcher may: it costs a buffer."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting or waiting != self._stuck_bytes or len(self.subscriptions):
            self._stuck_bytes, self._stuck_since_us = waiting, now_us
            return False
        return now_us - self._stuck_since_us >= self.app.idle_deadline_us

    def _refuse(self, error: RcpxProtocolError) -> None:
        """This connection's bytes make no sense any more: say why, and end it."""
        self.fail(b'""', error)
        self.say_goodbye()

    def _share_reading(self) -> None:
        self._comes_back = True
        if self._reading is not None and not self._closing:
            self._reading.share()

    def _set_reading(self) -> None:
        if self._reading is not None and not self.is_gone and not self._closing:
            has_room = self._waiting is None and self.under_way < self._under_way_max
            self._reading.set(has_room and not self.paused)

    def broken_by(self, error: Exception) -> None:
        self.app.log.error("a connection broke", error=repr(error), exc_info=error)
        self.transport.abort()
