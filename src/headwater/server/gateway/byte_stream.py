"""A connection whose protocol runs in the sequencer and whose socket is a gateway's.

The protocol is the same class that a server without workers gives to a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from headwater.server.gateway.channel import Channel
from headwater.server.gateway.stream_transport import StreamTransport, Writer


class ByteStream:
    """One of them, in the sequencer."""

    def __init__(
        self,
        channel: Channel,
        stream: int,
        addresses: dict[str, tuple[str, int]],
        on_over: Callable[[int], object],
    ) -> None:
        self._stream = stream
        self._on_over = on_over
        self._transport = StreamTransport(channel, stream, self._ended_here, addresses)
        self._transport.on_reading = self._read_soon
        self._transport.on_protocol = self._speak
        self._protocol: asyncio.Protocol | None = None
        self._unread: list[bytes] = []
        """Came before the protocol was there, or while it did not read."""
        self._is_over = False

    def hold(self) -> None:
        """Its port is not open yet."""
        self._transport.pause_reading()

    def begin(self, protocol: asyncio.Protocol) -> None:
        if self._is_over:
            return
        self._speak(protocol)
        protocol.connection_made(self._transport)
        self._transport.resume_reading()
        self._read()

    def _speak(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._transport.set_writer(cast(Writer, protocol))

    # -- what the gateway reports

    def data_received(self, data: bytes) -> None:
        self._unread.append(data)
        self._read()

    def _read_soon(self) -> None:
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read)

    def _read(self) -> None:
        while self._unread and self._protocol is not None and self._transport.is_reading():
            if self._transport.is_closing():
                return
            self._protocol.data_received(self._unread.pop(0))

    def taken(self, size: int) -> None:
        self._transport.taken(size)

    def end_of_input(self) -> None:
        if self._protocol is None or not self._protocol.eof_received():
            self._transport.close()

    def lost(self) -> None:
        if not self._is_over:
            self._transport.lost()
            self._over()
            self._tell_lost()

    def broken(self) -> None:
        """A mistake of ours: its client is cut off, and no other."""
        self._transport.abort()

    def _ended_here(self) -> None:
        self._over()
        asyncio.get_running_loop().call_soon(self._tell_lost)

    def _over(self) -> None:
        self._is_over = True
        self._on_over(self._stream)

    def _tell_lost(self) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(None)
