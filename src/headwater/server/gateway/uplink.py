"""The gateway's end of the channel: up while there is a sequencer, and up again with the next one.

It numbers the streams, knows which heads the sequencer keeps, and hands each frame to its stream.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from headwater.observe.logs import Logger
from headwater.server.gateway.channel import Channel, FrameHandler
from headwater.server.http.request_head import Head
from headwater.wire.channel import (
    BUFFER,
    HEADS_MAX,
    REQUEST,
    TAKEN,
    ChannelFlag,
    ChannelKind,
    head_payload,
    hello,
    read_hello,
)

_BEYOND_REQUESTS: Final = 1 << 62
RETRY_S: Final = 0.05
"""After a channel that could not be had, or broke."""
_HEAD_BYTES_MAX: Final = 4_096
"""A longer head is not kept by the sequencer: it goes along with its request each time."""
_CLOSE: Final = int(ChannelFlag.CLOSE)
_UPGRADE: Final = int(ChannelFlag.UPGRADE)
_ON: Final = int(ChannelFlag.ON)
_pack_request: Final = REQUEST.packer.pack


class ForwardedStream(Protocol):
    """A request or a connection that the sequencer has to do with, as its gateway has it."""

    def answer(self, answer: bytes, *, closes: bool) -> None:
        """The whole answer; it ends the stream."""

    def page(self, page: bytes, *, closes: bool) -> None:
        """The whole answer, its records where they lie; it ends the stream."""

    def begin(self, head: bytes, *, is_upgraded: bool) -> None:
        """An answer without end begins."""

    def send(self, data: bytes) -> None: ...

    def hold_back(self, held_back: bool) -> None: ...

    def limit_buffer(self, size: int) -> None: ...

    def report_taken(self) -> None:
        """Called every so often, too: a slow client may take a little of much."""

    def end(self, how: ChannelKind) -> None: ...

    def sequencer_lost(self) -> None:
        """Its process is gone; whether it did what was asked is not known."""


class Uplink:
    def __init__(
        self,
        address: str | bytes,
        slot: int,
        log: Logger,
        on_change: Callable[[], None],
        on_pressure: Callable[[], None],
    ) -> None:
        """`on_change`: it came up or went down. `on_pressure`: `is_pressed` has changed."""
        self._address = address
        self._slot = slot
        self._log = log
        self._on_change = on_change
        self._on_pressure = on_pressure
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(_BEYOND_REQUESTS)
        self._handlers: dict[ChannelKind, FrameHandler] = {}
        self._streams: dict[int, ForwardedStream] = {}
        self._heads: list[Head | None] = [None] * HEADS_MAX
        self._next_head = 1
        self._channel: Channel | None = None
        self._lost = asyncio.Event()
        self._is_closing = False
        self.is_up = False
        self.is_pressed = False
        """The sequencer does not read: neither are clients read."""

    # -- up and down

    async def run(self) -> None:
        """Hold a channel to whoever is the sequencer, until `close`."""
        while not self._is_closing:
            self._lost.clear()
            with suppress(OSError):
                await self._connect()
                await self._lost.wait()
            self._down()
            if not self._is_closing:
                await asyncio.sleep(RETRY_S)

    async def _connect(self) -> None:
        connected = socket.socket(socket.AF_UNIX)
        connected.setblocking(False)
        try:
            await self._loop.sock_connect(connected, self._address)
        except BaseException:
            connected.close()
            raise
        channel = Channel(self._loop, self._log, self._lost.set, self._set_pressure)
        channel.register({ChannelKind.HELLO: self._take_hello})
        await self._loop.create_unix_connection(lambda: channel, sock=connected)
        self._channel = channel
        channel.send(ChannelKind.HELLO, 0, hello(self._slot, os.getpid()))

    def _take_hello(self, _stream: int, _flags: int, payload: bytes) -> None:
        read_hello(payload)
        assert self._channel is not None, "it said so"
        for deals, ends in ((_GOING_ON, False), (_ENDING, True)):
            self._channel.register(
                {kind: self._handler(deal, ends=ends) for kind, deal in deals.items()}
            )
        self._channel.register(self._handlers)
        self.is_up = True
        self._on_change()

    def _down(self) -> None:
        self._channel = None
        was_up, self.is_up = self.is_up, False
        for head in self._heads:
            if head is not None:
                head.channel_number = 0
        self._heads = [None] * HEADS_MAX
        self._next_head = 1
        if self.is_pressed:
            self._set_pressure(False)
        if was_up:
            self._on_change()
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            try:
                stream.sequencer_lost()
            except Exception:  # the other clients are told all the same
                self._log.exception("a connection broke")

    def _set_pressure(self, is_pressed: bool) -> None:
        self.is_pressed = is_pressed
        self._on_pressure()

    def flush(self) -> None:
        if self._channel is not None:
            self._channel.flush()

    async def close(self, wait_s: float) -> None:
        """Say what is there, and hang up."""
        self._is_closing = True
        if self._channel is not None:
            self._channel.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), wait_s)

    # -- out

    def register(self, handlers: Mapping[ChannelKind, FrameHandler]) -> None:
        """What is done with further kinds of frames, on this channel and the next ones."""
        self._handlers.update(handlers)

    def next_stream(self) -> int:
        """For what is no request; streams of those have the requests' numbers."""
        return next(self._numbers)

    def add(self, stream: int, forwarded: ForwardedStream) -> None:
        self._streams[stream] = forwarded

    def send(self, kind: ChannelKind, stream: int, payload: bytes = b"") -> None:
        if self._channel is not None:
            self._channel.send(kind, stream, payload)

    def request(
        self,
        stream: int,
        head: Head,
        body: bytes | bytearray,
        started_us: int,
        behind: int,
        flags: int,
    ) -> None:
        """One that has come. `behind`: the unanswered one before it on its connection, or 0."""
        channel = self._channel
        assert channel is not None, "it is up"
        number = head.channel_number or self._send_head(channel, head)
        fixed = _pack_request(started_us, behind, number)
        channel.send_parts(ChannelKind.REQUEST, stream, (fixed, bytes(body)), flags)

    def _send_head(self, channel: Channel, head: Head) -> int:
        target = head.path if not head.query_bytes else b"%b?%b" % (head.path, head.query_bytes)
        number = 0
        payload = head_payload(number, head.method, target, head.headers.items())
        if len(payload) <= _HEAD_BYTES_MAX:
            number = self._next_head
            self._next_head = number % (HEADS_MAX - 1) + 1
            replaced = self._heads[number]
            if replaced is not None:
                replaced.channel_number = 0
            self._heads[number] = head
            head.channel_number = number
            payload = head_payload(number, head.method, target, head.headers.items())
        channel.send(ChannelKind.HEAD, 0, payload, 0 if head.keep_alive else _CLOSE)
        return number

    def taken(self, stream: int, size: int) -> None:
        if stream in self._streams:
            self.send(ChannelKind.TAKEN, stream, TAKEN.packer.pack(size))

    def gone(self, stream: int) -> None:
        """The client is, and what it sent may have been answered meanwhile."""
        if self._streams.pop(stream, None) is not None:
            self.send(ChannelKind.GONE, stream)

    def end_of_input(self, stream: int) -> None:
        if stream in self._streams:
            self.send(ChannelKind.END_OF_INPUT, stream)

    def report_taken(self) -> None:
        """Of all streams whose clients take little."""
        for stream in list(self._streams.values()):
            stream.report_taken()

    # -- in

    def _handler(self, deal: Deal, *, ends: bool) -> FrameHandler:
        """For frames of one kind, about streams that may be gone by now. A mistake of ours costs
        one client its connection, and not all others theirs."""

        def handle(stream: int, flags: int, payload: bytes) -> None:
            forwarded = self._streams.pop(stream, None) if ends else self._streams.get(stream)
            if forwarded is None:
                return
            try:
                deal(forwarded, flags, payload)
            except Exception:
                self._log.exception("a connection broke")
                self.gone(stream)
                forwarded.end(ChannelKind.ABORT)

        return handle


