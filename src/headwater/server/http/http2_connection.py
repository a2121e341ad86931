"""One HTTP/2 connection: frames and header compression are the h2 library's, the rest is ours.

Each stream is a request and its answer, begun when it is whole, whatever waits on other streams.
Handlers know nothing of it: an answer is printed as for HTTP/1.1, and its head is read back here,
so there is one way to print an answer. WebSocket is not offered, so that browsers open a
connection of their own for it.

A client says how much it takes, of each stream and in all. What it does not take waits here: a
stream that is followed stops asking for more, and a client that takes nothing of a whole answer for
long is disconnected. One that opens streams only to reset them is asked to leave.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes

from headwater.core.errors import InvalidRequestError
from headwater.core.units import KIB, MIB
from headwater.server.connection import Awaits, Connection
from headwater.server.http.exchange import Exchange, Part, RequestTaker
from headwater.server.http.request_head import Head
from headwater.server.http.request_size import RequestSize
from headwater.wire.http_errors import HttpError

if TYPE_CHECKING:
    from headwater.config.server import LimitSettings
    from headwater.server.http.endpoint import HttpEndpoint
    from headwater.server.intake import Reading

CONNECTION_WINDOW_BYTES: Final = 4 * MIB
STREAM_WINDOW_BYTES: Final = MIB
"""What a client may send before it was taken from it."""
UNSENT_BYTES_MAX: Final = 64 * KIB
"""Of one stream that is followed, if nothing else was said."""
RESETS_FREE: Final = 200
"""A client may take back so many requests, and then as many as it let be answered."""
HEADS_MAX: Final = 256
_ONLY_HTTP1: Final = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"))

Headers = list[tuple[bytes, bytes]]


class Http2Connection(Connection):
    def __init__(self, dispatcher: RequestTaker) -> None:
        self.endpoint = endpoint = dispatcher.endpoint
        super().__init__(endpoint.connections)
        self._dispatcher = dispatcher
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._streams: dict[int, Http2Stream] = {}
        self._heads: dict[tuple[tuple[bytes, bytes], ...], Head] = {}
        """What came lately on this connection: the same headers mean the same request."""
        self._flushes = False
        self._said_goodbye = False
        self._resets = 0
        self._answers = 0
        self._moved_us = 0
        """When the client last took something of an answer, or had nothing to take."""

    # -- what all connections are asked

    def opened(self) -> None:
        limits = self.endpoint.limits
        self._h2.initiate_connection()
        self._h2.update_settings(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.pipeline,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
            }
        )
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES)
        self._moved_us = self.endpoint.now_us()
        self._flush()

    @property
    def owes_answer(self) -> bool:
        return bool(self._streams)  # each has a deadline of its own while it comes

    @property
    def has_room(self) -> bool:
        return self._dispatcher.has_room  # the library refuses more streams than were agreed

    @property
    def is_streaming(self) -> bool:
        return any(stream.on_resumed is not None for stream in self._streams.values())

    def lost(self, exc: Exception | None) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.let_go()

    def take_up(self) -> None:
        self.flush_soon()

    def refuse_waiting(self) -> None:
        """What is not whole is refused, as streams are that come from now on: the client sends
        them elsewhere."""
        for stream in [each for each in self._streams.values() if not each.is_begun]:
            self.ended(stream.number, how=ErrorCodes.REFUSED_STREAM)

    def close(self) -> None:
        """The goodbye comes last: some clients take nothing behind it."""
        self._say_goodbye(ErrorCodes.NO_ERROR)
        super().close()

    def _say_goodbye(self, why: ErrorCodes) -> None:
        if not self.is_gone and not self._said_goodbye:
            self._said_goodbye = True
            self._h2.close_connection(why)
            self.transport.write(self._h2.data_to_send())

    def on_late(self, awaits: Awaits) -> None:
        if awaits is not Awaits.REQUEST and awaits is not Awaits.OPENING:
            self.transport.abort()
        else:
            self.close()

    def check_deadline(self, now_us: int) -> None:
        super().check_deadline(now_us)
        deadlines_us = self.connections.deadlines_us
        for stream in list(self._streams.values()):
            if not stream.is_begun and now_us - stream.since_us >= deadlines_us[Awaits.BODY]:
                stream.refuse(HttpError("request_timeout", "the request did not arrive in time"))
        if not any(stream.is_owed for stream in self._streams.values()):
            self._moved_us = now_us
        elif now_us - self._moved_us >= deadlines_us[Awaits.ANSWERS_TAKEN]:
            self.transport.abort()

    # -- asyncio

    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._said_goodbye = True  # by the library, with what is wrong
            self._flush()
            self.close()
            return
        for event in events:
            self._take(event)
            if self.is_gone or (self.closing and not self._streams):
                break
        self._flush()

    def eof_received(self) -> bool:
        self.closing = True
        return False

    # -- what comes in

    def _take(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._open(event.stream_id or 0, event.headers or [])
        elif isinstance(event, DataReceived):
            number, taken = event.stream_id or 0, event.flow_controlled_length or 0
            self._h2.acknowledge_received_data(taken, number)
            if (stream := self._streams.get(number)) is not None:
                stream.add_body(event.data or b"")
        elif isinstance(event, StreamEnded):
            if (stream := self._streams.get(event.stream_id or 0)) is not None:
                stream.begin()
        elif isinstance(event, StreamReset):
            self._reset(event.stream_id or 0)
        elif isinstance(event, ConnectionTerminated):
            self.closing = True
            if not self._streams:
                self.close()

    def _open(self, number: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self.closing:
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        self.begin_wait(Awaits.REQUEST)
        stream = self._streams[number] = Http2Stream(self, number)
        try:
            stream.head = self._head(list(headers))
            stream.expect_body()
        except HttpError as error:
            stream.refuse(error)
        except InvalidRequestError as error:
            stream.refuse(error)

    def _head(self, headers: Headers) -> Head:
        key = tuple(headers)
        head = self._heads.get(key)
        if head is None:
            head = head_of(headers, RequestSize(self.endpoint.limits), self.endpoint.limits)
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _reset(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.let_go()
        self._resets += 1
        if self._resets > RESETS_FREE + self._answers:
            self._say_goodbye(ErrorCodes.ENHANCE_YOUR_CALM)
            self.close()

    def has(self, stream: Http2Stream) -> bool:
        return self._streams.get(stream.number) is stream

    def begin_request(self, stream: Http2Stream, body: bytes) -> None:
        assert stream.head is not None
        stream.exchange = Exchange(stream, stream.head, body, self.endpoint.now_us())
        self._dispatcher.handle(stream.exchange)

    # -- what goes out

    def send_headers(self, number: int, headers: Headers, *, ends: bool) -> None:
        if number in self._streams and not self.is_gone:
            with suppress(StreamClosedError):  # its end came in the same bytes, and is told next
                self._h2.send_headers(number, headers, end_stream=ends)
            self.flush_soon()

    def ended(self, number: int, *, how: ErrorCodes | None = None) -> None:
        """Its answer is out, or given up."""
        if self._streams.pop(number, None) is None or self.is_gone:
            return
        self._answers += 1
        if how is not None:
            with suppress(StreamClosedError):
                self._h2.reset_stream(number, how)
        if not self._streams:
            self.begin_wait(Awaits.REQUEST)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Once a turn, whatever was answered in it."""
        if not self._flushes and not self.is_gone:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        if self.is_gone:
            return
        for stream in list(self._streams.values()):
            if self.paused:
                break
            with suppress(StreamClosedError):
                self._send_body(stream)
        if out := self._h2.data_to_send():
            self.transport.write(out)
        if self.closing and not self._streams and self.awaits is not Awaits.END:
            self.close()

    def _send_body(self, stream: Http2Stream) -> None:
        """As much of it as the client takes now."""
        h2, number = self._h2, stream.number
        while stream.unsent:
            room = min(h2.local_flow_control_window(number), h2.max_outbound_frame_size)
            if room <= 0:
                return
            h2.send_data(number, stream.take(room))
            self._moved_us = self.endpoint.now_us()
        if stream.is_last:
            h2.end_stream(number)
            self.ended(number, how=stream.reset_after)
        else:
            stream.resume()


