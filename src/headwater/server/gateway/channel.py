"""One end of the channel, on an event loop: frames to handlers, and frames out together.

What a turn of the loop has to say goes out with one call. A side that does not read makes the
other stop: `on_pressure` tells it, and what would cause more frames waits.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, cast

from headwater.core.units import MIB
from headwater.observe.logs import Logger
from headwater.server.http.exchange import Part, write_parts
from headwater.wire.channel import ChannelError, ChannelKind, ChannelReader, frame_header

FrameHandler = Callable[[int, int, bytes], None]
"""Of the stream, the flags, and the payload. Raises `ChannelError` for what makes no sense."""

BUFFER_BYTES_MAX: Final = 8 * MIB
"""What waits for the other side before it counts as one that does not read."""


def _run(work: Callable[[], None]) -> None:
    work()


class Channel(asyncio.Protocol):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: Logger,
        on_lost: Callable[[], None],
        on_pressure: Callable[[bool], None],
    ) -> None:
        """`on_pressure`: whether the other side does not read, whenever that changes."""
        self._loop = loop
        self._log = log
        self._on_lost = on_lost
        self._on_pressure = on_pressure
        self._reader = ChannelReader()
        self._handlers: dict[int, FrameHandler] = {}
        self._out: list[Part] = []
        self._transport: asyncio.Transport | None = None
        self.is_paused = False
        self.run: Callable[[Callable[[], None]], None] = _run
        """Does the work of a turn; may measure it."""

    def register(self, handlers: Mapping[ChannelKind, FrameHandler]) -> None:
        """What is done with frames of these kinds. Others close the channel."""
        self._handlers.update({int(kind): handler for kind, handler in handlers.items()})

    def option(self, level: int, name: int, size: int) -> bytes:
        """Of its socket."""
        assert self._transport is not None, "connected"
        # The loop lends no socket that could be asked, only its number.
        borrowed = socket.socket(fileno=self._transport.get_extra_info("socket").fileno())
        try:
            return borrowed.getsockopt(level, name, size)
        finally:
            borrowed.detach()

    def set_reading(self, reads: bool) -> None:
        if self._transport is not None:
            self._transport.resume_reading() if reads else self._transport.pause_reading()

    # -- out

    def send(self, kind: ChannelKind, stream: int, payload: bytes = b"", flags: int = 0) -> None:
        self.send_parts(kind, stream, (payload,), flags)

    def send_parts(
        self, kind: ChannelKind, stream: int, parts: Sequence[Part], flags: int = 0
    ) -> None:
        out = self._out
        if not out:
            self._loop.call_soon(self.flush)
        out.append(frame_header(kind, stream, sum(map(len, parts)), flags))
        out += parts

    def flush(self) -> None:
        """Hand over what was said in this turn."""
        if self._out:
            out, self._out = self._out, []
            if self._transport is not None:
                write_parts(self._transport, out)

    def close(self) -> None:
        """Send what is there, and nothing more."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self.run(partial(self._take, data))

    def _take(self, data: bytes) -> None:
        handlers = self._handlers
        try:
            for kind, flags, stream, payload in self._reader.feed(data):
                handler = handlers.get(kind)
                if handler is None:
                    raise ChannelError(f"{ChannelKind(kind).name} is not for this side")
                handler(stream, flags, payload)
        except Exception:  # nothing behind it can be trusted
            self._log.exception("the channel broke")
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost()

    def pause_writing(self) -> None:
        self.is_paused = True
        self._on_pressure(True)

    def resume_writing(self) -> None:
        self.is_paused = False
        self._on_pressure(False)
