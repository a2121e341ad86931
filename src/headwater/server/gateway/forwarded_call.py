"""A request that a gateway forwarded, with what its handler needs of the client's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.server.gateway.channel import Channel
from headwater.server.gateway.stream_transport import StreamTransport
from headwater.server.http.endpoint import HttpEndpoint
from headwater.wire.channel import ChannelFlag, ChannelKind
from headwater.wire.page import page_payload

if TYPE_CHECKING:
    from headwater.server.http.exchange import Exchange
    from headwater.server.intake import Reading

_CLOSE: Final = int(ChannelFlag.CLOSE)
_UPGRADE: Final = int(ChannelFlag.UPGRADE)


class ForwardedCall:
    """Fulfils `HttpCaller`. Defaults stand in the class: most calls set few of them."""

    exchange: Exchange
    reading: Reading
    """Has none: `takes_direct_answer` is never true."""
    takes_direct_answer = False
    paused = False
    upgraded: asyncio.Protocol | None = None
    on_resumed: Callable[[], None] | None = None
    is_held = False
    """It begins when one before it on its connection is answered."""
    is_over = False
    _followers: list[ForwardedCall] | None = None
    _transport: StreamTransport | None = None
    _has_begun = False

    def __init__(
        self,
        channel: Channel,
        endpoint: HttpEndpoint,
        stream: int,
        is_waiting: bool,
        begin: Callable[[ForwardedCall], None],
        on_over: Callable[[int], object],
        reads_files: bool,
    ) -> None:
        """`begin`: hands it to its handler. `on_over`: its stream is no more."""
        self.endpoint = endpoint
        self.is_waiting = is_waiting
        self.reads_files = reads_files
        self._channel = channel
        self._stream = stream
        self._begin = begin
        self._on_over = on_over

    @property
    def transport(self) -> asyncio.Transport:
        return self._own_transport

    @property
    def _own_transport(self) -> StreamTransport:
        if self._transport is None:
            self._transport = StreamTransport(self._channel, self._stream, self._ended_here)
            self._transport.set_writer(self)
        return self._transport

    @property
    def is_gone(self) -> bool:
        return self.is_over

    # -- the order of its connection

    def begin(self) -> None:
        self._begin(self)

    @property
    def holds_followers(self) -> bool:
        """It is one of those that the next on its connection begins after."""
        return self.is_held or self.exchange.is_slow

    def hold(self, call: ForwardedCall) -> None:
        call.is_held = True
        if self._followers is None:
            self._followers = []
        self._followers.append(call)

    def _over(self) -> None:
        self.is_over = True
        self._on_over(self._stream)
        followers, self._followers = self._followers or (), None
        for call in followers:
            call.is_held = False
            if not call.is_over:
                call.begin()

    # -- what handlers do

    def answer_ready(self) -> None:
        exchange = self.exchange
        answer = exchange.take()
        if answer is None or self.is_over:
            return
        parts = answer if isinstance(answer, tuple) else (answer,)
        if exchange.streaming:
            self._has_begun = True
            self._channel.send_parts(ChannelKind.BEGIN, self._stream, parts)
            return
        flags = 0 if exchange.keep_alive else _CLOSE
        if exchange.page is not None:
            page = page_payload(exchange.page)
            self._channel.send_parts(ChannelKind.PAGE, self._stream, page, flags)
        else:
            self._channel.send_parts(ChannelKind.ANSWER, self._stream, parts, flags)
        self._over()

    def answered(self, now_us: int) -> None:
        raise AssertionError("no answer goes straight to a socket of another process")

    def send(self, data: bytes) -> None:
        if self.is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            self._channel.send(ChannelKind.BEGIN, self._stream, flags=_UPGRADE)
        self._own_transport.write(data)

    def hold_back(self, held_back: bool) -> None:
        transport = self._own_transport
        transport.pause_reading() if held_back else transport.resume_reading()

    def finish(self) -> None:
        """The last answer is out; nothing is told of the client any more."""
        if not self.is_over:
            self.upgraded = None
            self.on_resumed = None
            self.exchange.on_gone = None
            self._own_transport.end(ChannelKind.FINISH)

    def close(self) -> None:
        if not self.is_over:
            self._own_transport.close()

    # -- what the gateway reports

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.on_resumed is not None:
            self.on_resumed()

    def data_received(self, data: bytes) -> None:
        if self.upgraded is not None:
            self.upgraded.data_received(data)

    def taken(self, size: int) -> None:
        self._own_transport.taken(size)

    def end_of_input(self) -> None:
        """Where the answer waits for what may never come, the client has left."""
        if self.exchange.waits_for_event and not self.is_over:
            self._own_transport.close()

    def lost(self) -> None:
        """The client is gone, or its gateway."""
        if self.is_over:
            return
        if self._transport is not None:
            self._transport.lost()
        self._over()
        self._let_go()

    def broken(self) -> None:
        """A mistake of ours: its client is cut off, and no other."""
        if not self.is_over:
            self._own_transport.abort()

    def _ended_here(self) -> None:
        self._over()
        # As asyncio does: whoever ended it is not called back before it has returned.
        asyncio.get_running_loop().call_soon(self._let_go)

    def _let_go(self) -> None:
        upgraded, self.upgraded = self.upgraded, None
        if upgraded is not None:
            upgraded.connection_lost(None)
        on_gone, self.exchange.on_gone = self.exchange.on_gone, None
        if on_gone is not None:
            on_gone()