class Http2Stream(asyncio.Transport):
    """A request and its answer. Fulfils `HttpCaller`, and is the transport that handlers see."""

    upgraded: asyncio.Protocol | None = None
    on_resumed: Callable[[], None] | None = None
    is_waiting = False
    """Streams do not wait for each other."""
    takes_direct_answer = False
    reads_files = False
    exchange: Exchange | None = None
    head: Head | None = None
    is_last = False
    """All of the answer is here."""
    _refused = False
    _has_head = False
    _was_paused = False

    def __init__(self, connection: Http2Connection, number: int) -> None:
        super().__init__()
        self._connection = connection
        self.number = number
        self.since_us = connection.endpoint.now_us()
        self._size = RequestSize(connection.endpoint.limits)
        self._body: list[bytes] = []
        self._out: deque[Part] = deque()
        self.unsent = 0
        self._high = UNSENT_BYTES_MAX

    # -- the request

    def expect_body(self) -> None:
        assert self.head is not None
        length = self.head.headers.get(b"content-length", b"")
        if length.isdigit():
            self._size.expect_body(int(length))
        if self.head.headers.get(b"expect", b"").lower() == b"100-continue":
            self._connection.send_headers(self.number, [(b":status", b"100")], ends=False)

    def add_body(self, data: bytes) -> None:
        if self.is_begun:
            return
        try:
            self._size.add_body(len(data))
        except HttpError as error:
            self.refuse(error)
            return
        self._body.append(data)

    @property
    def is_begun(self) -> bool:
        return self.exchange is not None

    def begin(self) -> None:
        if not self.is_begun:
            body, self._body = b"".join(self._body), []
            self._connection.begin_request(self, body)

    def refuse(self, error: HttpError | InvalidRequestError) -> None:
        """The rest of it is not worth reading."""
        self._body = []
        self._refused = True
        head = self.head or Head(b"", b"", {}, keep_alive=True)
        self.exchange = Exchange(self, head, b"", self.endpoint.now_us())
        self.exchange.fail(error)

    # -- what handlers need of the connection

    @property
    def endpoint(self) -> HttpEndpoint:
        return self._connection.endpoint

    @property
    def transport(self) -> asyncio.Transport:
        return self

    @property
    def reading(self) -> Reading:
        return self._connection.reading

    @property
    def paused(self) -> bool:
        self._was_paused = self._connection.paused or self.unsent > self._high
        return self._was_paused

    @property
    def is_gone(self) -> bool:
        return not self._connection.has(self)

    def answer_ready(self) -> None:
        exchange = self.exchange
        answer = None if exchange is None else exchange.take()
        if exchange is None or not answer or self._has_head:
            return
        parts = answer if isinstance(answer, tuple) else (answer,)
        status, headers, body = printed_answer(bytes(parts[0]))
        self._has_head = True
        if body:
            self._add(body)
        for part in parts[1:]:
            self._add(part)
        self.is_last = not exchange.streaming
        ends = self.is_last and not self.unsent
        headers.insert(0, (b":status", status))
        self._connection.send_headers(self.number, headers, ends=ends)
        if ends:
            self._connection.ended(self.number, how=self.reset_after)

    def answered(self, now_us: int) -> None:
        raise AssertionError("no answer goes straight to the socket of a connection with streams")

    def send(self, data: bytes) -> None:
        self._add(data)
        self._connection.flush_soon()

    def hold_back(self, held_back: bool) -> None:
        raise AssertionError("only what speaks instead of HTTP is held back")

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        """No more is said; what was said is still sent."""
        self.on_resumed = None
        self.is_last = True
        self._connection.flush_soon()

    def abort(self) -> None:
        self._out.clear()
        self.unsent = 0
        self._connection.ended(self.number, how=ErrorCodes.INTERNAL_ERROR)
        self.let_go()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = UNSENT_BYTES_MAX if high is None else high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    # -- what the connection does with it

    @property
    def is_owed(self) -> bool:
        """The client has to take something that is whole."""
        return self.unsent > 0 and self.on_resumed is None

    def take(self, size: int) -> bytes:
        part = self._out.popleft()
        if len(part) > size:
            self._out.appendleft(memoryview(part)[size:])
            part = memoryview(part)[:size]
        self.unsent -= len(part)
        return bytes(part)

    def resume(self) -> None:
        if self._was_paused and not self.paused and self.on_resumed is not None:
            self.on_resumed()

    def let_go(self) -> None:
        """The client is gone, or does not want the answer."""
        if self.exchange is not None and self.exchange.on_gone is not None:
            self.exchange.on_gone()

    @property
    def reset_after(self) -> ErrorCodes | None:
        """A client that was refused before it had sent all is told to send no more."""
        return ErrorCodes.NO_ERROR if self._refused else None

    def _add(self, part: Part) -> None:
        if part:
            self._out.append(part)
            self.unsent += len(part)