Deal = Callable[[ForwardedStream, int, bytes], None]
"""What is done with a frame: the stream, the flags, the payload."""
_GOING_ON: Final[Mapping[ChannelKind, Deal]] = {
    ChannelKind.BEGIN: lambda stream, flags, head: stream.begin(
        head, is_upgraded=bool(flags & _UPGRADE)
    ),
    ChannelKind.DATA: lambda stream, _flags, data: stream.send(data),
    ChannelKind.READING: lambda stream, flags, _nothing: stream.hold_back(not flags & _ON),
    ChannelKind.BUFFER: lambda stream, _flags, size: stream.limit_buffer(
        BUFFER.packer.unpack_from(size)[0]
    ),
}
_ENDING: Final[Mapping[ChannelKind, Deal]] = {
    ChannelKind.ANSWER: lambda stream, flags, answer: stream.answer(
        answer, closes=bool(flags & _CLOSE)
    ),
    ChannelKind.PAGE: lambda stream, flags, page: stream.page(page, closes=bool(flags & _CLOSE)),
    ChannelKind.FINISH: lambda stream, *_: stream.end(ChannelKind.FINISH),
    ChannelKind.CLOSE: lambda stream, *_: stream.end(ChannelKind.CLOSE),
    ChannelKind.ABORT: lambda stream, *_: stream.end(ChannelKind.ABORT),
}
"""Those that end their stream."""
