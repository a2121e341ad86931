"""A client's connection as the sequencer has it: a transport whose bytes go through the channel.

The gateway reports what the client took. What it did not report yet counts as waiting here, as
bytes in the buffer of a socket would, so whoever writes is paused and resumed in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from headwater.server.gateway.channel import Channel
from headwater.server.http.exchange import Part
from headwater.wire.channel import BUFFER, ChannelFlag, ChannelKind

_ON: Final = int(ChannelFlag.ON)
_HIGH_BYTES: Final = 64 * 1024


class Writer(Protocol):
    """Who writes, and stops while the client does not take it."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class StreamTransport(asyncio.Transport):
    def __init__(
        self,
        channel: Channel,
        stream: int,
        on_ended: Callable[[], None],
        extra: dict[str, Any] | None = None,
    ) -> None:
        """`on_ended`: this side ended it."""
        super().__init__(extra)
        self._channel = channel
        self._stream = stream
        self._on_ended = on_ended
        self._writer: Writer | None = None
        self._high, self._low = _HIGH_BYTES, _HIGH_BYTES // 4
        self._waiting = 0
        self._is_paused = False
        self._is_closing = False
        self._reads = True
        self.on_reading: Callable[[], None] | None = None
        """Called when it reads again: there may be something that came before."""
        self.on_protocol: Callable[[asyncio.Protocol], None] | None = None

    def set_writer(self, writer: Writer) -> None:
        self._writer = writer

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """In place of the one that waited for it."""
        assert self.on_protocol is not None
        self.on_protocol(cast(asyncio.Protocol, protocol))

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._is_closing:
            return
        # Sent when the turn ends: whoever wrote may change what it wrote from.
        parts: list[Part] = [
            bytes(part) if isinstance(part, bytearray) else part for part in list_of_data
        ]
        size = sum(map(len, parts))
        if not size:
            return
        self._channel.send_parts(ChannelKind.DATA, self._stream, parts)
        self._waiting += size
        if self._waiting > self._high and not self._is_paused and self._writer is not None:
            self._is_paused = True
            self._writer.pause_writing()

    def taken(self, size: int) -> None:
        """The client took so much."""
        self._waiting -= size
        if self._is_paused and self._waiting <= self._low and self._writer is not None:
            self._is_paused = False
            self._writer.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low
        self._channel.send(ChannelKind.BUFFER, self._stream, BUFFER.packer.pack(self._high))

    def get_write_buffer_size(self) -> int:
        return self._waiting

    # -- reading

    def pause_reading(self) -> None:
        self._set_reading(False)

    def resume_reading(self) -> None:
        self._set_reading(True)

    def is_reading(self) -> bool:
        return self._reads

    def _set_reading(self, reads: bool) -> None:
        if reads != self._reads and not self._is_closing:
            self._reads = reads
            flags = _ON if reads else 0
            self._channel.send(ChannelKind.READING, self._stream, flags=flags)
            if reads and self.on_reading is not None:
                self.on_reading()

    # -- the end

    def close(self) -> None:
        self.end(ChannelKind.CLOSE)

    def abort(self) -> None:
        self.end(ChannelKind.ABORT)

    def end(self, how: ChannelKind) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._channel.send(how, self._stream)
            self._on_ended()

    def lost(self) -> None:
        """The gateway ended it: nothing more is sent."""
        self._is_closing = True

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return False