def head_of(headers: Headers, size: RequestSize, limits: LimitSettings) -> Head:
    """What HTTP/1.1 says in a request line and headers."""
    said: dict[bytes, bytes] = {}
    pseudo: dict[bytes, bytes] = {}
    for name, value in headers:
        size.add_header(len(name) + len(value) + 4)
        if name.startswith(b":"):
            pseudo[name] = value
        elif name in said:
            said[name] += (b"; " if name == b"cookie" else b", ") + value
        else:
            said[name] = value
    if len(said) > limits.header_count:
        raise HttpError("headers_too_large", "too many headers")
    said.setdefault(b"host", pseudo.get(b":authority", b""))
    if pseudo[b":method"] == b"CONNECT":
        raise HttpError("method_not_allowed", "this is not a proxy")
    return Head(pseudo[b":method"], pseudo[b":path"], said, keep_alive=True)


def printed_answer(printed: bytes) -> tuple[bytes, Headers, bytes]:
    """Status, headers and the beginning of the body of an answer that was printed for HTTP/1.1."""
    head, _, body = printed.partition(b"\r\n\r\n")
    status_line, *lines = head.split(b"\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in map(_split, lines)]
    return status_line[9:12], [each for each in headers if each[0] not in _ONLY_HTTP1], body


def _split(line: bytes) -> tuple[bytes, bytes, bytes]:
    return line.partition(b":")
