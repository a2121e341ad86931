"""The streams that are open on one server: how many each key has, their heartbeats, their end; and
what all streams of server-sent events do alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.server.access.keys import ApiKey
from headwater.server.access.quotas import Quotas
from headwater.server.http.exchange import Exchange, HttpCaller
from headwater.wire import sse
from headwater.wire.http_errors import HttpError

FRAME_BYTES: Final = 256
"""The outbound queue is counted in bytes: so many for each of its frames."""


class Stream(Protocol):
    def beat(self, now_us: int) -> None:
        """Called every so often: say something if nothing was said for a while."""

    def end(self) -> None:
        """The server goes."""


class OpenStreams:
    def __init__(self, quotas: Quotas, settings: ServerSettings, clock: Clock) -> None:
        self._quotas = quotas
        self.settings = settings
        self.now_us = clock.monotonic_us
        self.wall_ms = clock.wall_ms
        self._open: set[Stream] = set()
        self.sse_count = 0
        """Those of server-sent events."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, key: ApiKey) -> None:
        """Count one more for this key. 429 when it has as many as it may."""
        self._quotas.open_stream(key)

    def give_back(self, key: ApiKey) -> None:
        """It was admitted, and is over."""
        self._quotas.close_stream(key)

    def add(self, stream: Stream) -> None:
        self._open.add(stream)

    def remove(self, stream: Stream) -> None:
        self._open.discard(stream)

    def add_sse(self, stream: Stream, connection: HttpCaller) -> None:
        """One of server-sent events, whose client takes so many frames before it has to read."""
        connection.transport.set_write_buffer_limits(
            high=self.settings.stream_queue_frames * FRAME_BYTES
        )
        self.add(stream)
        self.sse_count += 1

    def remove_sse(self, stream: Stream, key: ApiKey) -> None:
        self.sse_count -= 1
        self.remove(stream)
        self.give_back(key)

    def heartbeat(self, now_us: int) -> None:
        for stream in list(self._open):
            stream.beat(now_us)

    def close_all(self) -> None:
        for stream in list(self._open):
            stream.end()


# -- server-sent events


def require_event_stream(exchange: Exchange) -> None:
    accept = exchange.headers.get(b"accept", b"*/*").lower()
    if not any(kind in accept for kind in (b"text/event-stream", b"text/*", b"*/*")):
        raise HttpError("not_acceptable", "this is a stream of text/event-stream")


def answers_head(exchange: Exchange) -> bool:
    """True when the request is a HEAD, which is answered here. Raises where no stream can stand."""
    if exchange.method == b"HEAD":
        exchange.answer(200, b"", sse.HEADERS)
        return True
    if exchange.connection.is_waiting:
        raise InvalidRequestError("a stream cannot stand behind requests that are not answered")
    return False


class SseStream:
    """One open stream: it was admitted, and is given back once, at its end. Subclasses say what it
    sends, and what they let go of."""

    heartbeat_us: int
    """After so long a silence something is said."""

    def __init__(self, streams: OpenStreams, exchange: Exchange) -> None:
        self._streams = streams
        self._exchange = exchange
        self._connection = exchange.connection
        self._key = exchange.key
        self._sent_us = streams.now_us()
        self.ended = False

    def _open(self, resume: Callable[[], None], first: bytes = b"") -> None:
        """`resume` is called when the client takes bytes again."""
        self._exchange.on_gone = self._close
        self._connection.on_resumed = resume
        self._exchange.begin_stream(200, sse.HEADERS)
        self._say(sse.RETRY + first)
        self._streams.add_sse(self, self._connection)

    @property
    def has_room(self) -> bool:
        return not self._connection.paused

    def send_error(self, error: HeadwaterError) -> None:
        self._say(sse.json_event(b"error", {"code": error.code, "message": str(error)}))
        self.end()

    def beat(self, now_us: int) -> None:
        if now_us - self._sent_us >= self.heartbeat_us and self.has_room:
            self._say(sse.heartbeat(self._streams.wall_ms()))

    def _say(self, frames: bytes) -> None:
        self._sent_us = self._streams.now_us()
        self._connection.send(frames)

    def end(self) -> None:
        """The server ends the stream; the client may come back, with its cursor if it has one."""
        self._close()
        self._connection.close()

    def _close(self) -> None:
        if not self.ended:
            self.ended = True
            self._let_go()
            self._streams.remove_sse(self, self._key)

    def _let_go(self) -> None:
        """It is over."""
        raise NotImplementedError
